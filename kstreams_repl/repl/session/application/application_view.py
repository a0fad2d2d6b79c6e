"""What an application shows: status, error, counts, metrics, stores, values at its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from kstreams_repl.engine.call_checks import checked_calls
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.describe import TopologyDescription
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.host.kafka.reading import FEW_OFFSETS
from kstreams_repl.host.spark.failures.failure_translation import failure_from
from kstreams_repl.pictures.picture import Picture, picture_of
from kstreams_repl.pictures.retries import Retries
from kstreams_repl.repl.inspection.result import SqlResult
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.session.application.batch.batch_report import BatchReport, last_run, report_of, written_tables
from kstreams_repl.repl.session.application.edits.versions import Version, VersionHistory
from kstreams_repl.repl.session.application.life.control_thread import Work
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.application.query_view import QueryView
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.source.error_source import with_source
from kstreams_repl.repl.session.topics.read import refuse_no_number
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.repl.session.views.counts.consumer_lag import remaining
from kstreams_repl.repl.session.views.counts.counts_reader import CountsReader
from kstreams_repl.repl.session.views.counts.metrics_view import MetricsView
from kstreams_repl.repl.session.views.counts.record_counts import Counts, NodeRate
from kstreams_repl.repl.session.views.picture.failed_record import position_of, record_at, with_record
from kstreams_repl.repl.session.views.picture.node_retries import retries_of
from kstreams_repl.repl.session.views.picture.picture_overlay import overlay_of
from kstreams_repl.repl.session.views.stores.local_queries import strict_queries_of
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from kstreams_repl.repl.session.views.tables.sql_catalog import all_stores
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.repl.session.views.values.journaled_run import JournaledRun
from kstreams_repl.repl.session.views.values.live_taps import TappedApplication, live_tail, live_tap, node_name
from kstreams_repl.repl.session.views.values.sample_run import sampled_values
from kstreams_repl.serving.state_query import StateQueryRequest, StateQueryResult
from kstreams_repl.serving.store_types import QueryableStoreType, StoreQueryParameters
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import KStreamsError, TaskMigratedError

if TYPE_CHECKING:
    from kstreams_repl.host.instance.reports.run_progress import RunProgress
    from kstreams_repl.host.spark.deployment import Deployment
    from kstreams_repl.host.spark.instance_reports import ApplicationReport
    from kstreams_repl.repl.session.application.detached.client import DetachedDeployment


@checked_calls
class ApplicationView(QueryView):
    """The read-only part of `Application`."""

    name: str
    topology: Topology
    config: StreamsConfig
    client: ClusterClient
    detached: bool
    stale: frozenset[str]
    running_code: Mapping[str, Any]
    _applications: MutableMapping[str, Any]
    _batch_report: BatchReport | None = None
    _deployment: Deployment | DetachedDeployment
    _history: VersionHistory
    _found: str | None
    _claimed: bool
    """Whether it was attached and executors of a cluster had claimed its instances: another kernel may drive it."""
    _starting: Work | None
    _start_error: BaseException | None
    counts_reader: CountsReader

    @property
    def versions(self) -> list[Version]:
        """The versions so far, the present one last: number, time, source text. They are kept across kernel restarts.

        Example:
            >>> [version.number for version in app.versions]
            [1]
        """
        return list(self._history.versions)

    @property
    def status(self) -> ApplicationState:
        """The status under this kernel, an `ApplicationState`: a string with Kafka Streams' names.

        A failed application stays failed until it is started again.

        Example:
            >>> app.status == "running"
            True
        """
        return ApplicationState(self._status())

    def _status(self) -> str:
        work = self._starting
        if work is not None and not work.done:
            return ApplicationState.STARTING
        if self._start_error is not None:
            return ApplicationState.FAILED
        status = str(self._deployment.status)
        if status == "stopped" and self._deployment.error is not None:
            return ApplicationState.FAILED
        return self._found if status == "created" and self._found is not None else status

    @property
    def standing(self) -> str:
        """The status as display text; also says whether it is detached, or that another kernel runs it on a cluster.

        Example:
            >>> app.standing
        """
        if self.detached:
            return f"{self.status}, detached"
        try:
            run = self._run_of_another_kernel() if self._claimed else None
        except KStreamsError:  # the cluster does not answer, so nothing is known of the other kernel
            run = None
        return "running under another kernel" if run is not None and run.status == "running" else self.status

    @property
    def log(self) -> Path | None:
        """Log file of the process that drives a detached application; None: this process drives it.

        Example:
            >>> app.log
        """
        driver = self._driver_process
        return None if driver is None else driver.mailbox.log

    @property
    def outdated(self) -> bool:
        """Whether another kernel has edited this detached application since it was attached, or another program has taken it over;
        `Session.attach` then reloads it.

        Example:
            >>> app.outdated
            False
        """
        driver = self._driver_process
        edited = driver is not None and bool(self.versions) and not driver.is_at(self.versions[-1].number)
        return edited or isinstance(self._deployment.error, TaskMigratedError)

    @property
    def error(self) -> KStreamsError | None:
        """The error with which it failed, the user's line first; None: it has not failed, or is being started again.

        Example:
            >>> app.error is None
            True
        """
        if self.status != ApplicationState.FAILED:
            return None
        if isinstance(self._start_error, KStreamsError):
            return with_source(self._start_error)
        error = self._deployment.error
        return None if error is None else with_source(error)

    @property
    def failed_record(self) -> ReadRecord | None:
        """The source record at which it failed, decoded as far as possible.

        None when it has not failed, or not at a record that still exists.

        Example:
            >>> app.failed_record is None
            True
        """
        position = position_of(self.error)
        return None if position is None else record_at(self.client, position)

    @property
    def reports(self) -> ApplicationReport:
        """Records, rate, lag and restore progress of each instance and task, as last reported.

        Example:
            >>> app.reports.records
            5
        """
        return self._deployment.reports

    @property
    def restarts(self) -> list[str]:
        """One line for each restart after its worker processes were ended from outside.

        Example:
            >>> app.restarts
            []
        """
        driver = self._driver_process
        return list(cast("Deployment", self._deployment).restarts.history) if driver is None else driver.restarts

    @property
    def metrics(self) -> MetricsView:
        """Its metrics, under Kafka Streams' names (docs/reference/metrics.md). After an orderly end the last values stay.

        Example:
            >>> app.metrics.total('records-consumed-total')
        """
        return MetricsView(self.name, self._deployment.metrics)

    @property
    def counts(self) -> Counts:
        """Counts of records at its nodes since it was made, and its lag; at rest, as of the last commit.

        Waits at most 1.5 s for the broker.

        Example:
            >>> app.counts.records, app.counts.lag
            (5, 0)
        """
        return self.counts_reader.read()

    @property
    def batch_report(self) -> BatchReport | None:
        """What the last bounded run of this object did: of `Session.run_batch`, or deployed with ``autostop.at``, after its end; None: it
        had none. The seconds of a deployed one are not measured: 0.

        Example:
            >>> app.batch_report is None
            True
        """
        if self._batch_report is None and self.config["autostop.at"] is not None and self.status == "stopped":
            record = last_run(self.client, self.name)
            if record is not None and record.state == "finished":
                topology, tables = self.topology, written_tables(self.topology, self.name, record, self.client.report)
                self._batch_report = report_of(self.client.admin, topology, self.name, record, 0.0, tables)
        return self._batch_report

    @batch_report.setter
    def batch_report(self, report: BatchReport) -> None:
        self._batch_report = report

    @property
    def batch_progress(self) -> RunProgress | None:
        """How far a bounded run is: finished partitions, and offsets to go.

        None for a stream, and before the first check.

        Example:
            >>> app.batch_progress is None
            True
        """
        return None if self.detached else cast("Deployment", self._deployment).completion

    def remaining(self) -> int:
        """Return the number of records that are not processed and committed yet: on its topics, repartition topics included, and in
        asynchronous nodes, where they wait for a call or for another try.

        Example:
            >>> app.remaining()
            0
        """
        return self._remaining()

    def _remaining(self, *, most: int = FEW_OFFSETS) -> int:
        return remaining(self.client.admin, self.client.counter, self.name, self.topology, most=most).total

    def node_rates(self) -> dict[str, NodeRate]:
        """Rates of the nodes, as in `counts.nodes`.

        Example:
            >>> app.node_rates()
        """
        return dict(self.counts.nodes)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers: ``host:port``, comma separated.

        Example:
            >>> host, port = session.bootstrap_servers.split(":")
        """
        return self.client.settings.bootstrap_servers

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
        return picture_of(self.topology, title=f"{self.name} ({self.status})", marks=overlay_of(self), state=self.status)

    @overload
    def store(self, name: str) -> StoreView: ...
    @overload
    def store(self, name: str | StoreQueryParameters, store_type: QueryableStoreType | None = None) -> Any: ...
    def store(self, name: str | StoreQueryParameters, store_type: QueryableStoreType | None = None) -> Any:
        """Return a store for reading, live while the application runs.

        Args:
            name: its name, or parameters with name and type.
            store_type: one of `QueryableStoreTypes`, or your own: what is returned has its reads, over the tasks on this host, on a cluster
                over all tasks by its query servers, and raises while a task cannot answer. None: a `StoreView`, which shows the last
                commit in any case.

        Raises TopologyError when the topology has no store of that name; with a type `InvalidStateStoreError`.

        Example:
            >>> app.store('counts').get('a')
            2
            >>> with app.store('counts', ks.queries.QueryableStoreTypes.key_value_store()).all() as rows:
            ...     sorted(rows)
            [('a', 2), ('b', 3)]
        """
        if store_type is None and isinstance(name, str):
            return StoreView(self, self.topology.store(name))
        store = name if isinstance(name, str) else name.store_name
        return strict_queries_of(self, store).store(name, store_type)

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
        return strict_queries_of(self, request.store_name).query(request, timeout=seconds)

    @property
    def stores(self) -> dict[str, StoreView]:
        """All stores by name.

        Example:
            >>> sorted(app.stores)
            ['counts']
        """
        return {builder.name: StoreView(self, builder) for builder in all_stores(self)}

    def sql(
        self,
        query: str,
        *,
        topic_limit: int | None = None,
        store_limit: int | None = None,
        start: Any = None,
        end: Any = None,
        **frames: object,
    ) -> SqlResult:
        """Run a SELECT, as `Session.sql` with its arguments. The name of a store alone means ``SELECT * FROM`` it.

        Example:
            >>> app.sql('SELECT key, value FROM counts ORDER BY key').fetchall()
            [('a', 2), ('b', 3)]
        """
        if query.strip() in self.stores:
            query = f"SELECT * FROM {quote_identifier(f'application {self.name}')}.{quote_identifier(query.strip())}"
        return run_query(
            self.client, self._applications, query, frames=frames, topic_limit=topic_limit, store_limit=store_limit, start=start, end=end
        )

    def tap(self, node: Any, n: int = 10, *, timeout: Seconds = 5.0) -> Records:
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
        name, run = node_name(self, node), self._run_to_tap()
        if run.status != "running":
            refuse_no_number(n)
            config = StreamsConfig({**self.client.config, **self.config})
            return sampled_values(self.client, self.topology, name, n, seconds, config)
        return live_tap(run, name, n, seconds)

    def tail(self, node: Any, *, timeout: Seconds | None = None) -> Iterator[ReadRecord]:
        """Yield the values at a node of the running application as they pass, for `timeout` (seconds; None: without limit).

        Example:
            >>> for record in app.tail("long", timeout=0.1):
            ...     print(record.key, record.value)
        """
        seconds = None if timeout is None else as_seconds(timeout, "timeout")
        return live_tail(self._run_to_tap(), node_name(self, node), seconds)

    def _run_to_tap(self) -> TappedApplication:
        """Return this application, or its run under another kernel if this one has attached it and not started it."""
        return self._run_of_another_kernel() or self

    def _run_of_another_kernel(self) -> JournaledRun | None:
        if self.detached or self._found is None or self._deployment.status != "created":
            return None
        if journal_topic_name(self.name) not in self.client.admin.topics():
            return None
        return JournaledRun(self.name, self.config, self.client, self._follow())

    def retries(self, node: Any) -> Retries:
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
        return retries_of(self, node if isinstance(node, str) else node_name(self, node))

    @property
    def generation(self) -> int:
        """The generation of the application: which start, resume, edit or take-over this is.

        Example:
            >>> app.generation >= 1
            True
        """
        plan = self._deployment.plan
        return 0 if plan is None else plan.generation

    @property
    def current(self) -> Any:
        """The session's object for this application: itself, unless it was deployed or attached again since.

        Example:
            >>> app.current is app
            True
        """
        return self._applications.get(self.name, self)

    def _start_failed(self, error: BaseException) -> None:
        self._start_error = failure_from(self.name, error)

    def _error_with_record(self) -> KStreamsError | None:
        """Return the error, with the record that caused it, which is read from the broker."""
        error = self.error
        return None if error is None else with_record(self.client, self.name, error, self.topology)

    @property
    def _driver_process(self) -> DetachedDeployment | None:
        """The client of the process that drives a detached application; None: this process drives it."""
        return cast("DetachedDeployment", self._deployment) if self.detached else None
