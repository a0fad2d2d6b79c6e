"""The configuration of an application: Kafka Streams' keys with their defaults, checked before anything starts.

Keys are Kafka Streams' dotted names. Values may have the type shown or be strings (``"100"``), as in a properties file. Keys with the
prefix ``consumer.``, ``main.consumer.``, ``restore.consumer.``, ``global.consumer.``, ``producer.`` or ``admin.`` and librdkafka's client
settings (``sasl.*``, ``ssl.*``, ``security.protocol`` ...) are passed to the clients unchanged, except those that the application sets
itself, with any prefix (`_OWN`). Keys with ``topic.`` are passed to new internal topics, those with ``schema.registry.`` to the Schema
Registry's client. This project's own keys have the prefix ``repl.``. Every other Kafka Streams key is accepted, or refused with what to
use instead (`kafka_streams_keys`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any
from urllib.parse import urlsplit

from kstreams_repl.engine import kafka_streams_keys
from kstreams_repl.system.errors import ConfigError, KStreamsError, did_you_mean
from kstreams_repl.system.log_context import LEVELS, OFF
from kstreams_repl.system.types import RecordPosition

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE_V2 = "exactly_once_v2"
SNAPSHOT_DIR = "repl.snapshot.dir"
SNAPSHOT_REQUIRED = "repl.snapshot.required"
FOLLOWED = "repl.follow"
SKIPPED_RECORDS = "repl.skip.records"
_BOUNDED_COMMIT_MS = 2000
"""Default of commit.interval.ms in a bounded run: its results are read after its end, and fewer commits write fewer results that are
replaced before that."""


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key: its parser, its default and its description."""

    read: Callable[[Any], object]
    default: Any
    doc: str


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError("expected true or false")


def _one_of(*choices: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if str(value) not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return str(value)

    return read


def _source_serdes(value: object) -> str | None:
    from kstreams_repl.engine.serdes.by_topic import parse, write

    return write(parse(str(value))) if value else None


def _at_least(low: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = _whole(value)
        if number < low:
            raise ValueError(f"expected a whole number >= {low}")
        return number

    return read


def _whole(value: Any) -> int:
    """Parse an integer that fits into Java's long; True is not accepted."""
    if isinstance(value, bool) or isinstance(value, float) and not value.is_integer():
        raise ValueError("expected a whole number")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("expected a whole number of 64 bits")
    return number


def _serde(value: object) -> object:
    from kstreams_repl.engine import serdes

    if value is not None:
        serdes.resolve(value)
    return value


def _handler(value: object) -> object:
    if value is not None and kafka_streams_keys.handler_word(value) not in ("fail", "continue") and not callable(value):
        raise ValueError("expected 'fail', 'continue' or a callable (context, error) -> Response")
    return value


def _optimizations(value: object) -> str:
    from kstreams_repl.engine.topology.optimizations import parse_optimizations

    parse_optimizations(value)
    return "none" if value is None else str(value)


def _server(value: object) -> str | None:
    from kstreams_repl.system.types import endpoint_of

    if value is None or not str(value).strip():
        return None
    endpoint_of(str(value))
    return str(value)


def _name(value: object) -> str | None:
    from kstreams_repl.engine.topology.names import validate_name

    return None if value is None else validate_name(value, "topic")


def _grouper(value: object) -> object:
    if value is not None and not callable(getattr(value, "group", None)):
        raise ValueError("expected an object with group(partitions_per_topic)")
    return value


def _extractor(value: object) -> object:
    if value is not None and not callable(value):
        raise ValueError("expected a function (record, partition_time) -> ms, such as one of kstreams_repl.timestamps")
    return value


def _offset_reset(value: object) -> str:
    from kstreams_repl.engine.topology.bounds.offset_reset import checked

    return checked(value)


def _stop_at(value: object) -> str | None:
    from kstreams_repl.engine.topology.bounds.stop_at import checked

    return checked(value)


def _optional_text(value: object) -> str | None:
    if value is not None and not isinstance(value, str | PathLike):
        raise ValueError("expected text")
    return None if value is None else str(value)


def _replication(value: object) -> int:
    number = _whole(value)
    if number != -1 and number < 1:
        raise ValueError("expected -1 or a whole number >= 1")
    return number


def _record_positions(value: object) -> str:
    return ", ".join(str(RecordPosition.parse(text)) for text in str(value).split(",") if text.strip())


def _as_text(value: object) -> str:
    """Return the value as in a properties file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown_address(uri: str) -> str:
    """Return an address with a possible password masked.

    Example:
        >>> shown_address("sftp://me:secret@host/dir")
        'sftp://me:***@host/dir'
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # not a URL; the code that uses it raises
        return uri
    if parts.password is None:
        return uri
    name, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{name.partition(':')[0]}:***@{host}").geturl()


def _url(value: object) -> str | None:
    if value is None:
        return None
    parts = urlsplit(str(value))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://host:port or https://host:port")
    return str(value)


def _share(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not 0 <= (share := float(value)) <= 1:
        raise ValueError("expected a number from 0 to 1")
    return share


def _drift(value: object) -> int | None:
    return None if value is None else _at_least(-1)(value)


def _scheduler(value: object) -> object:
    return value if callable(value) else _one_of("most-buffered", "longest-waiting")(value)


KEYS: dict[str, Key] = {
    "application.id": Key(_name, None, "Name of the application; prefix of its internal topics and transactional ids."),
    "bootstrap.servers": Key(_optional_text, None, "Broker addresses, host:port, comma separated."),
    "processing.guarantee": Key(_one_of(AT_LEAST_ONCE, EXACTLY_ONCE_V2), AT_LEAST_ONCE, "exactly_once_v2 or at_least_once."),
    "commit.interval.ms": Key(_at_least(0), 100, "Longest time between commits, in both guarantees (a documented divergence)."),
    "num.stream.threads": Key(
        _at_least(1),
        1,
        "Number of instances; each is one Spark Python worker. If it is not given, a deploy on a local Spark takes as many as the "
        "processors and the partitions allow (host/spark/planning/instance_count.py).",
    ),
    "num.processing.threads": Key(_at_least(1), 1, "Processing threads in an instance; 1 runs inline with polling."),
    "num.threads.per.task": Key(
        _at_least(1), 1, "Threads on which a task's stateless functions run at the same time (KIP-311); at most num.stream.threads."
    ),
    "repl.task.scheduler": Key(
        _scheduler,
        "most-buffered",
        "The task to process next: most-buffered, longest-waiting, or a callable (instance/polling/scheduler.py).",
    ),
    "repl.alignment.drift.ms": Key(
        _drift,
        None,
        "How far, in event time, one partition may be ahead of the others before a repartition; None: as far as no window behind it loses "
        "a record; -1: without bound.",
    ),
    "num.standby.replicas": Key(_at_least(0), 0, "Standby copies of each store on other executors."),
    "state.dir": Key(_optional_text, None, "Directory of local state; default: the project's state directory."),
    "state.cleanup.delay.ms": Key(_at_least(0), 600_000, "How long an unowned state directory is kept."),
    "statestore.cache.max.bytes": Key(_at_least(0), 10 * 1024 * 1024, "Record cache of an instance; 0 forwards every update."),
    "partition.grouper": Key(
        _grouper, None, "A PartitionGrouper (KIP-28), which decides the partitions of each task; None: those with the same number."
    ),
    "max.task.idle.ms": Key(_at_least(-1), 0, "-1 never waits; 0 waits while a partition is known to lag; >0 waits that much longer."),
    "buffered.records.per.partition": Key(_at_least(1), 1000, "Soft bound of one record queue."),
    "input.buffer.max.bytes": Key(
        _at_least(1), 64 * 1024 * 1024, "Bytes in an instance's record queues at which it stops polling (KIP-770, there for all threads)."
    ),
    "auto.offset.reset": Key(
        _offset_reset, "earliest", "earliest, latest, none or by_duration:PT1H: start of a partition without a committed offset."
    ),
    "default.timestamp.extractor": Key(
        _extractor, None, "Callable (record, partition_time) -> ms; None: the record's own, where a negative one fails."
    ),
    "default.key.serde": Key(_serde, None, "Serde of keys if none is given; default: bytes."),
    "default.value.serde": Key(_serde, None, "Serde of values if none is given; default: bytes."),
    "default.dsl.store": Key(
        _one_of("rocksDB", "in_memory", "lmdb"),
        "lmdb",
        "Default kind of DSL stores: lmdb (rocksDB means lmdb) or in_memory.",
    ),
    "dsl.store.format": Key(
        _one_of("DEFAULT", "HEADERS", "default", "headers"),
        "DEFAULT",
        "Format of the rows of DSL stores on disk: DEFAULT, or HEADERS: with the headers of records (KIP-1271).",
    ),
    "topology.optimization": Key(_optimizations, "none", "none, all, or a comma separated list of optimizations."),
    "deserialization.exception.handler": Key(_handler, "fail", "fail, continue, or a DeserializationHandler."),
    "production.exception.handler": Key(_handler, "fail", "fail, continue, or a ProductionHandler."),
    "processing.exception.handler": Key(_handler, "fail", "fail, continue, or a ProcessingHandler."),
    "processing.exception.handler.global.enabled": Key(
        _boolean, False, "Call the processing handler for processors of global stores too (KIP-1270); else their errors stop."
    ),
    "errors.dead.letter.queue.topic.name": Key(
        _name, None, "Dead-letter topic; continue handlers write the record there."
    ),
    "repartition.purge.interval.ms": Key(
        _at_least(1), 30_000, "Interval of deleting processed records of repartition topics and expired ones of changelogs."
    ),
    "replication.factor": Key(_replication, -1, "Replication of internal topics; -1: the broker's default."),
    "transaction.timeout.ms": Key(_at_least(1000), 10_000, "Timeout of the instance's transactions."),
    "metrics.recording.level": Key(_one_of("INFO", "DEBUG", "TRACE"), "INFO", "Recording level of metrics."),
    "metrics.sample.window.ms": Key(_at_least(1), 30_000, "Length of one sample of windowed metrics."),
    "metrics.num.samples": Key(_at_least(1), 2, "Number of samples in the window of a metric."),
    "repl.metrics.interval.ms": Key(_at_least(100), 1_000, "Interval at which an instance reports its metrics."),
    "application.server": Key(
        _server, None, "host:port where the query server of each host listens; port 0: any free one. None: no server."
    ),
    "repl.server.certfile": Key(_optional_text, None, "PEM file with the certificate of the query servers, for TLS."),
    "repl.server.keyfile": Key(_optional_text, None, "PEM file with the key of that certificate."),
    "repl.server.insecure": Key(_boolean, False, "Let query servers listen beyond loopback without TLS."),
    "repl.log.level": Key(
        _one_of(*LEVELS), OFF, "Level of the workers' log of tasks and instances in Spark's log (stderr): OFF, ERROR to DEBUG."
    ),
    "repl.openlineage.url": Key(
        _url, None, "URL of a receiver of OpenLineage events: what is read and written, from when to when. None: none sent."
    ),
    "repl.otlp.endpoint": Key(
        _url, None, "Base URL of an OpenTelemetry collector (OTLP over HTTP) that gets metrics, log lines and traces; None: none."
    ),
    "repl.otlp.interval.ms": Key(_at_least(1000), 60_000, "Interval at which an instance sends its metrics to the collector."),
    "repl.trace.rate": Key(
        _share,
        None,
        "Share of input records that begin a trace (OpenTelemetry), 0 to 1, rounded to one in n; traces that a producer has "
        "begun and sampled are continued. "
        "None: no tracing.",
    ),
    "repl.trace.limit": Key(_at_least(1), 50, "Most traces that an instance begins in a second, whatever the rate."),
    "autostop.at": Key(
        _stop_at,
        None,
        "Run up to there and end (KIP-95): eol, a time, records:N, or {topic: {partition: offset}}; None: run as a stream.",
    ),
    "repl.autostop.through": Key(
        _one_of("refuse", "own", "bounded"),
        "refuse",
        "Topics that a bounded run both writes and reads: refuse; own: only this application writes them, read to the end of the run's "
        "own records; bounded: stop at their end when the run begins.",
    ),
    "repl.autostop.on.end": Key(
        _one_of("keep", "close_windows"),
        "keep",
        "At the end of a bounded run: keep open windows, suppressed results and outer joins for the next run, or close and emit them.",
    ),
    "repl.partitions.check.ms": Key(
        _at_least(100), 5_000, "Interval of checks for new partitions of input topics and new topics that match a pattern."
    ),
    "max.poll.interval.ms": Key(
        _at_least(100), 300_000, "Time limit of your code for one record, punctuation or flush; then its process is ended."
    ),
    "repl.crash.retries": Key(_at_least(1), 3, "Number of process deaths at one record and node after which the application fails."),
    SKIPPED_RECORDS: Key(
        _record_positions, "", "Source records to skip, as set by `Application.skip`: orders-0@17, orders-1@3."
    ),
    "repl.epoch.ms": Key(_at_least(500), 30_000, "Length of an epoch (one Spark micro-batch)."),
    "repl.epoch.idle.ms": Key(
        _at_least(0), 300_000, "Maximal length of an epoch without input (local Spark); 0: repl.epoch.ms."
    ),
    "repl.worker.pool": Key(
        _one_of("own", "shared", "background"),
        "own",
        "Spark's Python workers: the application's own pool, one shared with other applications, or its own after the others (forks).",
    ),
    "repl.changelog.suppression": Key(_boolean, True, "Write one changelog record per key and commit when deployed."),
    "repl.commit.eager.ms": Key(
        _at_least(-1), 5, "Minimal time between commits when the queues are empty; -1: only by commit.interval.ms."
    ),
    "repl.async.drain.ms": Key(
        _at_least(0), 1_000, "How long a pause or stop waits for calls of asynchronous nodes; those that have not ended are made again."
    ),
    SNAPSHOT_DIR: Key(_optional_text, None, "Snapshot directory of stores: a path or an fsspec URL; None: no snapshots."),
    "repl.snapshot.interval.ms": Key(_at_least(100), 300_000, "Interval between snapshots of a task."),
    "repl.snapshot.retention": Key(_at_least(1), 2, "Number of snapshots of a task to keep."),
    SNAPSHOT_REQUIRED: Key(
        _boolean, False, "Stores begin with a snapshot, as those of a fork: without one that fits they are not restored."
    ),
    FOLLOWED: Key(
        _name, None, "Application whose committed offsets bound the input, as those of its parent bound a fork's; None: none."
    ),
    "repl.outer.join.emit.interval.ms": Key(
        _at_least(0), 1000, "Interval (wall clock) at which left and outer stream-stream joins emit results that are due."
    ),
    "repl.copartition.check": Key(_boolean, True, "Warn at deploy if keys of joined topics are not partitioned as in Java."),
    "repl.schema.check": Key(
        _boolean, True, "Compare schemas with the Schema Registry at deploy and edit, and refuse those that do not fit."
    ),
    "repl.source.serdes": Key(
        _source_serdes, None, "Serdes of sources without serdes, by topic: orders=string:json, words=:string. Set by the session."
    ),
    "repl.emit.cached": Key(
        _one_of("on-flush", "always"), "on-flush", "Cached stores forward on flush (Kafka Streams), or always; they write at a commit."
    ),
}

_PASS_THROUGH = (
    "consumer.",
    "producer.",
    "admin.",
    "main.consumer.",
    "restore.consumer.",
    "global.consumer.",
    "topic.",
    "sasl.",
    "ssl.",
    "security.",
    "repl.client.",
    "schema.registry.",
)

_CLIENT_NAMES = frozenset(kafka_streams_keys.CLIENT.values())

_OWN = (
    ("consumer.", ("auto.offset.reset", "max.poll.interval.ms")),
    ("main.consumer.", ("auto.offset.reset", "max.poll.interval.ms")),
    ("producer.", ("transaction.timeout.ms",)),
)
"""Client settings that the application sets itself; given with a prefix they override those without, as in Kafka Streams."""


def _own_keys(given: dict[str, object]) -> dict[str, object]:
    own = dict(given)
    for prefix, names in _OWN:
        own |= {name: own.pop(f"{prefix}{name}") for name in names if f"{prefix}{name}" in own}
    return own


def is_key(name: str) -> bool:
    """Return whether a setting of that name exists, with dots or underscores."""
    dotted = name.replace("_", ".")
    return dotted in KEYS or dotted.startswith(_PASS_THROUGH)


class StreamsConfig(Mapping[str, Any]):
    """The validated settings of one application; a mapping with every known key.

    Args:
        settings: keys and values; unknown keys raise ConfigError with a "did you mean".

    Attributes:
        unused: Kafka Streams keys that were given but have no effect here, with the reason.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, **more: object) -> None:
        all_given = dict(settings or {}) | {name.replace("_", "."): value for name, value in more.items()}
        given, self.unused = kafka_streams_keys.translated(_own_keys(all_given), KEYS.__contains__)
        self._values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
        self.client: dict[str, object] = {}
        self.given = frozenset(given)
        for name, value in given.items():
            if name in KEYS:
                try:
                    self._values[name] = KEYS[name].read(value)
                except (TypeError, ValueError, OverflowError, KStreamsError) as cause:
                    reason = cause.message if isinstance(cause, KStreamsError) else cause
                    hint = (cause.hint if isinstance(cause, KStreamsError) else None) or KEYS[name].doc
                    raise ConfigError(f"{name} = {value!r} is invalid: {reason}", hint=hint, key=name) from cause
            elif name == "topic.cleanup.policy":
                raise ConfigError(
                    "topic.cleanup.policy would apply to every internal topic, and state or records would be lost",
                    hint="remove it: each internal topic has the policy that it needs; a store's own topic config can change one",
                    key=name,
                )
            elif name.startswith(_PASS_THROUGH) or name in _CLIENT_NAMES:
                self.client[name] = value
            elif (instead := kafka_streams_keys.refusal(name, value)) is not None:
                raise ConfigError(f"{name} = {value!r} is not supported here", hint=instead, key=name)
            else:
                raise ConfigError(
                    f"unknown configuration key {name!r}",
                    hint=did_you_mean(name, KEYS)
                    or "use Kafka Streams' keys; client settings need a prefix such as 'consumer.'",
                    key=name,
                )
        threads, per_task = self._values["num.stream.threads"], self._values["num.threads.per.task"]
        if threads < per_task:
            raise ConfigError(
                f"num.stream.threads = {threads} is below num.threads.per.task = {per_task}: a task has no more threads than there are",
                hint=f"set num.stream.threads to {per_task} or more; each instance takes {per_task} of them",
                key="num.threads.per.task",
            )
        timeout = self._values["transaction.timeout.ms"]
        if self._values["autostop.at"] is not None and "commit.interval.ms" not in self.given:
            self._values["commit.interval.ms"] = min(_BOUNDED_COMMIT_MS, timeout // 2)
        interval = self._values["commit.interval.ms"]
        if self.exactly_once and interval >= timeout:
            raise ConfigError(
                f"commit.interval.ms = {interval} must be below transaction.timeout.ms = {timeout}: under exactly_once_v2 a transaction "
                "stays open from one commit to the next, and the broker would abort it earlier",
                hint="lower commit.interval.ms (default: 100), or raise transaction.timeout.ms",
                key="commit.interval.ms",
            )

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    @property
    def thread_groups(self) -> tuple[int, ...]:
        """The threads of each instance: groups of `num.threads.per.task` of the `num.stream.threads`; the first has the remainder too.

        Example:
            >>> StreamsConfig(num_stream_threads=7, num_threads_per_task=3).thread_groups
            (4, 3)
        """
        threads, per_task = self._values["num.stream.threads"], self._values["num.threads.per.task"]
        return (per_task + threads % per_task, *(per_task for _ in range(threads // per_task - 1)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def with_(self, **changes: object) -> StreamsConfig:
        """Return a copy with changed settings.

        Args:
            **changes: new values by key in snake_case (``commit_interval_ms=50``); or ``**{"commit.interval.ms": 50}``.

        Raises:
            ConfigError: an unknown key, or a value that the key does not take.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.StreamsConfig().with_(commit_interval_ms=50)["commit.interval.ms"]
            50
        """
        settings = {name: self._values[name] for name in self.given if name in self._values}
        return StreamsConfig(settings | self.client | {k.replace("_", "."): v for k, v in changes.items()})

    @property
    def topic_configs(self) -> dict[str, str]:
        """The ``topic.`` settings for changelog and repartition topics (Kafka Streams' ``topicPrefix``)."""
        return {name.removeprefix("topic."): _as_text(value) for name, value in self.client.items() if name.startswith("topic.")}

    @property
    def exactly_once(self) -> bool:
        return bool(self._values["processing.guarantee"] == EXACTLY_ONCE_V2)

    def has_password(self, name: str) -> bool:
        """Return whether a setting is an address that contains a password; such a value is never stored.

        Args:
            name: key of the setting.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.StreamsConfig().has_password("repl.snapshot.dir")
            False
        """
        return name == SNAPSHOT_DIR and self._values[name] is not None and shown_address(self._values[name]) != self._values[name]

    def __repr__(self) -> str:
        shown = {name: self._values[name] for name in sorted(self.given) if name in self._values}
        if self.has_password(SNAPSHOT_DIR):
            shown[SNAPSHOT_DIR] = shown_address(self._values[SNAPSHOT_DIR])
        return f"StreamsConfig({shown}, client settings: {len(self.client)})"
