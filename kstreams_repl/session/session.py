"""`Session`: one cluster, one Spark, the applications of one notebook. Everything starts when it is first needed.

Actors: the cluster (given, or an embedded broker), the Spark session (given, or a local one that the first deploy starts), applications.
Invariants: nothing runs after `close`, which exit calls too; what a killed process leaves ends by itself (supervisor, driver's pipe).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from kstreams_repl import serdes as serde_library
from kstreams_repl.config import StreamsConfig
from kstreams_repl.display.table import Table
from kstreams_repl.inspection import Limits, SqlResult, run_sql
from kstreams_repl.instance.state_directory import state_root
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings, ensure_reachable
from kstreams_repl.session.application import Application
from kstreams_repl.session.attaching import attached
from kstreams_repl.session.broker import SessionBroker
from kstreams_repl.session.cleanup import Cleanup, cleanup_of
from kstreams_repl.session.deploying import begin_at, deploy, is_time, refuse_misfit
from kstreams_repl.session.detached.mailbox import mailboxes
from kstreams_repl.session.directory import SessionDirectory
from kstreams_repl.session.driving import application_of, refuse_closed
from kstreams_repl.session.ending import end_all
from kstreams_repl.session.known_serdes import KnownSerdes
from kstreams_repl.session.logs import session_logs
from kstreams_repl.session.peeking import peek
from kstreams_repl.session.planned import planned
from kstreams_repl.session.producing import TopicProducer, milliseconds, parts_of
from kstreams_repl.session.progress import Report, default_report
from kstreams_repl.session.reading_topics import read_records, topics_table
from kstreams_repl.session.recording_topics import record_topics
from kstreams_repl.session.records import Records
from kstreams_repl.session.samples import Sample, sample
from kstreams_repl.session.session_file import SessionFiles
from kstreams_repl.session.spark_frames import spark_frame
from kstreams_repl.session.tables import SessionTables, callers_names
from kstreams_repl.session.topologies import topology_of
from kstreams_repl.testing.recording import Recording
from kstreams_repl.topology.names import validate_name

DEFAULT_PARTITIONS = 4


class Session:
    """A connection to a cluster and what runs on it. Get one from `kstreams_repl.connect`.

    Example:
        >>> session = kstreams_repl.connect()                                     # doctest: +SKIP
        >>> session.produce("words", ["to", "be", "or", "not", "to", "be"])        # doctest: +SKIP
        6
        >>> session.peek("words", n=2)                                             # doctest: +SKIP
    """

    def __init__(
        self,
        settings: ClientSettings | None,
        *,
        spark: Any = None,
        master: str | None = None,
        config: Mapping[str, Any] | None = None,
        directory: SessionDirectory | None = None,
        client_settings: Mapping[str, Any] | None = None,
        report: Report = default_report,
    ) -> None:
        self.directory = directory or SessionDirectory(None)
        self.report = report
        self.config = dict(config or {})
        StreamsConfig(self.config)  # a wrong key is told now, not at deploy
        self._given = settings
        self._client_settings = dict(client_settings or {})
        self._broker = None if settings is not None else SessionBroker(self.directory.broker, self._say)
        if self._broker is not None:
            broker = self._broker
            self.directory.home = lambda: broker.start().directory
        self._spark = spark
        self._asked_for_spark = False
        self._master = master
        self._known = KnownSerdes()
        self._applications: dict[str, Application] = {}
        self.topic_configs: dict[str, str] = {"retention.ms": "-1"} if self._broker is not None else {}
        """Settings of the topics that this session makes."""
        self.variables: Mapping[str, Any] = {}
        """A notebook's variables: where SQL looks for dataframes last."""
        self.closed = False

    def _say(self, line: str) -> None:
        self.report(line)

    # ---- the cluster

    @property
    def settings(self) -> ClientSettings:
        """Where the brokers are; starts the embedded one when it does not run."""
        refuse_closed(self)
        if self._given is not None:
            return self._given
        assert self._broker is not None
        return ClientSettings(self._broker.start().bootstrap_servers, self._client_settings)

    @property
    def started(self) -> bool:
        """Whether there is a cluster to ask without starting one."""
        return not self.closed and (self._broker is None or self._broker.started)

    @property
    def bootstrap_servers(self) -> str:
        return self.settings.bootstrap_servers

    @property
    def admin(self) -> Admin:
        """Topics, offsets and groups of the cluster."""
        settings = self.settings
        cached: Admin | None = self.__dict__.get("_admin")
        if cached is None or cached.settings != settings:
            cached = self.__dict__["_admin"] = Admin(settings)
        return cached

    def start(self) -> Session:
        """Start the embedded broker now, or see that the given cluster answers.

        Raises:
            BrokerUnavailableError, EmbeddedBrokerError, JavaNotFoundError: it does not.
        """
        ensure_reachable(self.settings)
        return self

    # ---- topics

    def topics(self, *, internal: bool = False) -> Table:
        """Topics with partitions and numbers of records (offsets, to be exact).

        Args:
            internal: also those of applications (changelogs, repartition topics, journals).
        """
        return topics_table(self.admin, internal=internal)

    def create_topic(
        self, topic: str, *, partitions: int = DEFAULT_PARTITIONS, configs: Mapping[str, str] | None = None, exist_ok: bool = True
    ) -> bool:
        """Create a topic; False when it was there already.

        On the embedded broker a topic keeps its records for ever unless `configs` says otherwise: Kafka's default deletes what is older
        than seven days by its *timestamp*, and data sets are.

        Raises:
            InvalidNameError: Kafka would refuse the name.
        """
        return self.admin.create_topic(
            validate_name(topic, "topic"), partitions, configs={**self.topic_configs, **(configs or {})}, exist_ok=exist_ok
        )

    def produce(
        self,
        topic: str,
        records: Any,
        *,
        key: str | None = None,
        timestamp: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        partitions: int = DEFAULT_PARTITIONS,
    ) -> int:
        """Write records to a topic, which is made when it is not there; returns how many, all of them safely on the broker.

        Args:
            records: values, or `(key, value)`, `(key, value, timestamp)` tuples, records that were read, or a dataframe or query's result
                whose rows become JSON objects.
            key: the field or column of each value that is the record's key as well.
            timestamp: the field or column with the record's time (ms, datetime or ISO text); without one it is now.
            key_serde, value_serde: None = what fits the first key and value: text, long, double, bytes, else JSON.
            partitions: of the topic, if it has to be made.

        Raises:
            SerializationError: a record that its serde cannot write.
            ProductionError, BrokerUnavailableError: the broker did not take them.
        """
        self.create_topic(topic, partitions=partitions)
        chosen = self._serdes(topic, key_serde, value_serde)
        producer = TopicProducer(self.settings, topic, *chosen, watch=None if self._broker is None else self._broker.check)
        try:
            return producer.send_all(parts_of(records, key=key, timestamp=timestamp))
        finally:
            self._known.note(topic, producer.key_serde, producer.value_serde)

    def read(
        self,
        topic: str,
        n: int | None = 10,
        *,
        start: Any = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> Records:
        """Records of a topic, by time: the last `n`, or the first `n` from `start` on. It never waits for more.

        Args:
            n: how many; None = all.
            start: "earliest", an offset (of every partition, an int), or a time (datetime or ISO text).
            key_serde, value_serde: None = what this session knows of the topic, else what the bytes look like.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        key, value = self._serdes(topic, key_serde, value_serde)
        return read_records(self.admin, topic, n, start=start, key_serde=key, value_serde=value)

    def record(
        self, *topics: str, n: int | None = None, seconds: float | None = None, offsets: Any = None
    ) -> Recording:
        """An exact recording of topics: bytes, headers, times and offsets, to be replayed into a topology or saved as a file for a test.

        Args:
            n: the last `n` records of each topic; 1,000 when no bound is given.
            seconds: what is written from now on, for so long.
            offsets: ``(from, to)`` of every partition (either may be None), or by partition: ``{0: (10, 20)}``.

        Raises:
            UnknownTopicError: there is no such topic.

        Example:
            >>> session.record("flights", n=500).save("flights.recording.jsonl")   # doctest: +SKIP
        """
        return record_topics(self.admin, topics, n=n, seconds=seconds, offsets=offsets)

    def _serdes(self, topic: str, *given: Any) -> tuple[Any, Any]:
        key, value = (
            known if serde is None else serde_library.resolve(serde) for known, serde in zip(self._known.of(topic), given, strict=True)
        )
        return key, value

    def serdes_of(self, topic: str) -> tuple[Any, Any]:
        """(key serde, value serde) of a topic as far as this session knows them; None where it does not."""
        return self._known.of(topic)

    # ---- looking

    def peek(
        self, target: Any, n: int = 10, *, seconds: float = 5.0, topology: Any = None, config: Mapping[str, Any] | None = None
    ) -> Records | Table:
        """The last values at a place: a topic, a node, a stream or table; nothing is deployed for it.

        At a topic these are its last records. At a node they are what the node puts out when the topology runs over a bounded sample of
        its real topics in the test driver. A builder or topology shows one line for every node.

        Args:
            target: a topic's or node's name, a stream, table, builder, topology or application.
            n: how many values.
            seconds: begin no larger sample after that.
            topology: where a node's name is to be looked for; without it: in the applications of this session.
            config: settings for the sample run.

        Raises:
            UnknownTopicError, TopologyError: there is no such topic or node.
        """
        return peek(self, target, n, seconds=seconds, topology=topology, config=dict(config or {}))

    def sample(self, topology: Any, *, n: int = 10, seconds: float = 5.0, config: Mapping[str, Any] | None = None) -> Sample:
        """Run a topology over a bounded sample of its topics and keep the last `n` values of every node."""
        return sample(
            self.admin, topology_of(topology), node=None, n=n, seconds=seconds, config={**self.config, **(config or {})}
        )

    def sql(
        self,
        query: str,
        *,
        records: int | None = Limits().records,
        rows: int | None = Limits().rows,
        since: Any = None,
        until: Any = None,
        **frames: Any,
    ) -> SqlResult:
        """One SELECT over topics, stores and dataframes, by DuckDB.

        A topic has ``key``, ``value`` (JSON: its fields), ``partition``, ``"offset"``, ``timestamp`` and ``headers``; a store ``key``,
        ``value``, ``timestamp`` and, where there are any, ``window_start`` and ``window_end``. Names with other characters than letters,
        digits and underscores go in double quotes.

        Args:
            records: of each topic at most so many, the last ones; None = all.
            rows: of each store at most so many per task; None = all.
            since, until: of topics only this stretch of time (ms, datetime or ISO text).
            **frames: dataframes by the name the query has for them; the caller's own variables are found without.

        Raises:
            SqlError: it is no query, names a table that does not exist, or DuckDB refuses it.
        """
        times = [None if moment is None else milliseconds(moment) for moment in (since, until)]
        return run_sql(query, SessionTables(self, frames, callers_names(self.variables)), limits=Limits(records, rows, *times))

    def spark_frame(
        self, name: Any, *, records: int | None = None, offsets: Any = None, since: Any = None, until: Any = None, piece: int = 1_000_000
    ) -> Any:
        """A topic or a store as a Spark DataFrame, read by Spark's workers; for what is too large for `sql`, with the same columns.

        The offsets are fixed by this call, so that every action reads the same records. A store is read from its changelog, the last
        record of each key. Fields of JSON values are found from 20,000 records; a value that does not fit them is NULL.

        Args:
            name: a topic, a store of an application of this session, or ``app.store(name)``.
            records: of a topic at most so many, the last ones; None = all.
            offsets: ``(from, to)`` of every partition (either may be None), or by partition: ``{0: (10, 20)}``.
            since, until: of a topic only this stretch of time.
            piece: how many offsets of a partition one task reads.

        Raises:
            UnknownTopicError: there is no such topic or store.
        """
        return spark_frame(self, name, records=records, offsets=offsets, since=since, until=until, piece=piece)

    # ---- applications

    @property
    def applications(self) -> dict[str, Application]:
        """Applications of this session by name."""
        return dict(self._applications)

    def deploy(
        self,
        topology: Any,
        name: str,
        *,
        config: Mapping[str, Any] | None = None,
        start: Any = None,
        detached: bool = False,
        **settings: Any,
    ) -> Application:
        """Start a topology as an application; returns at once, with what can be checked checked.

        Deploying under the name of an application that is stopped, paused or failed goes on from its committed offsets and state, if
        the topology fits them.

        Args:
            topology: a builder, a stream or table of it, or a topology.
            name: the application id: prefix of its topics, its consumer group, its state.
            config: settings by their Kafka Streams names.
            start: where partitions without a committed offset begin: "earliest", "latest", or a time (ms, datetime or ISO text).
            detached: it is driven by a process of its own, which goes on when this one ends; `attach` finds it. It needs a broker and a
                directory that stay.
            **settings: the same as `config` with underscores: ``processing_guarantee="exactly_once_v2"``.

        Raises:
            UnknownTopicError, TopologyError: the topology does not fit the cluster, or what it left there; the ways out are in the hint.
            ConfigError: an unknown setting.
            DeployError: an application of that name is running.
            DetachedApplicationError: broker or directory end with this process.
        """
        given = {**(config or {}), **{key.replace("_", "."): value for key, value in settings.items()}}
        return deploy(self, topology, name, given, start, detached=detached)

    @property
    def detached(self) -> dict[str, str]:
        """Applications that a process of their own drives now, by name, and how they are; of this session's directory, attached or not."""
        if self.directory.temporary:
            return {}
        return {box.application: driver.state for box in mailboxes(self._state_root()) if (driver := box.driven) is not None}

    def plan(self, topology: Any, name: str, *, config: Mapping[str, Any] | None = None, start: Any = None) -> Table:
        """What `deploy` would make and run: internal topics, tasks, and where it begins if that is a time. Nothing is made.

        Raises:
            UnknownTopicError, TopologyError, ConfigError: as `deploy`.
        """
        checked = self._config(name, dict(config or {}))
        built = topology_of(topology, checked)
        refuse_misfit(self, name, built, checked, self._applications.get(name))
        begins = begin_at(self, name, built, checked, start) if is_time(start) else {}
        return planned(self.admin, built, name, checked, begins)

    def attach(
        self, name: str, topology: Any = None, *, config: Mapping[str, Any] | None = None, trust: bool = False
    ) -> Application:
        """Find an application again, after a kernel restart say: its versions, offsets and state; `resume()` goes on where it was.

        Args:
            topology: what it runs; it is compared with what ran, as by `deploy`. Without it the text in the session file is taken, if
                the journal confirms its hash.
            config: settings that differ from those it was deployed with.
            trust: take the text from the journal when there is no session file. Whoever may write that topic then runs code here.

        Raises:
            KStreamsError: there is no application of that name on the cluster.
            SessionFileError: the session file is missing, was changed, or may be written by others; nothing of it was executed.
            TopologyError: rows of a store would be read wrongly.

        Example:
            >>> app = session.attach("word-count")     # doctest: +SKIP
            >>> app.resume()                           # doctest: +SKIP
        """
        known = self._applications.get(name)
        if known is not None and not known.outdated:
            known.definition = known.definition if topology is None else topology  # what runs stays; `changes` and the picture tell
            return known
        app = attached(self, name, topology, dict(config or {}), trust=trust)
        self._applications[name] = app
        self._learn(app)
        return app

    def cleanup(self, name: str, *, confirm: bool = False) -> Cleanup:
        """What belongs to an application: internal topics, group, local state. Deletes them only with `confirm=True`.

        Raises:
            KStreamsError: the application is running.
        """
        return cleanup_of(self, name, confirm=confirm)

    def logs(self, name: str | None = None, *, n: int = 20) -> Table:
        """The last `n` lines of the broker's and Spark's logs, and what applications (or the one named) tell of trouble and failure."""
        return session_logs(self, name, n)

    def _learn(self, application: Application) -> None:
        """Take the serdes of an application's topics into what SQL and reading know."""
        self._known.learn(application.topology, application.name, application.config)

    @property
    def spark(self) -> Any:
        """The Spark session that hosts this session's applications; started when it does not run."""
        from kstreams_repl.spark.session import get_session

        refuse_closed(self)
        self._asked_for_spark = True
        return self._spark if self._spark is not None else get_session(self._master)

    # ---- the end

    def close(self) -> None:
        """Stop the applications (detached ones go on), Spark (unless it was given) and the embedded broker; remove what is temporary.
        Closing twice does nothing; after an interrupt it does the rest.
        """
        if self.closed:
            return
        gone = self._broker is not None and self._broker.has_ended
        running = [app for app in self._applications.values() if not app.detached and app.status not in ("created", "stopped")]
        steps: list[Any] = [app._abandon if gone else app.stop for app in running]
        if self._spark is None and self._uses_spark():
            from kstreams_repl.spark.session import stop_session

            steps.append(stop_session)
        if self._broker is not None:
            steps.append(self._broker.stop)
        end_all([*steps, self.directory.close, self._ended])

    def _ended(self) -> None:
        self.closed = True
        self.__dict__.pop("_admin", None)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except Exception as closing:
            if error is None:
                raise
            error.add_note(f"while closing: {closing}")  # the cause is what the caller is to see

    def __reduce__(self) -> Any:  # a copy on a worker would start a broker of its own
        raise TypeError("a Session lives in the process that opened it")

    def __repr__(self) -> str:
        if self.closed:
            return "Session(closed)"
        embedded = f"embedded Kafka at {self.bootstrap_servers}" if self.started else "embedded Kafka, not started"
        where = self.bootstrap_servers if self._broker is None else embedded
        apps = ", ".join(f"{app.name} {app.standing}" for app in self._applications.values())
        return f"Session({where}, {apps or 'no applications'})"

    # ---- inside

    def _uses_spark(self) -> bool:
        return any(not app.detached for app in self._applications.values()) or self._asked_for_spark

    @property
    def master(self) -> str | None:
        """The Spark master that was asked for, or that of the session that was given; None: local."""
        return self._master if self._spark is None else str(self._spark.sparkContext.master)

    def _state_root(self) -> Any:
        return state_root(StreamsConfig({"state.dir": str(self.directory.state), **self.config}))

    def _config(self, name: str, settings: Mapping[str, Any]) -> StreamsConfig:
        validate_name(name, "application")
        state = {} if "state.dir" in self.config or "state.dir" in settings else {"state.dir": str(self.directory.state)}
        own = {"application.id": name, "bootstrap.servers": self.bootstrap_servers}
        return StreamsConfig({**self.config, **state, **settings, **own})

    @property
    def files(self) -> SessionFiles:
        """Where the texts of what ran are kept."""
        return SessionFiles(self.directory.path)

    def _application(self, *about: Any, **more: Any) -> Application:
        return application_of(self, *about, **more)
