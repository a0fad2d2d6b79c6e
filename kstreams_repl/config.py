"""The configuration of an application: Kafka Streams' keys with their defaults, checked before anything starts.

Keys keep Kafka Streams' dotted names. Values may be given as the type shown or as text (``"100"``), as in a properties file. Keys that
start with ``consumer.``, ``main.consumer.``, ``restore.consumer.``, ``global.consumer.``, ``producer.`` or ``admin.`` and the client
settings of librdkafka (``sasl.*``, ``ssl.*``, ``security.protocol`` ...) pass through to the clients unchanged, but for those that are
the application's here, whatever prefix they have (`_OWN`); those with ``topic.`` to internal topics when they are made. Ours have the
prefix ``repl.``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from kstreams_repl.errors import ConfigError, did_you_mean

AT_LEAST_ONCE = "at_least_once"
EXACTLY_ONCE_V2 = "exactly_once_v2"
SNAPSHOT_DIR = "repl.snapshot.dir"


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key: how it is read, its default, what it means."""

    read: Callable[[Any], Any]
    default: Any
    doc: str


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ValueError("expected true or false")


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if str(value) not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return str(value)

    return read


def _at_least(low: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = _whole(value)
        if number < low:
            raise ValueError(f"expected a whole number >= {low}")
        return number

    return read


def _whole(value: Any) -> int:
    """A number without a fraction that fits into Java's long; True is none."""
    if isinstance(value, bool) or isinstance(value, float) and not value.is_integer():
        raise ValueError("expected a whole number")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("expected a whole number of 64 bits")
    return number


def _anything(value: Any) -> Any:
    return value


def _grouper(value: Any) -> Any:
    if value is not None and not callable(getattr(value, "group", None)):
        raise ValueError("expected an object with group(partitions_per_topic)")
    return value


def _extractor(value: Any) -> Any:
    if value is not None and not callable(value):
        raise ValueError("expected a function (record, partition_time) -> ms, such as one of kstreams_repl.timestamps")
    return value


def _optional_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _as_text(value: Any) -> str:
    """As a properties file has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def shown_address(uri: str) -> str:
    """An address without what may be a password in it.

    Example:
        >>> shown_address("sftp://me:secret@host/dir")
        'sftp://me:***@host/dir'
    """
    try:
        parts = urlsplit(uri)
    except ValueError:  # no address; where it is used, that is told
        return uri
    if parts.password is None:
        return uri
    name, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{name.partition(':')[0]}:***@{host}").geturl()


def _scheduler(value: Any) -> Any:
    return value if callable(value) else _one_of("most-buffered", "longest-waiting")(value)


KEYS: dict[str, Key] = {
    "application.id": Key(_optional_text, None, "Name of the application; prefix of its internal topics and transactional ids."),
    "bootstrap.servers": Key(_optional_text, None, "Broker addresses, host:port, comma separated."),
    "processing.guarantee": Key(_one_of(AT_LEAST_ONCE, EXACTLY_ONCE_V2), AT_LEAST_ONCE, "exactly_once_v2 or at_least_once."),
    "commit.interval.ms": Key(_at_least(0), 100, "Longest time between commits, in both guarantees (a documented divergence)."),
    "num.stream.threads": Key(_at_least(1), 1, "Number of instances; each is one Spark Python worker."),
    "num.processing.threads": Key(_at_least(1), 1, "Processing threads in an instance; 1 runs inline with polling."),
    "repl.task.scheduler": Key(
        _scheduler,
        "most-buffered",
        "Which task is processed next: most-buffered, longest-waiting, or a callable (instance/scheduler.py).",
    ),
    "num.standby.replicas": Key(_at_least(0), 0, "Standby copies of each store on other executors."),
    "state.dir": Key(_optional_text, None, "Directory of local state; default: the project's state directory."),
    "state.cleanup.delay.ms": Key(_at_least(0), 600_000, "How long an unowned state directory is kept."),
    "statestore.cache.max.bytes": Key(_at_least(0), 10 * 1024 * 1024, "Record cache of an instance; 0 forwards every update."),
    "partition.grouper": Key(
        _grouper, None, "A PartitionGrouper (KIP-28): which partitions a task reads together; None: those with the same number."
    ),
    "max.task.idle.ms": Key(_whole, 0, "-1 never waits; 0 waits while a partition is known to lag; >0 waits that long more."),
    "buffered.records.per.partition": Key(_at_least(1), 1000, "Soft bound of one record queue."),
    "input.buffer.max.bytes": Key(
        _at_least(1), 64 * 1024 * 1024, "Values that an instance's record queues hold before it stops polling (KIP-770; there of all)."
    ),
    "auto.offset.reset": Key(
        _one_of("earliest", "latest", "none"), "earliest", "Where a partition begins without a committed offset, or with one that is gone."
    ),
    "default.timestamp.extractor": Key(
        _extractor, None, "Callable (record, partition_time) -> ms; None: the record's own, negative fails."
    ),
    "default.key.serde": Key(_anything, None, "Serde of keys where none is given; default: bytes."),
    "default.value.serde": Key(_anything, None, "Serde of values where none is given; default: bytes."),
    "default.dsl.store": Key(
        _one_of("rocksDB", "in_memory", "lmdb"),
        "lmdb",
        "How DSL stores that say nothing of it are kept: lmdb (rocksDB is read as lmdb) or in_memory.",
    ),
    "topology.optimization": Key(str, "none", "none, all, or a comma separated list of optimizations."),
    "deserialization.exception.handler": Key(_anything, "fail", "fail, continue, or a DeserializationHandler."),
    "production.exception.handler": Key(_anything, "fail", "fail, continue, or a ProductionHandler."),
    "processing.exception.handler": Key(_anything, "fail", "fail, continue, or a ProcessingHandler."),
    "processing.exception.handler.global.enabled": Key(
        _boolean, False, "Ask the processing handler about processors of global stores, too (KIP-1270); else their errors stop."
    ),
    "errors.dead.letter.queue.topic.name": Key(
        _optional_text, None, "Dead-letter topic; continue handlers write the record there."
    ),
    "replication.factor": Key(_whole, -1, "Replication of internal topics; -1: the broker's default."),
    "transaction.timeout.ms": Key(_at_least(1000), 10_000, "Timeout of the instance's transactions."),
    "metrics.recording.level": Key(_one_of("INFO", "DEBUG", "TRACE"), "INFO", "Recording level of metrics."),
    "metrics.sample.window.ms": Key(_at_least(1), 30_000, "Length of one sample of windowed metrics."),
    "metrics.num.samples": Key(_at_least(1), 2, "Samples that windowed metrics look back."),
    "repl.metrics.interval.ms": Key(_at_least(100), 1_000, "How often an instance writes its metrics down."),
    "application.server": Key(_optional_text, None, "host:port under which interactive queries reach this application."),
    "repl.partitions.check.ms": Key(
        _at_least(100), 5_000, "How far apart looks are for partitions added to input topics and for new topics of a pattern."
    ),
    "max.poll.interval.ms": Key(
        _at_least(100), 300_000, "How long your code may take for one record, punctuation or flush before its process is ended."
    ),
    "repl.crash.retries": Key(_at_least(1), 3, "How often a process may die at one record and node before the application fails."),
    "repl.epoch.ms": Key(_at_least(500), 30_000, "Length of an epoch (one Spark micro-batch)."),
    "repl.epoch.idle.ms": Key(
        _at_least(0), 300_000, "How long an epoch in which nothing comes in may last (local Spark); 0: as long as any other."
    ),
    "repl.worker.pool": Key(
        _one_of("own", "shared"), "own", "Spark's Python workers: a pool of the application's own, or one shared with others."
    ),
    "repl.changelog.suppression": Key(_boolean, True, "One changelog record per key and commit when deployed."),
    "repl.commit.eager.ms": Key(_whole, 5, "Commit when the queues are empty, at least this far apart; -1: only by interval."),
    SNAPSHOT_DIR: Key(_optional_text, None, "Where snapshots of stores are kept: a directory or an fsspec address; None: none."),
    "repl.snapshot.interval.ms": Key(_at_least(100), 300_000, "How far apart snapshots of a task are."),
    "repl.snapshot.retention": Key(_at_least(1), 2, "How many snapshots of a task are kept."),
    "repl.outer.join.emit.interval.ms": Key(
        _at_least(0), 1000, "How far apart (wall clock) left and outer stream-stream joins look for parked results that are due."
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
)


_OWN = (
    ("consumer.", ("auto.offset.reset", "max.poll.interval.ms")),
    ("main.consumer.", ("auto.offset.reset", "max.poll.interval.ms")),
    ("producer.", ("transaction.timeout.ms",)),
)
"""Clients' settings that the application decides itself; given with a prefix they count before those without, as in Kafka Streams."""


def _own_keys(given: dict[str, Any]) -> dict[str, Any]:
    found = dict(given)
    for prefix, names in _OWN:
        found |= {name: found.pop(f"{prefix}{name}") for name in names if f"{prefix}{name}" in found}
    return found


class StreamsConfig(Mapping[str, Any]):
    """Checked settings of one application; a mapping with every known key present.

    Args:
        settings: keys and values; unknown keys raise ConfigError with a "did you mean".
    """

    def __init__(self, settings: Mapping[str, Any] | None = None, **more: Any) -> None:
        given = _own_keys(dict(settings or {}) | {name.replace("_", "."): value for name, value in more.items()})
        self._values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
        self.client: dict[str, Any] = {}
        self.given = frozenset(given)
        for name, value in given.items():
            if name in KEYS:
                try:
                    self._values[name] = KEYS[name].read(value)
                except (TypeError, ValueError) as cause:
                    raise ConfigError(f"{name} = {value!r} cannot be used: {cause}", hint=KEYS[name].doc, key=name) from cause
            elif name == "topic.cleanup.policy":
                raise ConfigError(
                    "topic.cleanup.policy would be that of every internal topic, and state or records would be lost",
                    hint="each internal topic has the policy its use needs; a store's own topic config can change one",
                    key=name,
                )
            elif name.startswith(_PASS_THROUGH):
                self.client[name] = value
            else:
                raise ConfigError(
                    f"unknown configuration key {name!r}",
                    hint=did_you_mean(name, KEYS)
                    or "keys are Kafka Streams' own; client settings take a prefix such as 'consumer.'",
                    key=name,
                )
        timeout, interval = self._values["transaction.timeout.ms"], self._values["commit.interval.ms"]
        if self.exactly_once and interval >= timeout:
            raise ConfigError(
                f"commit.interval.ms = {interval} is not below transaction.timeout.ms = {timeout}: under exactly_once_v2 a transaction "
                "stays open from one commit to the next, and the broker would abort it before",
                hint="a shorter commit.interval.ms (100 by default), or a longer transaction.timeout.ms",
                key="commit.interval.ms",
            )

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def with_(self, **changes: Any) -> StreamsConfig:
        """A copy with more settings; keys in snake_case (``commit_interval_ms=50``) or as ``**{"commit.interval.ms": 50}``."""
        settings = {name: self._values[name] for name in self.given if name in self._values}
        return StreamsConfig(settings | self.client | {k.replace("_", "."): v for k, v in changes.items()})

    @property
    def topic_configs(self) -> dict[str, str]:
        """What ``topic.`` keys say of changelog and repartition topics (Kafka Streams' ``topicPrefix``)."""
        return {name.removeprefix("topic."): _as_text(value) for name, value in self.client.items() if name.startswith("topic.")}

    @property
    def exactly_once(self) -> bool:
        return bool(self._values["processing.guarantee"] == EXACTLY_ONCE_V2)

    def has_password(self, name: str) -> bool:
        """Whether a setting is an address with a password in it, which is written down nowhere."""
        return name == SNAPSHOT_DIR and self._values[name] is not None and shown_address(self._values[name]) != self._values[name]

    def __repr__(self) -> str:
        shown = {name: self._values[name] for name in sorted(self.given) if name in self._values}
        if self.has_password(SNAPSHOT_DIR):
            shown[SNAPSHOT_DIR] = shown_address(self._values[SNAPSHOT_DIR])
        return f"StreamsConfig({shown}, client settings: {len(self.client)})"
