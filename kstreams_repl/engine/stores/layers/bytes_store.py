"""The bytes under a typed store: physical keys, and the corresponding changelog keys.

`PhysicalRows` is the seam between the layers above (objects, caches) and the physical layout below. A key-value store uses its engine
directly; window and session stores prefix every key with a segment id (`segments.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from kstreams_repl.engine.stores.engine.environment import Engine, Row
from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.engine.stores.log.changelog import Changelog
from kstreams_repl.system.types import Deserialize


class PhysicalRows(Protocol):
    """The physical rows of one store. `get` and `put` are plain callables."""

    get: Callable[[bytes], bytes | None]
    """Returns None if the row does not exist or has expired."""

    put: Callable[[bytes, bytes | None], None]
    """Drops and counts a row whose segment has expired."""

    log_key: Callable[[bytes], bytes] | None
    """Returns the changelog key of a physical key; None when both are the same."""

    def range(self, low: bytes | None, high: bytes | None, reverse: bool) -> Iterator[Row]:
        """Iterate over live rows with low <= key < high."""

    def approximate_count(self) -> int: ...


PutMany = Callable[[Sequence[bytes], Sequence[bytes | None]], None]
"""(keys, stored bytes): equivalent to one `put` after the other."""


def many_at_once(rows: PhysicalRows) -> PutMany:
    """Return the rows' own `put_many`, or one that calls `put` for each row."""

    def one_by_one(keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        put = rows.put
        for key, value in zip(keys, values, strict=True):
            put(key, value)

    return getattr(rows, "put_many", one_by_one)


class EngineRows:
    """The rows of a key-value store: those of its engine."""

    __slots__ = ("get", "put", "put_many", "range", "approximate_count", "log_key")

    def __init__(self, engine: Engine) -> None:
        self.get: Callable[[bytes], bytes | None] = engine.get
        self.put: Callable[[bytes, bytes | None], None] = engine.put
        self.put_many: PutMany = engine.put_many
        self.range = engine.range
        self.approximate_count = engine.approximate_count
        self.log_key: Callable[[bytes], bytes] | None = None


def merged_over(
    rows: Iterator[Row], cached: Iterable[tuple[bytes, object]], decode: Deserialize, reverse: bool
) -> Iterator[tuple[bytes, object]]:
    """Iterate lazily over rows and the objects cached over them, both in key order; a cached None hides its row."""
    row = next(rows, None)
    for key, item in cached:
        while row is not None and row[0] != key and (row[0] > key if reverse else row[0] < key):
            yield row[0], decode(row[1])
            row = next(rows, None)
        if row is not None and row[0] == key:
            row = next(rows, None)
        if item is not None:
            yield key, item
    while row is not None:
        yield row[0], decode(row[1])
        row = next(rows, None)


Write = Callable[[bytes, bytes | None, int], None]
"""(physical key, stored bytes or None, timestamp of the current record): write a row and log it."""


def logged_write(rows: PhysicalRows, codec: Codec, changelog: Changelog, put: Callable[[bytes, bytes | None], None] | None = None) -> Write:
    """Return the change-logging layer: it writes a row, then logs it, whether or not the row was accepted (as Kafka Streams does).

    Args:
        put: used instead of `rows.put` for rows that were already admitted when they were deferred.
    """
    put = rows.put if put is None else put
    log, log_key = changelog.log, rows.log_key
    log_value, log_timestamp = codec.log_value, codec.log_timestamp
    if changelog.send is None:
        return lambda key, stored, timestamp: put(key, stored)
    if codec.log_headers is not None:
        return _write_with_headers(put, log_key, codec, changelog)

    def write(key: bytes, stored: bytes | None, timestamp: int) -> None:
        put(key, stored)
        if log_key is not None:
            key = log_key(key)
        if stored is None:
            log(key, None, timestamp)
        else:
            log(key, log_value(stored), log_timestamp(stored, timestamp))

    return write


def _write_with_headers(
    put: Callable[[bytes, bytes | None], None], log_key: Callable[[bytes], bytes] | None, codec: Codec, changelog: Changelog
) -> Write:
    log, log_value, log_timestamp, log_headers = changelog.log, codec.log_value, codec.log_timestamp, codec.log_headers
    assert log_headers is not None

    def write(key: bytes, stored: bytes | None, timestamp: int) -> None:
        put(key, stored)
        if log_key is not None:
            key = log_key(key)
        if stored is None:
            log(key, None, timestamp, log_headers(None))
        else:
            log(key, log_value(stored), log_timestamp(stored, timestamp), log_headers(stored))

    return write


LogColumns = Callable[[Sequence[bytes], Sequence[bytes | None], Sequence[bytes | None], Sequence[int]], None]
"""(physical keys, stored bytes, changelog values, changelog timestamps): write rows and log them."""


def logged_columns(rows: PhysicalRows, changelog: Changelog) -> LogColumns:
    """Return `logged_write` for columns of rows that have been encoded."""
    put_many, log_key = many_at_once(rows), rows.log_key

    def write(
        keys: Sequence[bytes], stored: Sequence[bytes | None], logged: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        put_many(keys, stored)
        changelog.send_many(keys if log_key is None else list(map(log_key, keys)), logged, timestamps)

    return write
