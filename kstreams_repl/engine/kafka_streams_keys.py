"""Configuration keys of Kafka Streams that this library does not have, so that JVM settings can be used unchanged.

Each is accepted as another key (`RENAMED`), passed to the Kafka clients (`CLIENT`), accepted without effect because there is nothing here
that it could change (`WITHOUT_EFFECT`, reported at deploy), or refused with what to use instead (`REFUSED`). A test checks all keys against
these tables. Values may be Java's: class names of Kafka's own serdes, stores and extractors are converted to their counterparts here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

RENAMED: Mapping[str, str] = {
    "cache.max.bytes.buffering": "statestore.cache.max.bytes",
    "default.deserialization.exception.handler": "deserialization.exception.handler",
    "default.production.exception.handler": "production.exception.handler",
    "dsl.store.suppliers.class": "default.dsl.store",
}
"""Older or other names of known keys. If both are given, the newer one counts, as in Kafka Streams."""

CLIENT: Mapping[str, str] = {
    "client.id": "client.id",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "enable.metrics.push": "enable.metrics.push",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "metadata.recovery.strategy": "metadata.recovery.strategy",
    "metadata.recovery.rebootstrap.trigger.ms": "metadata.recovery.rebootstrap.trigger.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
"""Client settings without a prefix, and librdkafka's names for them."""

_DRIVER = "the driver assigns tasks to instances; there is no group protocol and no rebalance"
_ANYTHING: tuple[str, ...] = ()
WITHOUT_EFFECT: Mapping[str, tuple[tuple[str, ...], str]] = {
    "acceptable.recovery.lag": (_ANYTHING, "a task returns to its previous instance, or moves to a standby task"),
    "built.in.metrics.version": (("latest",), "only the latest metric names exist"),
    "default.client.supplier": (("org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier",), "clients are librdkafka's"),
    "default.interactive.query.isolation.level": (("READ_COMMITTED", "read_committed"), "a query reads committed state"),
    "enable.transactional.statestores": (("true",), "stores are committed with their task, and a failed task is not restored from scratch"),
    "group.protocol": (("classic", "streams"), _DRIVER),
    "log.summary.interval.ms": (_ANYTHING, "instances report their progress to the driver, several times a second"),
    "max.warmup.replicas": (_ANYTHING, "tasks move to standby tasks (num.standby.replicas)"),
    "metadata.cluster.check.enable": (_ANYTHING, "clients are librdkafka's, which do not ask the broker to check"),
    "metric.reporters": (("", "[]", "org.apache.kafka.common.metrics.JmxReporter"), "read app.metrics, or the table metrics in SQL"),
    "poll.ms": (_ANYTHING, "an instance polls without waiting while it has work, and wakes up when records arrive"),
    "probing.rebalance.interval.ms": (_ANYTHING, _DRIVER),
    "processor.wrapper.class": (("org.apache.kafka.streams.processor.internals.NoOpProcessorWrapper",), "there is no wrapper"),
    "rack.aware.assignment.strategy": (("none",), _DRIVER),
    "rack.aware.assignment.tags": (("", "[]"), _DRIVER),
    "rack.aware.assignment.non_overlap_cost": (_ANYTHING, "it is part of a rack-aware strategy"),
    "rack.aware.assignment.traffic_cost": (_ANYTHING, "it is part of a rack-aware strategy"),
    "state.cleanup.dir.max.age.ms": (("-1",), "directories are cleaned by state.cleanup.delay.ms"),
    "statestore.uncommitted.max.bytes": (_ANYTHING, "a commit is not made early: commit.interval.ms bounds what is uncommitted"),
    "task.timeout.ms": (_ANYTHING, "a task waits for an unavailable broker, and the instance reports why it is recovering"),
    "topology.description.push.enabled": (_ANYTHING, "only members of a streams group push their topology to a broker"),
    "upgrade.from": (_ANYTHING, "there is no rolling upgrade of a group; state is read in the formats of 2.5 and later"),
}
"""Keys accepted without effect: the values for which that is correct (empty: all), and the reason."""

REFUSED: Mapping[str, str] = {
    "allow.os.group.write.access": "state is readable by its user only; put state.dir where that user's group needs no access",
    "config.providers": "ks.secret('env:NAME') and ks.secret('file:/path') keep secrets out of the configuration",
    "default.list.key.serde.inner": "default.key.serde = serdes.list_of(inner), or 'list(long)'",
    "default.list.key.serde.type": "default.key.serde = serdes.list_of(inner), which reads Python lists",
    "default.list.value.serde.inner": "default.value.serde = serdes.list_of(inner), or 'list(long)'",
    "default.list.value.serde.type": "default.value.serde = serdes.list_of(inner), which reads Python lists",
    "ensure.explicit.internal.resource.naming": "omit it; session.plan() lists the names of internal topics",
    "rocksdb.config.setter": "omit it: stores are in LMDB, which has nothing to tune except statestore.cache.max.bytes above it",
    "task.assignor.class": "repl.task.scheduler decides which task runs next; num.stream.threads is the number of instances",
    "window.size.ms": "serdes.time_windowed(inner, window_size_ms) as the source's key serde",
    "windowed.inner.class.serde": "serdes.time_windowed(inner, window_size_ms) or serdes.session_windowed(inner) as the source's key serde",
    "windowstore.changelog.additional.retention.ms": "omit it: changelogs of window stores keep what the stores need by stream time",
}
"""What to use instead."""

_HARMLESS: Mapping[str, tuple[str, ...]] = {
    "allow.os.group.write.access": ("false",),
    "ensure.explicit.internal.resource.naming": ("false",),
    "config.providers": ("", "[]"),
}
"""Values of refused keys that match the fixed behaviour."""

_SERDES: Mapping[str, str] = {
    "String": "string", "Long": "long", "Integer": "integer", "Short": "short", "Float": "float32", "Double": "double",
    "ByteArray": "bytes", "Bytes": "bytes", "ByteBuffer": "bytes", "UUID": "uuid", "Boolean": "boolean", "Void": "void",
}  # fmt: skip
_EXTRACTORS: Mapping[str, str] = {
    "FailOnInvalidTimestamp": "fail_on_invalid_timestamp",
    "LogAndSkipOnInvalidTimestamp": "log_and_skip_on_invalid_timestamp",
    "UsePartitionTimeOnInvalidTimestamp": "use_partition_time_on_invalid_timestamp",
    "WallclockTimestampExtractor": "wall_clock_timestamp",
}
_STORES: Mapping[str, str] = {"RocksDBDslStoreSuppliers": "rocksDB", "InMemoryDslStoreSuppliers": "in_memory"}


def known_value(name: str, value: object) -> object:
    """Return a value in this library's form: Java class names of Kafka's serdes, stores and extractors become their counterparts; other
    values are unchanged.
    """
    if not isinstance(value, str):
        return value
    last = value.rpartition(".")[2].rpartition("$")[2]
    if name in ("default.key.serde", "default.value.serde"):
        return _SERDES.get(last.removesuffix("Serde"), value) if last.endswith("Serde") else value
    if name == "default.timestamp.extractor" and last in _EXTRACTORS:
        return getattr(importlib.import_module("kstreams_repl.engine.dsl.timestamps"), _EXTRACTORS[last])
    return _STORES.get(last, value) if name == "default.dsl.store" else value


def refusal(name: str, value: object) -> str | None:
    """Return why a Kafka Streams key cannot have a value here, with an alternative; None if it can or the key is unknown."""
    text = "" if value is None else str(value).strip()
    if name in REFUSED and value is not None and (text.lower() if isinstance(value, bool) else text) not in _HARMLESS.get(name, ()):
        return REFUSED[name]
    values, why = WITHOUT_EFFECT.get(name, (_ANYTHING, ""))
    if values and value is not None and text not in values:
        return f"{' or '.join(filter(None, values))} is the only supported value: {why}"
    return None


def without_effect(name: str) -> str | None:
    """Return why a Kafka Streams key has no effect here; None if it has one or is unknown."""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name][1]
    return "it matches the fixed behaviour" if name in REFUSED else None


def translated(given: Mapping[str, object], known: Callable[[str], bool]) -> tuple[dict[str, object], dict[str, str]]:
    """Return the settings under this library's names, and the keys without effect with the reason.

    Args:
        known: whether a key is one of this library's own.
    """
    settings: dict[str, object] = {}
    unused: dict[str, str] = {}
    for name, value in given.items():
        why = None if known(name) else without_effect(name)
        if why is not None and refusal(name, value) is None:
            unused[name] = why
        elif name in RENAMED:
            if RENAMED[name] not in given:
                settings[RENAMED[name]] = known_value(RENAMED[name], value)
        else:
            settings[CLIENT.get(name, name)] = known_value(name, value)
    return settings, unused


_HANDLERS = {
    f"{prefix}{kind}ExceptionHandler": word
    for prefix, word in (("LogAndFail", "fail"), ("LogAndContinue", "continue"))
    for kind in ("", "Processing", "Deserialization", "Production")
} | {"DefaultProductionExceptionHandler": "fail"}
"""Kafka Streams' handler classes -> the equivalent word."""


def handler_word(setting: object) -> object:
    """Return the word for the name of one of Kafka Streams' handler classes; other values unchanged.

    Example:
        >>> handler_word("org.apache.kafka.streams.errors.LogAndContinueExceptionHandler")
        'continue'
    """
    return _HANDLERS.get(setting.rsplit(".", 1)[-1], setting) if isinstance(setting, str) else setting
