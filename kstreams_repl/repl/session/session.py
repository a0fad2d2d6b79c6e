"""`Session`: one cluster, one Spark session and the applications of one notebook. Each part starts when it is first needed.

Actors: the cluster (given, or an embedded broker), the Spark session (given, or a local one that the first deploy starts),
applications. Invariants: nothing runs after `close`, which process exit also calls. After a killed process, its broker and
detached drivers end through their supervisor and the driver's pipe.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from kstreams_repl.engine.call_checks import checked_calls
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, ensure_reachable
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.application import Application, handle_on
from kstreams_repl.repl.session.application.batch.batch_run import run_batch
from kstreams_repl.repl.session.application.detached.mailbox import mailboxes
from kstreams_repl.repl.session.application.forks.dropping import drop_orphans, drop_own
from kstreams_repl.repl.session.application.forks.fork import Forks, forks_of
from kstreams_repl.repl.session.application.life.registry import ApplicationRegistry
from kstreams_repl.repl.session.application.savepoints.savepoints import savepoints_table
from kstreams_repl.repl.session.application.starting.attach import attach
from kstreams_repl.repl.session.application.starting.deploy import at_savepoint, deploy, preview
from kstreams_repl.repl.session.applications import Applications
from kstreams_repl.repl.session.cleanup import Cleanup, cleanup_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.logs import session_logs
from kstreams_repl.repl.session.progress_messages import Report, default_report
from kstreams_repl.repl.session.reset import Reset, refuse_both, reset_of
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.session_file import SessionFiles
from kstreams_repl.repl.session.shutdown import end_all, meanwhile
from kstreams_repl.repl.session.spark_host import SparkHost
from kstreams_repl.repl.session.topic_access import TopicAccess
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.types import SparkMaster

if TYPE_CHECKING:
    from kstreams_repl.host.spark.startup.spark_session import SparkSession


@checked_calls
class Session(TopicAccess):
    """A connection to a cluster and what runs on it. Get one from `kstreams_repl.connect`.

    Example:
        >>> session = kstreams_repl.connect()                                     # doctest: +SKIP
        >>> session.produce("words", ["to", "be", "or", "not", "to", "be"])        # doctest: +SKIP
        6
        >>> session.values("words", n=2)                                             # doctest: +SKIP
    """

    def __init__(
        self,
        settings: ClientSettings | None,
        *,
        spark: object = None,
        master: SparkMaster = None,
        config: Mapping[str, object] | None = None,
        directory: SessionDirectory | None = None,
        client_settings: Mapping[str, object] | None = None,
        report: Report = default_report,
    ) -> None:
        self.client = ClusterClient(
            settings,
            spark=SparkHost(spark, master),
            config=config,
            directory=directory,
            client_settings=client_settings,
            report=report,
        )
        """The cluster, Spark, directory and settings, which the applications share."""
        self.config = self.client.config
        self.directory = self.client.directory
        self.topic_configs = self.client.topic_configs
        """Settings of the topics that this session creates."""
        self._applications = ApplicationRegistry(self.client)

    # ---- the cluster

    @property
    def settings(self) -> ClientSettings:
        """Client settings with the addresses of the brokers. Starts the embedded broker if it is not running.

        Example:
            >>> session.settings.bootstrap_servers == session.bootstrap_servers
            True
        """
        return self.client.settings

    @property
    def started(self) -> bool:
        """Whether a cluster can be queried without starting one.

        Example:
            >>> session.started
            True
        """
        return self.client.started

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers: ``host:port``, comma separated.

        Example:
            >>> host, port = session.bootstrap_servers.split(":")
        """
        return self.settings.bootstrap_servers

    @property
    def admin(self) -> Admin:
        """Client for the topics, offsets and groups of the cluster.

        Example:
            >>> session.admin.partitions('words')
            2
        """
        return self.client.admin

    @property
    def closed(self) -> bool:
        """Whether it was closed.

        Example:
            >>> session.closed
            False
        """
        return self.client.closed

    @property
    def variables(self) -> Mapping[str, Any]:
        """The notebook's variables: SQL looks up dataframes there last.

        Example:
            >>> session.variables = globals()
        """
        return self.client.variables

    @variables.setter
    def variables(self, variables: Mapping[str, object]) -> None:
        self.client.variables = variables

    def start(self) -> Session:
        """Start the embedded broker now, or check that the given cluster answers.

        Raises BrokerUnavailableError, EmbeddedBrokerError and the like otherwise.

        Example:
            >>> session.start() is session
            True
        """
        ensure_reachable(self.settings)
        return self

    # ---- applications

    @property
    def applications(self) -> Applications:
        """Applications of this session by name. The display also lists those in its directory that are not attached (`left`).

        Example:
            >>> session.applications
        """
        attached = {name: handle_on(app) for name, app in self._applications.items()}
        return Applications(attached, None if self.closed or self.directory.temporary else self.client.state_root)

    @property
    def forks(self) -> Forks:
        """The forks of this session's applications by id, ``<application>.<fork>``. Those whose process is gone are dropped.

        Example:
            >>> session.forks
            Forks()
        """
        drop_orphans(self.client, self._applications)
        return forks_of(self.client, self._applications, handle_on)

    @property
    def versions(self) -> Table:
        """The versions of all applications of this session as a tree, with their forks: what runs, since when, and what was promoted.

        Example:
            >>> session.versions
        """
        handles = [handle_on(app) for app in self._applications.values() if app.forked is None]
        rows = [(app.name, *row) for app in handles for row in app.versions.table().rows]
        return Table.of(("application", "version", "since", ""), rows, note="" if rows else "no applications")

    def deploy(
        self,
        topology: object,
        name: str,
        *,
        config: Mapping[str, object] | None = None,
        start: object = None,
        detached: bool = False,
        create_topics: bool | Mapping[str, int] = False,
        from_savepoint: object = None,
        share_outputs: bool = False,
        take_over: bool = False,
        **settings: object,
    ) -> Application:
        """Start a topology as an application. Returns at once, after the checks that need no Spark.

        Deploying under the name of an application that is stopped, paused or failed continues from its committed offsets and
        state, if the topology fits them.

        Args:
            topology: a builder, a stream or table of it, or a topology.
            name: the application id: prefix of its topics, its consumer group, its state.
            config: settings by their Kafka Streams names.
            start: where partitions without a committed offset begin: "earliest", "latest", or a time (ms, datetime or ISO text).
            detached: drive it in a process of its own, which continues when this process ends; `attach` finds it. It needs a
                broker and a directory that outlive this process.
            create_topics: True creates missing topics that the topology only writes, with 4 partitions each; ``{"name":
                partitions}`` creates those named.
            from_savepoint: begin at a savepoint (`Application.savepoint`), with its state and offsets: its name,
                ``"application/name"``, its directory, or the `Savepoint`. The application must have no state of its own.
            share_outputs: with `from_savepoint`: write also to topics and tables that another application writes, whose readers then
                get results twice.
            take_over: end another program's run of this application, also of another topology: that program's application fails.
            **settings: the same as `config` with underscores: ``processing_guarantee="exactly_once_v2"``.

        Raises:
            UnknownTopicError, TopologyError: the topology does not fit the cluster, or the state and offsets that the application
                left there; the hint lists the remedies.
            ConfigError: an unknown setting.
            AlreadyOwnedError: another program runs it, with another topology or in this directory; or, with `from_savepoint`,
                another application that is not stopped writes what this one would write.
            DeployError: an application of that name is running, or has state of its own (with `from_savepoint`).
            DetachedApplicationError: `detached`, but the broker or the directory ends with this process.

        Example:
            >>> app = session.deploy(builder, "letters", processing_guarantee="exactly_once_v2")
            >>> app.stop().status == "stopped"
            True
        """
        given = {**(config or {}), **{key.replace("_", "."): value for key, value in settings.items()}}
        drop_orphans(self.client, self._applications)
        app = deploy(
            self.client,
            self._applications,
            topology,
            name,
            given,
            start,
            detached=detached,
            create_topics=create_topics,
            beginning=None if from_savepoint is None else at_savepoint(self.client, self._applications, from_savepoint, name),
            share_outputs=share_outputs,
            take_over=take_over,
        )
        return handle_on(app)

    def run_batch(
        self,
        topology: object,
        name: str,
        *,
        stop_at: object = "eol",
        on_end: str = "keep",
        config: Mapping[str, object] | None = None,
        start: object = None,
        create_topics: bool | Mapping[str, int] = False,
        **settings: object,
    ) -> Application:
        """Run a topology up to the present end of its input, exactly, and return when it has ended (docs/tasks/batch.md).

        The stop offsets are fixed when the run begins. The next run continues there: several runs are one streaming run. After
        a failure the same call continues to the same stop offsets. Without new input nothing is started. Under the same name
        `deploy` continues as a stream.

        Args:
            topology: a builder, a stream or table of it, or a topology.
            name: the application id.
            stop_at: "eol", a time, ``"records:1000"`` (offsets per partition), or ``{topic: {partition: offset}}``.
            on_end: "keep" open windows, suppressed results and outer joins for the next run, or "close_windows" and emit them.
            config: settings by their Kafka Streams names.
            start: where partitions without a committed offset begin, as for `deploy`.
            create_topics: as for `deploy`.
            **settings: the same as `config` with underscores.

        Returns:
            The application, at rest, with a `batch_report`.

        Raises:
            UnknownTopicError, TopologyError, ConfigError, DeployError: as `deploy`; or the topology writes and reads the same topic.
            ApplicationFailedError and others: the application failed; its own error is raised.
            WaitInterrupted: Ctrl-C; the run continues.

        Example:
            >>> app = session.run_batch(builder, "daily-letters")
            >>> app.batch_report.records_in
            5
            >>> session.run_batch(builder, "daily-letters").batch_report.state
            'nothing new'
        """
        given = {**(config or {}), **{key.replace("_", "."): value for key, value in settings.items()}}
        for key, value, default in (("autostop.at", stop_at, "eol"), ("repl.autostop.on.end", on_end, "keep")):
            if key in given and value not in (default, given[key]):
                raise ConfigError(f"{key} is {given[key]!r} in the settings and {value!r} as argument", hint="give one of them", key=key)
            given.setdefault(key, value)
        return handle_on(run_batch(self.client, self._applications, topology, name, given, start, create_topics=create_topics))

    def savepoints(self) -> Table:
        """Return the savepoints in this session's directory, by application and time.

        Example:
            >>> session.savepoints()
        """
        return savepoints_table(self.directory.path)

    @property
    def detached(self) -> dict[str, str]:
        """States, by application name, of the applications that processes of their own drive now.

        Lists those in this session's directory, attached or not.

        Example:
            >>> session.detached
            {}
        """
        if self.directory.temporary:
            return {}
        return {box.application: driver.state for box in mailboxes(self.client.state_root) if (driver := box.driven) is not None}

    def plan(self, topology: object, name: str, *, config: Mapping[str, object] | None = None, start: object = None) -> Table:
        """Return what `deploy` would create and run: internal topics, tasks, starting offsets if `start` is a time.

        Creates nothing.

        Raises:
            UnknownTopicError, TopologyError, ConfigError: as `deploy`.

        Example:
            >>> session.plan(builder, 'word-count')
        """
        return preview(self.client, self._applications, topology, name, config or {}, start)

    def attach(
        self, name: str, topology: object = None, *, config: Mapping[str, object] | None = None, trust: bool = False
    ) -> Application:
        """Find an existing application, for example after a kernel restart, with its versions, offsets and state.

        `resume()` continues it.

        Args:
            topology: the topology to run; it is compared with the one that ran, as by `deploy`. None: the text in the session
                file, if the journal confirms its hash.
            config: settings that differ from those it was deployed with.
            trust: take the text from the journal when there is no session file. Anyone who can write to that topic can then run
                code in this process.

        Raises:
            KStreamsError: there is no application of that name on the cluster.
            SessionFileError: the session file is missing, was changed, or is writable by others; none of its text was executed.
            TopologyError: rows of a store would be read wrongly.

        Example:
            >>> session.attach("word-count").name
            'word-count'
        """
        drop_orphans(self.client, self._applications)
        known = self._applications.get(name)
        if known is not None and not known.outdated:
            known.definition = known.definition if topology is None else topology  # the running code stays
            return handle_on(known)
        return handle_on(attach(self.client, self._applications, name, topology, config or {}, trust=trust))

    def cleanup(self, name: str, *, dry_run: bool = False) -> Cleanup:
        """Delete what belongs to an application: internal topics, group, local state. Return what was deleted.

        Raises KStreamsError when the application is running.

        Args:
            name: name of the application.
            dry_run: only list it; `apply()` of the answer deletes it.

        Example:
            >>> session.cleanup('word-count', dry_run=True)
        """
        found = cleanup_of(self.client, self._applications, name)
        if dry_run:
            return found
        if name in self._applications:
            self._applications[name].stop()
            del self._applications[name]
        return found.apply()

    def reset(
        self,
        name: str,
        *,
        input_topics: Collection[str] | None = None,
        to: object = None,
        shift_by: int | None = None,
        delete_stop_offsets: bool = False,
        state: bool | None = None,
        dry_run: bool = False,
    ) -> Reset:
        """Let an application begin again with empty state, as Kafka Streams' reset tool. Return what was changed.

        Its repartition and changelog topics and its local state are deleted, and its offsets are set. Topics of the user's keep
        what is in them.

        Args:
            name: name of the application.
            input_topics: topics whose offsets are set; None: all that it has offsets of.
            to: "earliest" (the default), "latest", an offset, or a time (datetime or ISO text).
            shift_by: move each committed offset by so many instead.
            delete_stop_offsets: drop the stop offsets of an open bounded run, so that the next run takes new ones.
            state: False: only `delete_stop_offsets`; state and offsets stay. None: False if nothing else is asked for.
            dry_run: only list it; `apply()` of the answer does it.

        Raises:
            KStreamsError: the application is running, or there is none of that name.
            UnknownTopicError: it has no offsets of a topic that was named.

        Example:
            >>> session.reset('word-count', to='2013-03-01', dry_run=True)
        """
        refuse_both(to, shift_by)
        if state is None:
            state = not delete_stop_offsets or not (input_topics is to is shift_by is None)
        found = reset_of(
            self.client,
            self._applications,
            name,
            input_topics=input_topics,
            to="earliest" if to is None else to,
            shift_by=shift_by,
            delete_stop_offsets=delete_stop_offsets,
            state=state,
        )
        if dry_run:
            return found
        if name in self._applications:
            self._applications[name].stop()
            del self._applications[name]
        return found.apply()

    def logs(self, name: str | None = None, *, n: int = 20) -> Table:
        """Return the last `n` lines of the broker's and Spark's logs, and the warnings and failures of applications.

        Args:
            name: one application; None: all.
            n: lines per log.

        Example:
            >>> session.logs(n=5)
        """
        return session_logs(self.client, self._applications, name, n)

    @property
    def spark(self) -> SparkSession:
        """The Spark session that hosts this session's applications. Starts it if it is not running."""
        self.client.ensure_open()
        return self.client.spark.session

    # ---- the end

    def close(self) -> None:
        """Stop the applications (detached ones continue), Spark (unless it was given) and the embedded broker.

        Temporary files are removed. Closing twice does nothing; after an interrupt, a second call runs the remaining steps. A process
        that was forked from this one closes nothing: everything stays with the process that connected.

        Example:
            >>> session.close()
        """
        if self.closed:
            return
        broker = self.client.broker
        broker_ended = broker is not None and broker.has_ended
        running = [app for app in self._applications.values() if not app.detached and app.status not in ("created", "stopped")]
        steps: list[Callable[[], object]] = []
        if not broker_ended and not (broker is not None and self.directory.temporary):  # else they are gone with the broker
            steps.append(partial(drop_own, self.client, self._applications))
            running = [app for app in running if app.forked is None]
        steps += [app.abandon if broker_ended else app.stop for app in running]
        steps += [] if broker_ended else [app.counts_reader.settle for app in self._applications.values() if app.status != "created"]
        spark_steps = self.client.spark.closing_steps()
        steps += spark_steps if broker is None else [meanwhile(spark_steps, broker.stop)]
        end_all([*steps, self.client.directory.close, self.client.close])

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except Exception as closing:
            if error is None:
                raise
            error.add_note(f"while closing: {closing}")  # the caller should see the original error

    def __reduce__(self) -> NoReturn:  # a copy on a worker would start a broker of its own
        raise TypeError("a Session cannot be pickled: it belongs to the process that opened it")

    def __repr__(self) -> str:
        if self.closed:
            return "Session(closed)"
        embedded = f"embedded Kafka at {self.bootstrap_servers}" if self.started else "embedded Kafka, not started"
        where = self.bootstrap_servers if self.client.broker is None else embedded
        apps = ", ".join(f"{app.name} {app.standing}" for app in self._applications.values())
        return f"Session({where}, {apps or 'no applications'})"

    @property
    def master(self) -> str | None:
        """The Spark master that was requested, or that of the given Spark session; None: local.

        Example:
            >>> session.master
        """
        return self.client.spark.master

    @property
    def files(self) -> SessionFiles:
        """Session files with the source texts of what ran.

        Example:
            >>> session.files.names()
        """
        return self.client.files
