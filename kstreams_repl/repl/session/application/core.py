"""`ApplicationCore`: what the session keeps of an application and does with it; `Application` is the user's handle on it.

Control calls run on a thread of their own. The caller waits for the thread; an interrupt (Ctrl-C, a kernel's interrupt) ends only
the waiting. The call itself completes, so the application is in its old state or its new one, never between.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.differences.node_diff import whole_code
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.host.query_tokens import FILE
from kstreams_repl.host.spark.failures.failure_translation import failure_from
from kstreams_repl.repl.session.application.batch.batch_report import BatchReport
from kstreams_repl.repl.session.application.edits.versions import Version, VersionHistory, program_that_runs
from kstreams_repl.repl.session.application.life.control_thread import Work
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.source.error_source import with_source
from kstreams_repl.repl.session.views.counts.counts_reader import CountsReader
from kstreams_repl.repl.session.views.counts.metrics_view import MetricsView
from kstreams_repl.repl.session.views.counts.record_counts import Counts
from kstreams_repl.repl.session.views.values.journaled_run import JournaledRun
from kstreams_repl.serving.remote.discovery import Discovery
from kstreams_repl.system.errors import DeployError, KStreamsError, TaskMigratedError

if TYPE_CHECKING:
    from kstreams_repl.host.instance.control.journal_follower import Follower
    from kstreams_repl.host.instance.reports.run_progress import RunProgress
    from kstreams_repl.host.spark.deployment import Deployment
    from kstreams_repl.host.spark.instance_reports import ApplicationReport
    from kstreams_repl.repl.session.application.detached.client import DetachedDeployment


@dataclass(eq=False, repr=False)
class ApplicationCore:
    """An application of a session.

    Attributes:
        registry: the session's applications by name.
        deployment: what drives it: this process, or the client of a process of its own.
        definition: the builder, stream, table or topology it was deployed or edited with: `Application.changes` compares with it.
        found: its status according to the journal, for an application that was attached.
        claimed: it was attached and executors of a cluster had claimed its instances: another kernel may drive it.
        detached: a process of its own drives it, which continues when this process ends.
        start_error: the error with which the last start failed, or it failed under an earlier kernel.
        stale: nodes that a notebook cell has changed since the last deploy or edit; they still run the earlier code.
        rolled_back: code of the version that the last edit has rolled back: an edit of one node does not bring it back.
        running_code: code of its nodes as last sent to the workers: `Application.edit` compares with it.
        handle: the user's `Application`.
        as_of: the moment whose state a copy reads (`views.past`); empty: this is the application.
        forked: what it changes, if it is a fork (`forks.fork_plan.ForkPlan`); else None.
        until_ms: of such a copy, the time (ms) up to which topics are read that no commit says more about.
    """

    client: ClusterClient
    registry: MutableMapping[str, ApplicationCore]
    name: str
    topology: Topology
    config: StreamsConfig
    deployment: Deployment | DetachedDeployment
    history: VersionHistory
    definition: Any = None
    found: str | None = None
    claimed: bool = False
    detached: bool = False
    start_error: BaseException | None = None
    batch_report: BatchReport | None = None
    stale: frozenset[str] = frozenset()
    rolled_back: Mapping[str, object] = field(default_factory=dict)
    running_code: Mapping[str, object] = field(init=False)
    counts_reader: CountsReader = field(init=False)
    handle: Any = None
    as_of: str = ""
    forked: Any = None
    until_ms: int | None = None
    starting: Work | None = None
    control: threading.Lock = field(default_factory=threading.Lock)
    _follower: Follower | None = None
    _discovery: tuple[Topology, Discovery] | None = None

    def __post_init__(self) -> None:
        self.running_code = whole_code(self.topology)
        self.counts_reader = CountsReader(self, self.instances)

    # ---- life

    def start(self) -> None:
        """Start it, as `Application.start`."""
        if self.status.is_running_or_rebalancing():
            return
        self.refuse_replaced()
        check(self.client.admin, self.topology, self.name, self.config)
        self.registry.setdefault(self.name, self)  # `cleanup` removed it from the session
        self._version_changed_code()
        self.start_error = None
        self.starting = Work(self.control, self.deployment.start, name=f"deploy-{self.name}", on_error=self._start_failed)

    def resume(self) -> None:
        self.start()
        self.finish_start()

    def finish_start(self) -> None:
        """Wait for the start in progress; raises the error with which it failed."""
        if self.starting is not None:
            self.starting.wait()
            if self.start_error is not None:
                raise self.start_error

    def pause(self) -> None:
        self.finish_start()
        self.run(self.deployment.pause)

    def stop(self) -> None:
        self.run(self.deployment.stop)

    def abandon(self) -> None:
        """Release its resources without a commit, because its broker has ended. What was committed stays."""
        self.run(self.deployment.abandon)

    def run(self, call: Callable[[], object]) -> None:
        """Run a control call after a start in progress, on the control thread, so that it completes even if the wait is interrupted."""
        if self.starting is not None:
            self.starting.wait()
        self.client.ensure_own()
        work = Work(self.control, call, name=f"control-{self.name}")
        work.wait()
        self.counts_reader.forget()
        if work.error is not None:
            raise work.error

    def refuse_replaced(self) -> None:
        """Raise if the session has deployed or attached the application again since, and so has another object for it.

        Raises:
            DeployError: the session has another object for it.
        """
        if not self.detached and self.current is not self:
            raise DeployError(
                f"the session has another object for {self.name}: it was deployed or attached again",
                hint=f"use session.applications[{self.name!r}]",
            )

    def _start_failed(self, error: BaseException) -> None:
        self.start_error = failure_from(self.name, error)

    def _version_changed_code(self) -> None:
        """Write a version if a start, other than a resume, sends changed functions with the notebook's present values.

        An attach, a rollback or a detached process would otherwise load the earlier ones.
        """
        driver = self.driver_process
        if self.status == "paused" or (driver is not None and driver.mailbox.driven is not None):
            return
        code = whole_code(self.topology)
        if code == self.running_code:
            return
        program = program_that_runs(self.definition, self.topology, code, self.config, self.client.variables)
        if program is None:
            program = replace(self.history.program(), missing=("functions or values that have changed since",))
        self.deployment.version = self.history.keep(program, self.topology, self.config)
        self.running_code = code

    # ---- what it is

    @property
    def current(self) -> ApplicationCore:
        """The session's object for this application: itself, unless it was deployed or attached again since."""
        return self.registry.get(self.name, self)

    @property
    def versions(self) -> list[Version]:
        return list(self.history.versions)

    @property
    def status(self) -> ApplicationState:
        if self.starting is not None and not self.starting.done:
            return ApplicationState.STARTING
        if self.start_error is not None:
            return ApplicationState.FAILED
        status = str(self.deployment.status)
        if status == "stopped" and self.deployment.error is not None:
            return ApplicationState.FAILED
        return ApplicationState(self.found if status == "created" and self.found is not None else status)

    @property
    def standing(self) -> str:
        if self.detached:
            return f"{self.status}, detached"
        try:
            run = self.run_of_another_kernel() if self.claimed else None
        except KStreamsError:  # the cluster does not answer, so nothing is known of the other kernel
            run = None
        return "running under another kernel" if run is not None and run.status == "running" else self.status

    @property
    def outdated(self) -> bool:
        """Whether another kernel has edited this detached application since it was attached, or another program has taken it over;
        `Session.attach` then reloads it.
        """
        driver = self.driver_process
        edited = driver is not None and bool(self.versions) and not driver.is_at(self.versions[-1].number)
        return edited or isinstance(self.deployment.error, TaskMigratedError)

    @property
    def error(self) -> KStreamsError | None:
        if self.status != ApplicationState.FAILED:
            return None
        error = self.start_error if isinstance(self.start_error, KStreamsError) else self.deployment.error
        return None if error is None else with_source(error)

    @property
    def generation(self) -> int:
        plan = self.deployment.plan
        return 0 if plan is None else plan.generation

    @property
    def reports(self) -> ApplicationReport:
        return self.deployment.reports

    @property
    def restarts(self) -> list[str]:
        driver = self.driver_process
        return list(cast("Deployment", self.deployment).restarts.history) if driver is None else driver.restarts

    @property
    def metrics(self) -> MetricsView:
        return MetricsView(self.name, self.deployment.metrics)

    @property
    def counts(self) -> Counts:
        return self.counts_reader.read()

    @property
    def batch_progress(self) -> RunProgress | None:
        return None if self.detached else cast("Deployment", self.deployment).completion

    @property
    def log(self) -> Path | None:
        driver = self.driver_process
        return None if driver is None else driver.mailbox.log

    def instances(self) -> int:
        """Return how many instances run, as far as this process knows."""
        return getattr(self.deployment.plan, "instances", None) or 1

    # ---- who runs it, and where

    @property
    def driver_process(self) -> DetachedDeployment | None:
        """The client of the process that drives a detached application; None: this process drives it."""
        return cast("DetachedDeployment", self.deployment) if self.detached else None

    def run_of_another_kernel(self) -> JournaledRun | None:
        """Return its run under another kernel, if this one has attached it and not started it."""
        if self.detached or self.found is None or self.deployment.status != "created":
            return None
        if journal_topic_name(self.name) not in self.client.admin.topics():
            return None
        return JournaledRun(self.name, self.config, self.client, self.follow())

    @property
    def query_token_path(self) -> str:
        return str(control_directory(state_root(self.config), self.name) / FILE)

    def follow(self) -> Follower:
        """Return what follows its journal, in a thread."""
        from kstreams_repl.host.instance.control.journal_follower import Follower

        follower = self._follower
        if follower is None or follower.over:
            follower = self._follower = Follower(self.deployment.settings, self.name, reports=True)
            self.client.at_close.append(follower.close)
            follower.refresh()
        return follower

    @property
    def discovery(self) -> Discovery:
        """Which host has which store and partition, according to its journal."""
        topology = self.topology
        if self._discovery is None or self._discovery[0] is not topology:
            found = Discovery(self.name, topology.subtopologies(), topology.internal_topics, self.config, lambda: self.follow().state)
            self._discovery = topology, found
        return self._discovery[1]
