"""Named options of the cases: stores, timestamp extractors, partitioners, topic names by key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.dsl.timestamps import log_and_skip_on_invalid_timestamp, use_partition_time_on_invalid_timestamp
from kstreams_repl.engine.topology import StoreBuilder, StoreKind
from workshop.conformance import vocabulary as words

Op = dict[str, Any]


class WatchedOp(dict[str, Any]):
    """One op of a case that records which of its fields were read: an unread field would be silently ignored."""

    _FOR_THE_ORACLE = frozenset({"op", "id", "in", "with", "oracle_retention"})

    def __init__(self, fields: Op) -> None:
        super().__init__(fields)
        self._read: set[str] = set(self._FOR_THE_ORACLE)

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self._read.add(str(name))
        return super().__contains__(name)

    def check(self) -> None:
        """Raise if a field was not read; called after the op has been executed.

        Raises:
            KeyError: a field is unknown for this op.
        """
        unread = sorted(set(self) - self._read)
        if unread:
            raise KeyError(f"the op {super().__getitem__('op')!r} does not know the fields {unread}")

_STORE_KINDS = {
    "kv": StoreKind.KEY_VALUE,
    "tskv": StoreKind.TIMESTAMPED_KEY_VALUE,
    "lru": StoreKind.LRU,
    "window": StoreKind.WINDOW,
    "session": StoreKind.SESSION,
    "versioned": StoreKind.VERSIONED,
}


def state_store(op: Op) -> StoreBuilder:
    kind = _STORE_KINDS[op.get("type", "kv")]
    return StoreBuilder(
        op["store"],
        kind,
        serdes.string,
        serdes.json,
        caching=bool(op.get("cache")),
        logging=not op.get("nolog"),
        persistent=not op.get("in_memory") and kind is not StoreKind.LRU,
        retention_ms=op["history"] if kind is StoreKind.VERSIONED else op.get("retention"),
        window_size_ms=op["size"] if kind is StoreKind.WINDOW else None,
        retain_duplicates=bool(op.get("dups")),
        max_entries=op.get("max"),
    )


def _value_time(record: Any, partition_time: int) -> int:
    value = record.value
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else partition_time


def _negative_if_9(record: Any, partition_time: int) -> int:
    return -1 if words.is9(record.value) else record.timestamp


EXTRACTORS: dict[str, Callable[[Any, int], int]] = {
    "value": _value_time,
    "negative_if_9": _negative_if_9,
    "partition_time": use_partition_time_on_invalid_timestamp,
    "log_and_skip": log_and_skip_on_invalid_timestamp,
}
def _by_header(topic: str, key: object, value: object, headers: list[tuple[str, bytes | None]], partitions: int) -> tuple[int, ...] | None:
    """Drop a record whose last header is null; with another header it goes to partition 0, without one to that of its key."""
    return None if not headers else () if headers[-1][1] is None else (0,)


PARTITIONERS: dict[str, Callable[..., Any]] = {
    "drop": lambda topic, key, value, partitions: (),
    "default": lambda topic, key, value, partitions: None,
    "zero": lambda topic, key, value, partitions: {0},
    "by-header": _by_header,
}


class ByKey:
    """Topic names that consist of a prefix and the record's key."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __call__(self, key: object, value: object, record: object) -> str:
        return self.prefix + words.text(key)

    def __str__(self) -> str:
        return f"by-key({self.prefix})"
