"""`Application`: a deployed topology as its user sees it. Start, pause, resume, stop, edit, inspect its progress and its stores.

What the session keeps of it and does with it is in one object, `ApplicationCore`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from kstreams_repl.engine.call_checks import checked_calls
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.description.describe import TopologyDescription
from kstreams_repl.engine.topology.differences.node_diff import NodeChange
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
from kstreams_repl.pictures.graph.mimebundle import mimebundle, text_of
from kstreams_repl.pictures.graph.picture import Picture, picture_of
from kstreams_repl.pictures.retries import Retries
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.inspection.result import SqlResult
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.session.application.batch.batch_report import BatchReport, last_run, report_of
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.edits.apply import apply
from kstreams_repl.repl.session.application.edits.edit import (
    Conversions,
    EditPlan,
    follow_rollback,
    plan_edit,
    plan_of_definition,
    plan_rollback,
)
from kstreams_repl.repl.session.application.edits.skip import skip
from kstreams_repl.repl.session.application.edits.versions import Versions
from kstreams_repl.repl.session.application.forks.fork_record import read_records
from kstreams_repl.repl.session.application.life.listeners import Listeners
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.application.life.wait import CaughtUp, wait_until
from kstreams_repl.repl.session.application.savepoints.savepoint_writer import take_savepoint
from kstreams_repl.repl.session.application.savepoints.savepoints import Savepoint
from kstreams_repl.repl.session.application.serve import QueryServer, partition_lags, serve
from kstreams_repl.repl.session.topics.read import refuse_no_number
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.repl.session.views.counts.consumer_lag import FEW
from kstreams_repl.repl.session.views.counts.metrics_view import MetricsView
from kstreams_repl.repl.session.views.counts.record_counts import Counts, NodeRate
from kstreams_repl.repl.session.views.explanation import explain
from kstreams_repl.repl.session.views.past import NO_KEY, past_of
from kstreams_repl.repl.session.views.picture.failed_record import record_at, with_record
from kstreams_repl.repl.session.views.picture.node_retries import retries_of
from kstreams_repl.repl.session.views.picture.picture_overlay import overlay_of, silent_lines, summary_of
from kstreams_repl.repl.session.views.stores.local_queries import strict_queries_of
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from kstreams_repl.repl.session.views.tables.sql_catalog import all_stores
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.repl.session.views.values.live_taps import live_tail, live_tap, node_name
from kstreams_repl.repl.session.views.values.sample_run import sampled_values
from kstreams_repl.serving.local.store_types import QueryableStoreType, StoreQueryParameters
from kstreams_repl.serving.queries.state_query import StateQueryRequest, StateQueryResult
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import RecordPosition, StreamPartitioner

if TYPE_CHECKING:
    from kstreams_repl.host.instance.reports.run_progress import RunProgress
    from kstreams_repl.host.spark.instance_reports import ApplicationReport
    from kstreams_repl.repl.session.application.forks.fork import Fork
    from kstreams_repl.repl.session.application.forks.fork_plan import ForkPlan
    from kstreams_repl.repl.session.views.compare.comparison import Comparison
    from kstreams_repl.repl.session.views.past.causes.result import Causes
    from kstreams_repl.repl.session.views.past.debug.debugger import Debugger


@checked_calls
class Application:
    """A topology under an application id. Get one from `Session.deploy` or `Session.attach`.

    Example:
        >>> app = session.deploy(builder, "word-count")   # doctest: +SKIP
        >>> app.pause(); app.resume(); app.stop()         # doctest: +SKIP
    """

    _listeners: Listeners | None = None

    def __init__(self, core: ApplicationCore) -> None:
        self._core = core

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
        self._core.start()
        return self

    def resume(self) -> Application:
        """Continue after a pause, a stop, or a failure whose cause is fixed. Returns when the instances are being started.

        Resuming a running application does nothing.

        Example:
            >>> app.resume().status == "running"
            True
        """
        self._core.resume()
        return self

    def pause(self) -> Application:
        """Pause at a commit boundary. Returns when everything processed is committed. Pausing twice does nothing.

        Example:
            >>> app.pause().status == "paused"
            True
        """
        self._core.pause()
        return self

    def stop(self) -> Application:
        """Stop: pause, then release all resources. Its topics, offsets and state stay; `resume` continues from them.

        Example:
            >>> app.stop().status == "stopped"
            True
        """
        self._core.stop()
        return self

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
        app = self._core
        caught_up = CaughtUp(app.instances, lambda: app.counts_reader.remaining(most=FEW).total, lambda: app.deployment.is_taken_over())
        return wait_until(app, seconds, caught_up if until is None else lambda app: until(self))

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
        self._listeners = Listeners(self._core, self._listeners, state=state, restore=restore, standby=standby, uncaught=uncaught)
        return self._listeners

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
        return take_savepoint(self._core, name)

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
        skip(self._core, at)
        return self

    # ---- edits

    @property
    def versions(self) -> Versions:
        """The versions so far, the present one last: number, time, source text. They are kept across kernel restarts.

        Displayed, they are a tree with the forks that there are; a version that was a fork says so (`Version.promoted`).

        Example:
            >>> [version.number for version in app.versions]
            [1]
        """
        core = self._core
        records = [] if core.client.closed else read_records(core.client.directory.path)
        forks = [(fork.name, fork.base_version, fork.at_ms / 1000) for fork in records if fork.application == core.name]
        return Versions(core.versions, forks)

    def edit(
        self,
        topology: object,
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
        app = self._core
        built, config = built_with_serdes(app.client, topology, app.config, settled=app.topology.source_topics(), report=not dry_run)
        stores = (reset_state,) if isinstance(reset_state, str) else tuple(reset_state)
        plan = plan_edit(app, built, topology, config=config, reset_state=stores, migrate=migrate, migrate_rows=migrate_rows)
        return plan if dry_run else apply(app, plan)

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
        return apply(self._core, plan)

    def changes(self) -> EditPlan | None:
        """Return the edit that would apply the notebook's present builder; None when it equals what runs, or cannot be built.

        Example:
            >>> app.changes() is None
            True
        """
        app = self._core
        runs = app.topology
        plan = plan_of_definition(app, app.definition)
        if plan is None:
            return None
        if app.topology is runs:  # else another thread has applied an edit meanwhile, and nothing is stale
            same = NodeChange.UNCHANGED, NodeChange.NEW
            app.stale = frozenset(node.name for node in plan.diff.nodes if node.change not in same)
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
        app = self._core
        plan = plan_rollback(app, migrate=migrate, migrate_rows=migrate_rows)
        builder, code = plan_of_definition(app, app.definition), app.running_code
        applied = apply(app, plan)
        app.rolled_back, app.definition = code, follow_rollback(app, builder) or app.definition
        return applied

    @overload
    def fork(
        self,
        name: str,
        topology: object = None,
        *,
        dry_run: Literal[False] = False,
        allow: Collection[str] = (),
        config: Mapping[str, object] | None = None,
    ) -> Fork: ...

    @overload
    def fork(
        self,
        name: str,
        topology: object = None,
        *,
        dry_run: Literal[True],
        allow: Collection[str] = (),
        config: Mapping[str, object] | None = None,
    ) -> ForkPlan: ...

    def fork(
        self,
        name: str,
        topology: object = None,
        *,
        dry_run: bool = False,
        allow: Collection[str] = (),
        config: Mapping[str, object] | None = None,
    ) -> Fork | ForkPlan:
        """Run a changed topology beside this application: on the same input, from a copy of its state as of its last commit.

        The fork is an application of its own, ``<application>.<fork>``. It writes topics of its own (``<application>.<fork>-<topic>``), and
        functions of `peek`, `foreach` and `print`, tables of files, and sinks that choose their topic are left out. This application goes
        on; it is paused for a moment only if its topology has topics between its tasks (repartition topics). Changes that an edit
        refuses are allowed: a store whose rows could not be read begins empty.

        Args:
            name: name of the fork.
            topology: as for `edit`; None: the one that runs.
            dry_run: only return the plan.
            allow: nodes whose effects are not left out.
            config: settings of the fork that differ from this application's; by default it has one instance.

        Raises:
            TopologyError: an asynchronous node without durable results is not in `allow`, or a source's pattern covers the fork's topics.
            InvalidStateStoreError: this application does not commit exactly once, or what its stores have is not known.
            DeployError: there is a fork of that name.

        Example:
            >>> fork = app.fork("cheaper", builder)     # doctest: +SKIP
            >>> fork.outputs                            # doctest: +SKIP
            {'counted': 'word-count.cheaper-counted'}
        """
        from kstreams_repl.repl.session.application.forks.fork import Fork, begin_fork
        from kstreams_repl.repl.session.application.forks.fork_plan import plan_fork

        app = self._core
        plan = plan_fork(app, name, topology, allow=allow, config=config)
        if dry_run:
            return plan
        record, core = begin_fork(app, plan)
        return Fork(app.client, app.registry, record, handle_on(core), plan)

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

        saved = self._core.history.saved(self.versions[-1].number)
        assert saved is not None
        return export(self._core.client.admin, self.name, self.topology, saved, folder, records=records)

    # ---- what it is, and how far

    @property
    def name(self) -> str:
        """The application id: prefix of its topics, its consumer group, its state.

        Example:
            >>> app.name == session.applications[app.name].name
            True
        """
        return self._core.name

    @property
    def topology(self) -> Topology:
        """The topology that runs, or ran last.

        Example:
            >>> "counts" in str(app.topology.describe())
            True
        """
        return self._core.topology

    @property
    def config(self) -> StreamsConfig:
        """Its settings.

        Example:
            >>> app.config["application.id"] == app.name
            True
        """
        return self._core.config

    @property
    def status(self) -> ApplicationState:
        """The status under this kernel, an `ApplicationState`: a string with Kafka Streams' names.

        A failed application stays failed until it is started again.

        Example:
            >>> app.status == "running"
            True
        """
        return self._core.status

    @property
    def standing(self) -> str:
        """The status as display text; also says whether it is detached, or that another kernel runs it on a cluster.

        Example:
            >>> app.standing
        """
        return self._core.standing

    @property
    def error(self) -> KStreamsError | None:
        """The error with which it failed, the user's line first; None: it has not failed, or is being started again.

        Example:
            >>> app.error is None
            True
        """
        return self._core.error

    @property
    def failed_record(self) -> ReadRecord | None:
        """The source record at which it failed, decoded as far as possible.

        None when it has not failed, or not at a record that still exists.

        Example:
            >>> app.failed_record is None
            True
        """
        error = self.error
        position = None if error is None else error.record_position
        return None if position is None else record_at(self._core.client, position)

    @property
    def log(self) -> Path | None:
        """Log file of the process that drives a detached application; None: this process drives it.

        Example:
            >>> app.log
        """
        return self._core.log

    @property
    def restarts(self) -> list[str]:
        """One line for each restart after its worker processes were ended from outside.

        Example:
            >>> app.restarts
            []
        """
        return self._core.restarts

    @property
    def generation(self) -> int:
        """The generation of the application: which start, resume, edit or take-over this is.

        Example:
            >>> app.generation >= 1
            True
        """
        return self._core.generation

    @property
    def reports(self) -> ApplicationReport:
        """Records since its instances began, rate, lag and restore progress of each instance and task, as last reported; before the first
        report there are no instances, and the lag is -1.

        Example:
            >>> app.reports.generation > 0
            True
        """
        return self._core.reports

    @property
    def counts(self) -> Counts:
        """Counts of records at its nodes since it was made, and its lag; at rest, as of the last commit.

        Waits at most 1.5 s for the broker.

        Example:
            >>> app.counts.records, app.counts.lag
            (5, 0)
        """
        return self._core.counts

    def node_rates(self) -> dict[str, NodeRate]:
        """Rates of the nodes, as in `counts.nodes`.

        Example:
            >>> app.node_rates()
        """
        return dict(self.counts.nodes)

    @property
    def metrics(self) -> MetricsView:
        """Its metrics, under Kafka Streams' names (docs/reference/metrics.md). After an orderly end the last values stay.

        Example:
            >>> app.metrics.total('records-consumed-total')
        """
        return self._core.metrics

    def remaining(self) -> int:
        """Return the number of records that are not processed and committed yet: on its topics, repartition topics included, and in
        asynchronous nodes, where they wait for a call or for another try.

        Example:
            >>> app.remaining()
            0
        """
        return self._core.counts_reader.remaining().total

    @property
    def batch_report(self) -> BatchReport | None:
        """What the last bounded run of this object did: of `Session.run_batch`, or deployed with ``autostop.at``, after its end; None: it
        had none. The seconds of a deployed one are not measured: 0.

        Example:
            >>> app.batch_report is None
            True
        """
        app = self._core
        if app.batch_report is None and app.config["autostop.at"] is not None and app.status == "stopped":
            record = last_run(app.client, app.name)
            if record is not None and record.state == "finished":
                app.batch_report = report_of(app.client, app.topology, app.name, record, 0.0)
        return app.batch_report

    @property
    def batch_progress(self) -> RunProgress | None:
        """How far a bounded run is: finished partitions, and offsets to go.

        None for a stream, and before the first check.

        Example:
            >>> app.batch_progress is None
            True
        """
        return self._core.batch_progress

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers: ``host:port``, comma separated.

        Example:
            >>> host, port = session.bootstrap_servers.split(":")
        """
        return self._core.client.settings.bootstrap_servers

    def describe(self) -> TopologyDescription:
        """Return the topology as Kafka Streams' ``describe()`` prints it.

        Example:
            >>> print(app.describe())
            Topologies:
               Sub-topology: 0
                Source: words (topics: [words])
            ...
        """
        return self.topology.describe()

    def picture(self) -> Picture:
        """Return a picture of the topology with the present counts and states of its nodes and stores.

        Example:
            >>> picture = app.picture()
        """
        return picture_of(self.topology, title=f"{self.name} ({self.status})", marks=overlay_of(self._core), state=self.status)

    def __repr__(self) -> str:
        return summary_of(self._core)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        error = self.error
        error = None if error is None else with_record(self._core.client, self.name, error, self.topology)
        note = repr(self) if error is None else f"{self!r}\n{error}"
        return mimebundle(self.picture(), "\n".join([text_of(self.topology), *silent_lines(self._core)]), note=note)

    def explain(self, *, timeout: Seconds = 5.0) -> Table:
        """Return why its result may be empty or too small: one row for each question of ``docs/tasks/empty-results.md``, with its numbers.

        Records are counted by the running tasks, at rest as of the last commit. For joins a sample of the topics runs in this process.

        Args:
            timeout: seconds after which no larger sample begins.

        Example:
            >>> app.explain().rows[1][:2]
            ('Were records read?', 'words: 5 records')
        """
        return explain(self._core, seconds=as_seconds(timeout, "timeout"))

    # ---- values and stores

    def tap(self, node: object, n: int = 10, *, timeout: Seconds = 5.0) -> Records:
        """Return the next `n` values that a node forwards (a sink: receives), from the running tasks.

        Returns fewer when `timeout` expires first. A tap is attached to the tasks for that time and removed afterwards; it is
        limited in rows, bytes and rate, and changes nothing else. Values that are numbers, strings, lists or dicts stay so,
        others become their text. An application that does not run is sampled as by `Session.values`. One that was attached while another
        kernel drives it on a cluster is tapped there; on local Spark it is sampled.

        Args:
            node: its name, or the stream or table.
            n: number of values.
            timeout: seconds.

        Raises TopologyError when the application has no such node.

        Example:
            >>> app.tap("long", n=3, timeout=0.1)
        """
        seconds = as_seconds(timeout, "timeout")
        name, run = node_name(self._core, node), self._core.run_of_another_kernel() or self._core
        if run.status != "running":
            refuse_no_number(n)
            config = StreamsConfig({**self._core.client.config, **self.config})
            return sampled_values(self._core.client, self.topology, name, n, seconds, config)
        return live_tap(run, name, n, seconds)

    def tail(self, node: object, *, timeout: Seconds | None = None) -> Iterator[ReadRecord]:
        """Yield the values at a node of the running application as they pass, for `timeout` (seconds; None: without limit).

        Example:
            >>> for record in app.tail("long", timeout=0.1):
            ...     print(record.key, record.value)
        """
        seconds = None if timeout is None else as_seconds(timeout, "timeout")
        return live_tail(self._core.run_of_another_kernel() or self._core, node_name(self._core, node), seconds)

    def retries(self, node: object) -> Retries:
        """Return the records that failed in an asynchronous node and wait for another try (`on_error="retry"`), as of the last commit.

        Args:
            node: its name, or the stream.

        Raises:
            TopologyError: the application has no such asynchronous node.

        Example:
            >>> waiting = app.retries("price")                       # doctest: +SKIP
            >>> waiting.where(lambda record: record.tries > 2).drop()  # doctest: +SKIP
            >>> waiting.retry_now()                                  # doctest: +SKIP
        """
        return retries_of(self._core, node if isinstance(node, str) else node_name(self._core, node))

    @overload
    def store(self, name: str, *, as_of: object = None) -> StoreView: ...

    @overload
    def store(
        self, name: str | StoreQueryParameters, store_type: QueryableStoreType | None = None, *, as_of: object = None
    ) -> Any: ...

    def store(
        self, name: str | StoreQueryParameters, store_type: QueryableStoreType | None = None, *, as_of: object = None
    ) -> Any:
        """Return a store for reading, live while the application runs.

        Args:
            name: its name, or parameters with name and type.
            store_type: one of `QueryableStoreTypes`, or your own: what is returned has its reads, over the tasks on this host, on a cluster
                over all tasks by its query servers, and raises while a task cannot answer. None: a `StoreView`, which shows the last
                commit in any case.
            as_of: the store as it was at an earlier moment, as for `Session.sql`; None: now.

        Raises TopologyError when the topology has no store of that name; with a type `InvalidStateStoreError`.

        Example:
            >>> app.store('counts').get('a')
            2
            >>> with app.store('counts', ks.queries.QueryableStoreTypes.key_value_store()).all() as rows:
            ...     sorted(rows)
            [('a', 2), ('b', 3)]
        """
        store = name if isinstance(name, str) else name.store_name
        past = past_of(as_of)
        app = self._core if past is None else past.reader(self._core, self.topology.store(store))
        if store_type is None and isinstance(name, str):
            return StoreView(app, app.topology.store(name))
        return strict_queries_of(app, store).store(name, store_type)

    def debug(self, record: str | RecordPosition, *, calls: bool = False) -> Debugger:
        """Return a debugger for one record: a local copy of its task with the state as of the record before, stepped node by node.

        Nothing reaches the application or the broker. A record that is not committed yet, for one the record at which the application
        failed, can be debugged, too.

        Args:
            record: ``"TOPIC-PARTITION@OFFSET"`` of an input, or of an internal topic, by its name on the broker.
            calls: whether functions of asynchronous nodes whose answers are not recorded may be called again, with whatever effects they
                have.

        Raises:
            InvalidStateStoreError: no task reads the record, or what was there before it is not known any more.
            SessionFileError: the version of the application that processed the record cannot be loaded.
            IllegalStateError: the task has asynchronous nodes that are not durable, and `calls` is False.

        Example:
            >>> debugger = app.debug("orders-0@17")     # doctest: +SKIP
            >>> debugger.step()                         # doctest: +SKIP
        """
        from kstreams_repl.repl.session.views.past.debug.opening import debugger_of

        return debugger_of(self._core, record, calls=calls)

    @overload
    def why(self, what: str | RecordPosition, *, all: bool = False, calls: bool = False) -> Causes: ...

    @overload
    def why(
        self, what: str, key: object, *, window: object = None, all: bool = False, as_of: object = None, calls: bool = False
    ) -> Causes: ...

    def why(
        self,
        what: str | RecordPosition,
        key: Any = NO_KEY,
        *,
        window: object = None,
        all: bool = False,
        as_of: object = None,
        calls: bool = False,
    ) -> Causes:
        """Return the input records that made a row of a store, or a record that the application has written, with their ways there.

        Found without having been recorded: the commits with them are processed again in a local copy of their tasks. Nothing reaches the
        application or the broker. Direct causes are the record whose processing wrote the result, and the last updates of the rows of other
        tables and streams that it was joined with; of a result that a window or `suppress` held back, the record that advanced stream
        time and the last update. A repartition topic is followed to its own cause while it still has the record
        (``repartition.purge.interval.ms``). What was processed before an edit is processed again by the version of then.

        Args:
            what: name of the store, or ``"TOPIC-PARTITION@OFFSET"`` of an output record.
            key: of the row.
            window: of the row: its start, of a session ``(start, end)``; times as for `as_of`.
            all: also name all earlier records of an aggregate, those that it took back included, since its row was last deleted.
            as_of: the row as it was at an earlier commit or time, or just after a record, as for `Session.sql`; None: at the last commit.
            calls: whether functions of asynchronous nodes whose answers are not recorded may be called again, with whatever effects they
                have.

        Raises:
            InvalidStateStoreError: there is no such row or record, or what was there before it is not known any more.
            SessionFileError: the version of the application that wrote it cannot be loaded.
            IllegalStateError: the task has asynchronous nodes, the answers are not recorded, and `calls` is False.
            CallError: the application does not write the topic, or the row's window is missing, or `as_of` is given for a record.

        Example:
            >>> app.why("counts", "UA").df()               # doctest: +SKIP
            >>> app.why("alerts-0@42", all=True)           # doctest: +SKIP
        """
        from kstreams_repl.repl.session.views.past.causes.why import why

        return why(self._core, what, key, window=window, all=all, as_of=as_of, calls=calls)

    def compare(
        self,
        topology: object,
        *,
        records: int | None = None,
        start: object = None,
        end: object = None,
        calls: bool = False,
        samples: int = 20,
    ) -> Comparison:
        """Return what another topology would have made of the records that the application has processed: which rows of its outputs and
        stores differ, and the first node where they do.

        Both topologies process the same records, from the state as of one commit, in this process. Nothing reaches the application, the
        broker or anything else: what `peek` and `foreach` do is left out. What differs between two runs of the unchanged topology is
        noise, and set apart.

        Args:
            topology: the builder (changed meanwhile), a topology, a stream or table.
            records: about how many records; the newest commit with as many since is the base, or the earliest that is known. None: 100,000.
            start: the base itself, as `as_of` of `Session.sql`; instead of `records`.
            end: the commit where it ends, likewise; None: the last one.
            calls: whether functions of asynchronous nodes may be called where no answer is recorded. Both sides get the same answers.
            samples: how many rows that differ are kept of each output and store.

        Raises:
            TopologyError: the topology does not fit the cluster.
            InvalidStateStoreError: no commit, or not the records since, are known any more.
            IllegalStateError: a function of an asynchronous node would be called, and `calls` is False.

        Example:
            >>> found = app.compare(builder, records=10_000)     # doctest: +SKIP
            >>> found.equal, found.first                         # doctest: +SKIP
            (True, None)
        """
        from kstreams_repl.repl.session.views.compare.of_application import compare_definition

        return compare_definition(self._core, topology, records=records, start=start, end=end, calls=calls, samples=samples)

    def diff(self, store: str, start: object, end: object = None) -> SqlResult:
        """Return the rows of a store that differ between two moments: ``added``, ``gone``, or ``changed``, with both values.

        Args:
            store: its name.
            start, end: the moments, as `as_of` of `Session.sql`; `end` None: now.

        Raises:
            InvalidStateStoreError: the state as of one of them is not known any more.

        Example:
            >>> app.diff("counts", start="10 minutes ago")     # doctest: +SKIP
        """
        from kstreams_repl.repl.session.views.past.store_diff import store_diff

        return store_diff(self._core, self.topology.store(store), start, end)

    @property
    def stores(self) -> dict[str, StoreView]:
        """All stores by name.

        Example:
            >>> sorted(app.stores)
            ['counts']
        """
        return {builder.name: StoreView(self._core, builder) for builder in all_stores(self.topology)}

    def query(self, request: StateQueryRequest, *, timeout: Seconds = 0.0) -> StateQueryResult:
        """Return the answers of the tasks on this host, on a cluster of all tasks, to a query, by partition, with their positions.

        Args:
            request: what is asked.
            timeout: seconds to wait for partitions behind the request's position bound; 0: they answer NOT_UP_TO_BOUND.

        Raises:
            UnknownStateStoreError: there is no such store.
            StreamsNotStartedError: the application was never started on this host.

        Example:
            >>> request = ks.queries.StateQueryRequest.in_store('counts').with_query(ks.queries.KeyQuery.with_key('a'))
            >>> app.query(request).only_partition_result.result
            2
        """
        seconds = as_seconds(timeout, "timeout")
        return strict_queries_of(self._core, request.store_name).query(request, timeout=seconds)

    def sql(
        self,
        query: str,
        *,
        topic_limit: int | None = None,
        store_limit: int | None = None,
        start: object = None,
        end: object = None,
        as_of: object = None,
        **frames: object,
    ) -> SqlResult:
        """Run a SELECT, as `Session.sql` with its arguments. The name of a store alone means ``SELECT * FROM`` it.

        Example:
            >>> app.sql('SELECT key, value FROM counts ORDER BY key').fetchall()
            [('a', 2), ('b', 3)]
        """
        if query.strip() in self.stores:
            query = f"SELECT * FROM {quote_identifier(f'application {self.name}')}.{quote_identifier(query.strip())}"
        app = self._core
        return run_query(
            app.client,
            app.registry,
            query,
            frames=frames,
            topic_limit=topic_limit,
            store_limit=store_limit,
            start=start,
            end=end,
            past=past_of(as_of),
        )

    # ---- queries from elsewhere

    def metadata_for_all_clients(self) -> list[StreamsMetadata]:
        """Return the hosts of the running application, each with its stores and partitions, and its standby copies.

        The answer comes from the application's journal, which a thread follows; it contacts no host.

        Example:
            >>> [host.state_store_names for host in app.metadata_for_all_clients()]     # doctest: +SKIP
            [frozenset({'counts'})]
        """
        return self._core.discovery.metadata_for_all_clients()

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the hosts that hold partitions of a store; all hosts, for a global store.

        Args:
            store: its name.

        Raises:
            InvalidStateStoreError: the application has no such store.

        Example:
            >>> app.streams_metadata_for_store("counts")     # doctest: +SKIP
        """
        return self._core.discovery.streams_metadata_for_store(store)

    def query_metadata_for_key(
        self, store: str, key: object, *, serializer: object = None, partitioner: StreamPartitioner | None = None
    ) -> KeyQueryMetadata:
        """Return the hosts that have the row of a key: with the active task, and with standby copies.

        Args:
            store: name of the store.
            key: the key; of a window or session store the plain one.
            serializer: serde of the key, or its name; None: the store's own.
            partitioner: function (topic, key, value, partitions) by which the input is partitioned; None: Kafka's default.

        Raises:
            InvalidStateStoreError: the application has no such store.

        Example:
            >>> app.query_metadata_for_key("counts", "a").partition     # doctest: +SKIP
            2
        """
        return self._core.discovery.query_metadata_for_key(store, key, serializer=serializer, partitioner=partitioner)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return for each store and partition on this host how many records its copy is behind the changelog.

        Example:
            >>> app.all_local_store_partition_lags()["counts"][0].offset_lag     # doctest: +SKIP
            0
        """
        return partition_lags(self._core)

    def serve(
        self,
        port: int = 0,
        *,
        bind: str = "127.0.0.1",
        certfile: str | None = None,
        keyfile: str | None = None,
        insecure: bool = False,
    ) -> QueryServer:
        """Start a server for the state of this application, as a process of its own, and return it. It answers for every host.

        Calling it again returns the server that runs; where the instances on this host keep one (``application.server``), that one.

        Args:
            port: where it listens; 0: a free one.
            bind: the address; beyond loopback it needs TLS or `insecure`.
            certfile, keyfile: PEM files for TLS.
            insecure: let others reach it without TLS, on a network that you trust.

        Raises:
            DeployError: the application was never started.
            QueryServerError: it did not start; the hint names its log.
            ConfigError: the address needs TLS.

        Example:
            >>> server = app.serve()                                    # doctest: +SKIP
            >>> ks.queries.connect(server.url, token=server.token_path).get("counts", "a").value     # doctest: +SKIP
            2
        """
        return serve(self._core, HostInfo(bind, port), certfile, keyfile, insecure)

    @property
    def query_token_path(self) -> str:
        """The file with the tokens of its query servers, which only its owner can read.

        Example:
            >>> app.query_token_path.endswith("query-tokens.json")     # doctest: +SKIP
            True
        """
        return self._core.query_token_path


def handle_on(core: ApplicationCore) -> Application:
    """Return the user's handle on an application, always the same one."""
    if core.handle is None:
        core.handle = Application(core)
    assert isinstance(core.handle, Application)
    return core.handle
