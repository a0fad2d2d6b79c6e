"""`Application`: a deployed topology as its user sees it. Start, pause, resume, stop, inspect its progress and its stores.

Control calls run on a thread of their own. The caller waits for the thread; an interrupt (Ctrl-C, a kernel's interrupt) ends only
the waiting. The call itself completes, so the application is in its old state or its new one, never between.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, MutableMapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.call_checks import checked_calls
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.node_diff import NodeChange, whole_code
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.mimebundle import mimebundle, text_of
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.application_view import ApplicationView
from kstreams_repl.repl.session.application.edits import edit as plan_edits
from kstreams_repl.repl.session.application.edits.edit import (
    Conversions,
    EditPlan,
    begun,
    migrations_of,
    plan_edit,
    plan_rollback,
    prepare,
)
from kstreams_repl.repl.session.application.edits.skip import config_without, position_to_skip
from kstreams_repl.repl.session.application.edits.versions import VersionHistory, program_that_runs
from kstreams_repl.repl.session.application.life.control_thread import CaughtUp, Work, wait_until
from kstreams_repl.repl.session.application.life.listeners import Listeners
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.application.savepoints.savepoint_writer import savepoint_path, write_savepoint
from kstreams_repl.repl.session.application.savepoints.savepoints import Savepoint
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.source.source_slice import Program, program_of
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.repl.session.views.counts.consumer_lag import FEW
from kstreams_repl.repl.session.views.counts.counts_reader import CountsReader
from kstreams_repl.repl.session.views.explanation import explain
from kstreams_repl.repl.session.views.picture.picture_overlay import silent_lines, summary_of
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import DeployError, IllegalStateError, TaskMigratedError

if TYPE_CHECKING:
    from kstreams_repl.host.spark.deployment import Deployment
    from kstreams_repl.repl.session.application.detached.client import DetachedDeployment


@checked_calls
class Application(ApplicationView):
    """A topology under an application id. Get one from `Session.deploy` or `Session.attach`.

    Example:
        >>> app = session.deploy(builder, "word-count")   # doctest: +SKIP
        >>> app.pause(); app.resume(); app.stop()         # doctest: +SKIP
    """

    def __init__(
        self,
        client: ClusterClient,
        applications: MutableMapping[str, Application],
        name: str,
        topology: Topology,
        config: StreamsConfig,
        deployment: Deployment | DetachedDeployment,
        history: VersionHistory,
        *,
        definition: Any = None,
        found: str | None = None,
        claimed: bool = False,
        detached: bool = False,
        failure: BaseException | None = None,
    ) -> None:
        self.name = name
        self.topology = topology
        self.config = config
        self.client = client
        self.definition = definition
        """The builder, stream, table or topology it was deployed or edited with: `changes` compares with it."""
        self.counts_reader = CountsReader(self, self._instances)
        self.stale: frozenset[str] = frozenset()
        """Nodes that a notebook cell has changed since the last deploy or edit; they still run the earlier code."""
        self.running_code = whole_code(topology)
        """Code of its nodes as last sent to the workers: `edit` compares with it."""
        self.rolled_back: Mapping[str, Any] = {}
        """Code of the version that the last edit has rolled back: an edit of one node does not bring it back."""
        self.detached = detached
        """Whether a process of its own drives it, which continues when this process ends."""
        self._applications = applications
        self._deployment = deployment
        self._history = history
        self._found, self._claimed = found, claimed
        self._control = threading.Lock()
        self._starting: Work | None = None
        self._start_error = failure
        self._listeners: Listeners | None = None

    # ---- life

    def start(self) -> Application:
        """Deploy, or continue from the committed offsets. Returns at once, after the checks that need no Spark.

        Raises:
            UnknownTopicError, TopologyError, BrokerUnavailableError: as described in `host.spark.planning`.
            DeployError: it was deployed or attached again, so the session has another object for it.

        Example:
            >>> app.start() is app
            True
        """
        if self.status.is_running_or_rebalancing():
            return self
        self._refuse_replaced()
        check(self.client.admin, self.topology, self.name, self.config)
        self._applications.setdefault(self.name, self)  # `cleanup` removed it from the session
        self._version_changed_code()
        self._start_error = None
        self._starting = Work(self._control, self._deployment.start, name=f"deploy-{self.name}", on_error=self._start_failed)
        return self

    def resume(self) -> Application:
        """Continue after a pause, a stop, or a failure whose cause is fixed. Returns when the instances are being started.

        Resuming a running application does nothing.

        Example:
            >>> app.resume().status == "running"
            True
        """
        self.start()
        self._finish_start()
        return self

    def skip(self, at: str | ReadRecord) -> Application:
        """Continue without the record at which it failed. Calling it again for the same record does nothing.

        The record is left out, counted as dropped, and written to the dead-letter topic if there is one, in the commit that moves
        past it. All other records are processed as usual. The record is kept in the settings of a new version
        (``repl.skip.records``), so a restart also leaves it out.

        Args:
            at: topic, partition and offset as the error names them (``"orders-0@17"``), or `failed_record`.

        Raises:
            DeployError: it did not fail at that record, or still fails without it; nothing was changed.

        Example:
            >>> app.skip(app.failed_record).resume()      # doctest: +SKIP
        """
        # 1. Refuse.
        position = position_to_skip(self, at)
        if position is None:
            return self
        # 2. Stop.
        self.stop()
        # 3. Write the version.
        program, config = self._history.program(), config_without(self, position)
        self._deployment.version = self._history.keep(program, self.topology, config)
        self.config = self._deployment.config = config
        dead_letters = self.config["errors.dead.letter.queue.topic.name"]
        target = f"the record goes to {dead_letters}" if dead_letters else "no dead-letter topic is set"
        self.client.report(f"{self.name} continues without {position}; {target}")
        # 4. Start.
        return self.resume()

    def edit(
        self,
        topology: Any,
        *,
        dry_run: bool = False,
        reset_state: Collection[str] = (),
        migrate: Conversions | None = None,
        migrate_rows: Conversions | None = None,
    ) -> EditPlan:
        """Continue with another topology: functions changed, nodes added or removed.

        The plan lists the effect on nodes and state.

        Applied at a commit boundary: state and offsets are kept, and under exactly once no record is lost or processed twice. An
        application that is paused or stopped takes the new topology when it is resumed; a failed one is resumed with it.

        Args:
            topology: the builder (changed meanwhile), a topology, a stream or table.
            dry_run: only make the plan; `apply` carries it out.
            reset_state: names of stores that begin empty with this edit; their rows and changelogs are deleted. The tasks that
                hold them restore their other stores from the changelogs.
            migrate: by name of a key-value, window or session store, a function of (key, value) that returns each row's new value
                (None deletes it), for the new value serde or shape; the key of a window is a `Windowed`. It runs in this process,
                once per row; all rows and the version take effect in one transaction.
            migrate_rows: by name of a key-value store, a function of (key, value) that returns each row's new (key, value), for
                another key serde or shape. A row stays in its partition: a key that belongs to another partition is rejected.

        Raises:
            TopologyError: rows of a store would be read wrongly, or a store cannot be reset; the plan is in ``plan``, the
                remedies are in the hint.

        Example:
            >>> plan = app.edit(builder.replace('long', lambda key, word: len(word) > 1))
            >>> plan.applied
            True
        """
        built, config = built_with_serdes(self.client, topology, self.config, settled=self.topology.source_topics(), report=not dry_run)
        stores = (reset_state,) if isinstance(reset_state, str) else tuple(reset_state)
        plan = plan_edit(
            self, built, topology, running_code=self.running_code, config=config, reset_state=stores, migrate=migrate,
            migrate_rows=migrate_rows,
        )
        return plan if dry_run else self.apply(plan)

    def apply(self, plan: EditPlan) -> EditPlan:
        """Carry out the plan of an edit, as `edit` does. Return it with the version as which it was applied.

        Does nothing when nothing changes, or the plan was applied already.

        Raises:
            TopologyError: a store's rows would be read wrongly, or the topology does not fit the cluster.
            TaskMigratedError: another program has taken the application over.

        Example:
            >>> plan = app.edit(builder, dry_run=True)
            >>> app.apply(plan).applied
            True
        """
        if plan.applied or plan.diff.empty:
            return plan if plan.applied else replace(plan, version=self.versions[-1].number)
        # 1. Refuse. 2. Check.
        if isinstance(self.error, TaskMigratedError):
            raise self.error
        prepare(plan, self.client, self.config)
        # 3. History, pause, replace, start. 4. Resume, if it had failed.
        program = plan.program or program_of(plan.definition, plan.topology, self.client.variables)
        self.config = plan.config
        self._refuse_replaced()
        if self._starting is not None:
            self._starting.wait()
        self._run(lambda: self._replace(plan, program))  # on the control thread, so that it completes even if the wait is interrupted
        self._finish_start()
        return replace(plan, version=self.versions[-1].number)

    def changes(self) -> EditPlan | None:
        """Return the edit that would apply the notebook's present builder; None when it equals what runs, or cannot be built.

        Example:
            >>> app.changes() is None
            True
        """
        plan = plan_edits.plan_of_definition(self, self.definition)
        if plan is None:
            return None
        self.stale = frozenset(node.name for node in plan.diff.nodes if node.change not in (NodeChange.UNCHANGED, NodeChange.NEW))
        return None if plan.diff.empty else plan

    def rollback(self, *, migrate: Conversions | None = None, migrate_rows: Conversions | None = None) -> EditPlan:
        """Edit back to the version before this one. The present version stays in the history.

        The notebook's builder goes back, too, if it equals what runs; else it stays, and a report names the nodes in which they differ.

        Args:
            migrate, migrate_rows: as `edit`: the reverse functions, for stores whose rows this version has converted.

        Raises:
            KStreamsError: this is the first version.
            TopologyError: a converted store has no reverse function.

        Example:
            >>> plan = app.rollback()
            >>> app.versions[-1].number
            3
        """
        plan = plan_rollback(self, self._history, running_code=self.running_code, migrate=migrate, migrate_rows=migrate_rows)
        builder, code = plan_edits.plan_of_definition(self, self.definition), self.running_code
        applied = self.apply(plan)
        self.rolled_back = code
        self.definition = plan_edits.follow_rollback(self, builder) or self.definition
        return applied

    def savepoint(self, name: str) -> Savepoint:
        """Keep state and offsets as of one commit under a name. A running application is paused for it, then resumed.

        The savepoint stays in the session's directory, in ``savepoints/``, until it is deleted. ``session.deploy(builder, name,
        from_savepoint=…)`` starts from it and reads the later records again, so the topics that it writes receive their results a
        second time. Raises CallError when a savepoint of that name exists, IllegalStateError when the application has failed.

        Example:
            >>> saved = app.savepoint('before-the-change')
            >>> saved.application == app.name
            True
        """
        path = savepoint_path(self.client, self.name, name)
        if self.status not in ("starting", "running", "paused", "stopped"):
            raise IllegalStateError(
                f"{self.name} is {self.status}: its state and offsets may not be of the same commit",
                hint="resume it or stop it, then take the savepoint",
            )
        runs = self.status in ("starting", "running")
        if runs:
            self.pause()
        try:
            return write_savepoint(self.client, self.name, self.topology, self.config, path)
        finally:
            if runs:
                self.resume()

    def export(self, folder: str | os.PathLike[str], *, records: int = 200) -> Path:
        """Write a small Python package: ``app.py`` (the topology; ``python app.py`` deploys it) and a test made from a recording.

        The test replays the first `records` records of each source topic and compares the results with those that the topology
        gives now.

        Args:
            folder: directory to write to.
            records: number of records per source topic.

        Raises:
            KStreamsError: the source text of what runs is not complete (`versions`).

        Example:
            >>> folder = app.export("word-count")     # doctest: +SKIP
        """
        from kstreams_repl.repl.session.source.export import export

        saved = self._history.saved(self.versions[-1].number)
        assert saved is not None
        return export(self.client.admin, self.name, self.topology, saved, folder, records=records)

    def pause(self) -> Application:
        """Pause at a commit boundary. Returns when everything processed is committed. Pausing twice does nothing.

        Example:
            >>> app.pause().status == "paused"
            True
        """
        self._finish_start()
        self._run(self._deployment.pause)
        return self

    def stop(self) -> Application:
        """Stop: pause, then release all resources. Its topics, offsets and state stay; `resume` continues from them.

        Example:
            >>> app.stop().status == "stopped"
            True
        """
        if self._starting is not None:
            self._starting.wait()
        self._run(self._deployment.stop)
        return self

    def abandon(self) -> None:
        """Release its resources without a commit, because its broker has ended. What was committed stays.

        Example:
            >>> app.abandon()     # doctest: +SKIP
        """
        if self._starting is not None:
            self._starting.wait()
        self._run(self._deployment.abandon)

    def wait(self, timeout: Seconds | None = None, *, until: Callable[[Application], bool] | None = None) -> bool:
        """Wait until a condition holds. Without one, wait until everything on its topics is processed and committed.

        A record in an asynchronous node is not processed until its result has left the node, one that waits for another try
        (``on_error="retry"``) included. What `suppress`, a window or a join keeps until stream time passes is processed: only further
        records end that. A start that takes longer than a second is reported.

        Args:
            timeout: seconds; None waits without limit.
            until: (application) -> whether to stop waiting; None: everything on its topics is processed and committed.

        Returns:
            False when the timeout expired first, or the application was paused or stopped.

        Raises:
            ApplicationFailedError and others: the application failed; its own error is raised.
            WaitInterrupted: Ctrl-C; the application continues.

        Example:
            >>> app.wait(60)
            True
        """
        seconds = None if timeout is None else as_seconds(timeout, "timeout")
        caught_up = CaughtUp(self._instances, lambda: self._remaining(most=FEW), lambda: self._deployment.is_taken_over())
        return wait_until(self, seconds, until or caught_up)

    def listen(
        self,
        *,
        state: Callable[[ApplicationState, ApplicationState], object] | None = None,
        restore: Callable[[int, int, int], object] | None = None,
        standby: Callable[[int, str, int], object] | None = None,
        uncaught: Callable[[Any], object] | None = None,
    ) -> Listeners:
        """Call functions of this process on events, until `close` of the result or the next `listen`, which replaces it.

        Args:
            state: (new, old) status, after each change.
            restore: (instance, restored, remaining) in records, while stores are restored; the last call has remaining 0.
            standby: (instance, task, lag) in records, when the lag of a standby copy has changed.
            uncaught: (error) -> `UncaughtResponse`, once for each failure: ``lambda error: "replace_thread"`` starts it again.

        Example:
            >>> listening = app.listen(state=lambda new, old: print(old, new))
            >>> listening.close()
        """
        self._listeners = Listeners(self, self._listeners, state=state, restore=restore, standby=standby, uncaught=uncaught)
        return self._listeners

    def explain(self, *, timeout: Seconds = 5.0) -> Table:
        """Return why its result may be empty or too small: one row for each question of ``docs/tasks/empty-results.md``, with its numbers.

        Records are counted by the running tasks, at rest as of the last commit. For joins a sample of the topics runs in this process.

        Args:
            timeout: seconds after which no larger sample begins.

        Example:
            >>> app.explain().rows[1][:2]
            ('Were records read?', 'words: 5 records')
        """
        return explain(self, seconds=as_seconds(timeout, "timeout"))

    # ---- showing

    def __repr__(self) -> str:
        return summary_of(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        error = self._error_with_record()
        note = repr(self) if error is None else f"{self!r}\n{error}"
        return mimebundle(self.picture(), "\n".join([text_of(self.topology), *silent_lines(self)]), note=note)

    # ---- inside

    def _finish_start(self) -> None:
        if self._starting is not None:
            self._starting.wait()
            if self._start_error is not None:
                raise self._start_error

    def _instances(self) -> int:
        """Return how many instances run, as far as this process knows."""
        return getattr(self._deployment.plan, "instances", None) or 1

    def _refuse_replaced(self) -> None:
        """Raise if the session has deployed or attached the application again since, and so has another object for it.

        Raises:
            DeployError: the session has another object for it.
        """
        if not self.detached and self.current is not self:
            raise DeployError(
                f"the session has another object for {self.name}: it was deployed or attached again",
                hint=f"use session.applications[{self.name!r}]",
            )

    def _version_changed_code(self) -> None:
        """Write a version if a start, other than a resume, sends changed functions with the notebook's present values.

        An attach, a rollback or a detached process would otherwise load the earlier ones.
        """
        driver = self._driver_process
        if self.status == "paused" or (driver is not None and driver.mailbox.driven is not None):
            return
        code = whole_code(self.topology)
        if code == self.running_code:
            return
        program = program_that_runs(self.definition, self.topology, code, self.config, self.client.variables)
        if program is None:
            program = replace(self._history.program(), missing=("functions or values that have changed since",))
        self._deployment.version = self._history.keep(program, self.topology, self.config)
        self.running_code = code

    def _replace(self, plan: EditPlan, program: Program) -> None:
        """Run steps 3 and 4 of `apply`."""
        generation = self.generation
        history, driver, migrations = self._history, self._driver_process, migrations_of(plan)
        more = {"migrations": migrations} if migrations else {}
        emptied = tuple(changelog_topic(self.name, store) for store in plan.diff.reset)
        with nullcontext() if driver is None else driver.editing(history.versions[-1].number):
            count = len(history.versions)
            text = history.keep(program, plan.topology, self.config, migrated=[migration.store for migration in migrations])
            try:
                with begun(plan):
                    self._deployment.replace(plan.topology, version=text, emptied=emptied, **more)
            except Exception:
                if self._deployment.topology is plan.topology:  # its rows are converted: it stays, and starts after the next resume
                    self.topology = plan.topology
                elif len(history.versions) > count:
                    history.forget_last()
                raise
        self.topology = plan.topology
        self.running_code = whole_code(plan.topology)
        if plan.program is None and plan.definition is not None:
            self.definition = plan.definition
        self.stale, self.rolled_back = frozenset(), {}
        self.client.serdes.learn(self.topology, self.name, self.config)
        # 4. Resume it, if it had failed.
        if self.status == "failed" and self.generation == generation:
            self.start()

    def _run(self, call: Callable[[], Any]) -> None:
        self.client.ensure_own()
        work = Work(self._control, call, name=f"control-{self.name}")
        work.wait()
        self.counts_reader.forget()
        if work.error is not None:
            raise work.error
