"""Which store a changelog is of, as far as its topic shows: the kind from the topic's settings and the form of the keys, serdes from bytes.

Kafka Streams gives changelogs of window and session stores ``cleanup.policy=compact,delete`` and those of versioned stores
``min.compaction.lag.ms``. A windowed key ends in its start and a number, a session's in its end and start (`WindowKeySchema`,
`SessionKeySchema`). The size of a window is nowhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kstreams_repl.engine import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.pictures.columns import SerializedValues, guess, recognised
from kstreams_repl.repl.inspection.stores import SIZE_UNKNOWN
from kstreams_repl.system.types import Headers, RecordBatch

ADDED_RETENTION_MS = 86_400_000
"""``windowstore.changelog.additional.retention.ms``, by default: a changelog keeps rows for so much longer than its store."""
_PRIVATE = {
    "KTABLE-SUPPRESS-STATE-STORE-": StoreKind.SUPPRESS_BUFFER,
    "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-": StoreKind.SUBSCRIPTION,
    "-subscription-store": StoreKind.SUBSCRIPTION,
    "KSTREAM-OUTERSHARED-": StoreKind.OUTER_JOIN,
    "-shared-join-store": StoreKind.OUTER_JOIN,
}
"""Parts of the names that Kafka Streams generates for stores that only their operator reads."""
_NUMBERED = 4
_WINDOWED = 12
_OF_SESSION = 16
_PLAUSIBLE_LONG = 1 << 53


@dataclass(slots=True)
class ChangelogSample:
    """Some records of a changelog."""

    keys: list[bytes] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Headers | None] = field(default_factory=list)
    latest: int = -1

    def add(self, batch: RecordBatch) -> None:
        for key, value, own in zip(batch.keys, batch.values, batch.headers or [None] * len(batch), strict=True):
            if key is not None:
                self.keys.append(key)
                self.values.append(value)
                self.headers.append(own)
        self.latest = max(self.latest, *batch.timestamps)


def recognised_store(
    name: str, configs: Mapping[str, str], sample: ChangelogSample, key_serde: Serde | None = None, value_serde: Serde | None = None
) -> StoreBuilder:
    """Return the store that a changelog is of, with the serdes given or guessed.

    Args:
        configs: settings of the changelog topic.
        sample: some of its records; without any it is a key-value store of bytes.
    """
    kind = _kind(name, configs, sample)
    end = {StoreKind.TIMESTAMPED_WINDOW: _WINDOWED, StoreKind.WINDOW: _WINDOWED, StoreKind.SESSION: _OF_SESSION}.get(kind, 0)
    keys = [key[: len(key) - end] for key in sample.keys]
    expires = end and "delete" in configs.get("cleanup.policy", "")
    retention = max(int(configs.get("retention.ms", -1)) - ADDED_RETENTION_MS, 0) if expires else 0
    return StoreBuilder(
        name,
        kind,
        key_serde or _serde(keys, sample.headers, is_key=True),
        value_serde or _serde(sample.values, sample.headers, is_key=False),
        retention_ms=retention or None,
        window_size_ms=0 if end == _WINDOWED else None,
        retain_duplicates=kind is StoreKind.WINDOW,
        options={SIZE_UNKNOWN: True} if end == _WINDOWED else {},
    )


def _kind(name: str, configs: Mapping[str, str], sample: ChangelogSample) -> StoreKind:
    for part, kind in _PRIVATE.items():
        if part in name:
            return kind
    if "delete" in configs.get("cleanup.policy", ""):
        if _all(sample.keys, _WINDOWED, lambda key: key[-_NUMBERED:] == bytes(_NUMBERED) and _is_time(key[-_WINDOWED:-_NUMBERED], sample)):
            return StoreKind.TIMESTAMPED_WINDOW
        if _all(sample.keys, _OF_SESSION, lambda key: _is_session(key[-_OF_SESSION:], sample)):
            return StoreKind.SESSION
        if _all(sample.keys, _WINDOWED, lambda key: _is_time(key[-_WINDOWED:-_NUMBERED], sample)):
            return StoreKind.WINDOW
    return StoreKind.VERSIONED if int(configs.get("min.compaction.lag.ms", 0)) > 0 else StoreKind.TIMESTAMPED_KEY_VALUE


def _all(keys: Sequence[bytes], least: int, holds: Callable[[bytes], bool]) -> bool:
    return bool(keys) and all(len(key) >= least and holds(key) for key in keys)


def _is_time(data: bytes, sample: ChangelogSample) -> bool:
    return 0 <= int.from_bytes(data, "big", signed=True) <= sample.latest


def _is_session(data: bytes, sample: ChangelogSample) -> bool:
    return _is_time(data[:8], sample) and _is_time(data[8:], sample) and data[:8] >= data[8:]


def _serde(cells: SerializedValues, headers: Sequence[Headers | None], *, is_key: bool) -> Serde:
    """Return the serde that the bytes suggest; numbers too, which `columns.guess` leaves as bytes."""
    there = [bytes(cell) for cell in cells if cell is not None]
    sizes = set(map(len, there)) if guess(there) == "bytes" else set()
    if sizes == {8}:
        if all(abs(number) < _PLAUSIBLE_LONG for (number,) in map(struct.Struct(">q").unpack, there)):
            return serdes.long
        return serdes.double
    if sizes == {4}:
        return serdes.integer
    return recognised(None, cells, headers, "key" if is_key else "value")[0]
