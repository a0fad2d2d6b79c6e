"""A store as a table, from the raw rows of its tasks: key, value, timestamp, and window bounds if there are any.

The rows are those in the store's engine (`engine/stores/codec`, `window`, `session`, `versioned`). Rows that a reader of the store would
not see, because they have expired, are left out here too. `partition` is the task's.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa
import pyarrow.compute

from kstreams_repl.engine.operators.streams.stream_async import WAITING
from kstreams_repl.engine.runtime.calls.pending_rows import PendingRow
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.header_ids import framing
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.pictures.columns import TableData, calendar_note, decode, long_pairs, longs, milliseconds, unreadable_note
from kstreams_repl.pictures.wording import counted, duration
from kstreams_repl.repl.inspection.pushdown import UNBOUNDED, Bounds
from kstreams_repl.system.errors import SerializationError
from kstreams_repl.system.types import RecordBatch

PREFIX = 8
SIZE_UNKNOWN = "size unknown"
"""The option of a window store whose windows have an unknown end."""
_LONG = struct.Struct(">q")
_TIME_AT = {StoreKind.WINDOW: 12, StoreKind.TIMESTAMPED_WINDOW: 12, StoreKind.SESSION: 16}
_LEAST = {**_TIME_AT, StoreKind.TIME_ORDERED_WINDOW: 12}
"""Least length of a key, which has times at its end."""
"""Position of the timestamp used for retention, from the end of a key."""
_STAMPED = frozenset(
    {
        StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.VERSIONED, StoreKind.SUBSCRIPTION,
        StoreKind.TIME_ORDERED_WINDOW,
    }
)  # fmt: skip
"""Kinds of stores whose rows start with the record's timestamp."""
MAX_LONG = 2**63 - 1


@dataclass(frozen=True, slots=True)
class StoreRows:
    """The raw rows of one store in one task.

    Attributes:
        observed_time: the largest timestamp (ms) put into a window or session store; -1 if there is none.
        complete: False if rows were left out because of a bound.
        unreadable: number of records of a changelog that are not rows of such a store.
    """

    partition: int
    keys: Sequence[bytes]
    values: Sequence[bytes]
    observed_time: int = -1
    complete: bool = True
    unreadable: int = 0


class LogRows:
    """One partition of a store's changelog, or of the source topic of a table, converted to the rows that the store holds."""

    def __init__(self, builder: StoreBuilder, partition: int) -> None:
        self._builder = builder
        self._partition = partition
        self._frame = None if builder.source_topic is None else framing(builder.key_serde, builder.value_serde)
        self._rows: dict[bytes, bytes] = {}
        self._time_at = _TIME_AT.get(builder.kind)
        self._least = _LEAST.get(builder.kind, 0)
        self._unreadable = 0
        self._observed = -1
        self._latest: dict[bytes, int] | None = {} if builder.kind is StoreKind.VERSIONED else None
        self._stamped = builder.kind in _STAMPED and bool(builder.options.get("timestamped", True))

    def add(self, batch: RecordBatch) -> None:
        """Add the next records, in order."""
        if batch.headers is not None and self._frame is not None:
            batch = self._frame(batch)
        rows, stamped, pack = self._rows, self._stamped, _LONG.pack
        physical: Callable[[bytes], bytes] = _AS_STORED.get(self._builder.kind, bytes)
        if self._time_at is not None:
            at = self._time_at
            whole = (key for key in batch.keys if key is not None and len(key) >= at)
            times = (int.from_bytes(key[len(key) - at : len(key) - at + 8], "big", signed=True) for key in whole)
            self._observed = max(self._observed, max(times, default=-1))
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if key is None:
                continue
            if len(key) < self._least:
                self._unreadable += 1
                continue
            if self._latest is not None:  # older versions may be logged later
                if timestamp < self._latest.get(key, timestamp):
                    continue
                self._latest[key] = timestamp
            if value is None:
                rows.pop(physical(key), None)
            else:
                rows[physical(key)] = pack(timestamp) + value if stamped else value

    def rows(self, limit: int | None = None) -> StoreRows:
        """Return the rows; keys are in the order in which they were first put."""
        kept = list(self._rows.items())[:limit]
        keys, values = [key for key, _ in kept], [value for _, value in kept]
        return StoreRows(self._partition, keys, values, self._observed, len(kept) == len(self._rows), self._unreadable)


def keys_needed(serde: Serde, bounds: Mapping[str, Bounds]) -> list[bytes] | None:
    """Return the serialized keys within bounds; None if they are not known, or if other bytes can be read as one of them."""
    wanted = bounds.get("key", UNBOUNDED).among
    kind = {"string": str, "long": int, "integer": int, "short": int}.get(serde.name) if serde._builtin else None
    if wanted is None or kind is None:
        return None
    if not all(isinstance(key, kind) and "\N{REPLACEMENT CHARACTER}" not in str(key) for key in wanted):
        return None
    with suppress(SerializationError):  # a number that is too large
        return [serde.serialize(key) or b"" for key in wanted]
    return None


def store_table(
    builder: StoreBuilder, parts: Sequence[StoreRows], *, key_serde: Serde, value_serde: Serde, as_of: str = "", commits: str = ""
) -> TableData:
    """Return one table of a store's rows in all tasks.

    Args:
        key_serde, value_serde: the store's serdes, with the application's defaults filled in.
        as_of, commits: the time of the commits that the rows reflect, for the bound, and these commits.
    """
    layout = _LAYOUTS.get(builder.kind, _raw)
    seen = [_visible(builder, part) for part in parts]
    keys = list(chain.from_iterable(part.keys for part in seen))
    values = list(chain.from_iterable(part.values for part in seen))
    partitions = [pa.array([part.partition], pa.int32()).take(pa.array(bytes(len(part.keys)), pa.uint8())) for part in seen]
    columns, json_columns, notes = layout(builder, keys, values, key_serde, value_serde)
    hidden = sum(len(part.keys) for part in parts) - len(keys)
    if hidden and builder.retention_ms is not None:
        kept, older = duration(builder.retention_ms), counted(hidden, "older row")
        notes = (*notes, f"store {builder.name} keeps {kept} of stream time: {older} not shown; retention= keeps more")
    columns["partition"] = pa.concat_arrays(partitions) if partitions else pa.array([], pa.int32())
    bound = f"store {builder.name}: {counted(len(keys), 'row')} of {counted(len(parts), 'task')}"
    if unreadable := sum(part.unreadable for part in parts):
        is_row = "record of its changelog is not a row" if unreadable == 1 else "records of its changelog are not rows"
        notes += (f"store {builder.name}: {unreadable:,} {is_row} of such a store and left out",)
    incomplete = sum(not part.complete for part in parts)
    cut = (
        f"store {builder.name}: only {counted(len(keys), 'row')} were read, "
        f"{incomplete} of {counted(len(parts), 'task')} {'holds' if incomplete == 1 else 'hold'} more; "
        "store_limit=None reads all"
        if incomplete
        else ""
    )
    return TableData(columns, json_columns, bound + (f", {as_of}" if as_of else ""), notes, cut, commits)


_Layout = tuple[dict[str, pa.Array], tuple[str, ...], tuple[str, ...]]


def _visible(builder: StoreBuilder, part: StoreRows) -> StoreRows:
    """Return the rows without the expired ones of window and session stores."""
    at = _TIME_AT.get(builder.kind)
    if at is None or builder.retention_ms is None or part.observed_time - builder.retention_ms < 0:
        return part
    hidden = part.observed_time - builder.retention_ms
    times = longs([key[len(key) - at : len(key) - at + 8] for key in part.keys])
    kept = [index for index, time in enumerate(times.to_pylist()) if time > hidden]
    if len(kept) == len(times):
        return part
    return replace(part, keys=[part.keys[i] for i in kept], values=[part.values[i] for i in kept])


def _key_value(builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde) -> _Layout:
    if builder.options.get(WAITING):
        return _waiting(keys, values)
    return _columns(keys, key_serde, values, value_serde, {}, {})


def _waiting(keys: list[bytes], values: list[bytes]) -> _Layout:
    """Return the records that wait in an asynchronous node: those that were never tried have no next try and no cause."""
    rows = [PendingRow.decode(value) for value in values]
    key, value = decode(None, [row.key for row in rows]), decode(None, [row.value for row in rows])
    columns = {
        "number": longs(keys),
        "key": key.values,
        "value": value.values,
        "tries": pa.array([row.attempt - 1 for row in rows], pa.int32()),
        "next_try": milliseconds([row.due or None for row in rows]),
        "cause": pa.array([row.cause or None for row in rows], pa.string()),
        "trace": pa.array([row.trace or None for row in rows], pa.string()),
        "topic": pa.array([row.at.topic for row in rows], pa.string()),
        "source_partition": pa.array([row.at.partition for row in rows], pa.int32()),
        "offset": pa.array([row.at.offset for row in rows], pa.int64()),
        "timestamp": milliseconds([row.timestamp for row in rows]),
    }
    return columns, tuple(name for name, column in (("key", key), ("value", value)) if column.is_json), ()


def _timestamped(builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde) -> _Layout:
    if value_serde.name == "long" and value_serde._builtin and set(map(len, values)) == {16}:
        # counts, the most common store: decode both numbers of all rows at once
        times, numbers = long_pairs(values)
        columns, json_columns, notes = _columns(keys, key_serde, [], value_serde, {}, {"timestamp": milliseconds(times)})
        return {**columns, "value": numbers}, json_columns, notes
    stamps = {"timestamp": milliseconds(longs([value[:8] for value in values]))}
    return _columns(keys, key_serde, [value[8:] for value in values], value_serde, {}, stamps)


def _window(builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde) -> _Layout:
    return _columns([key[PREFIX:-12] for key in keys], key_serde, values, value_serde, _window_bounds(builder, keys), {})


def _timestamped_window(
    builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde
) -> _Layout:
    times = {"timestamp": milliseconds(longs([value[:8] for value in values]))}
    plain = [value[8:] for value in values]
    return _columns([key[PREFIX:-12] for key in keys], key_serde, plain, value_serde, _window_bounds(builder, keys), times)


def _window_bounds(builder: StoreBuilder, keys: list[bytes]) -> dict[str, pa.Array]:
    return _bounds(builder, longs([key[-12:-4] for key in keys]))


def _bounds(builder: StoreBuilder, starts: pa.Array) -> dict[str, pa.Array]:
    if builder.options.get(SIZE_UNKNOWN):
        return {"window_start": milliseconds(starts)}
    size = builder.window_size_ms or 0
    ends = pa.compute.add(pa.compute.min_element_wise(starts, MAX_LONG - size), size)  # an unlimited window ends at the maximal time
    return {"window_start": milliseconds(starts), "window_end": milliseconds(ends)}


def _session(builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde) -> _Layout:
    bounds = {
        "window_start": milliseconds(longs([key[-8:] for key in keys])),
        "window_end": milliseconds(longs([key[-16:-8] for key in keys])),
    }
    return _columns([key[PREFIX:-16] for key in keys], key_serde, values, value_serde, bounds, {})


def _time_ordered(builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde) -> _Layout:
    """Return rows ordered by window start: `start‖key‖0` (emit on window close)."""
    times = {}
    if builder.options.get("timestamped", True):
        times["timestamp"] = milliseconds(longs([value[:8] for value in values]))
        values = [value[8:] for value in values]
    bounds = _bounds(builder, longs([key[:8] for key in keys]))
    return _columns([key[8:-4] for key in keys], key_serde, values, value_serde, bounds, times)


def _versioned(builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde) -> _Layout:
    """Return the current versions."""
    return _timestamped(builder, keys, values, key_serde, value_serde)


def _raw(builder: StoreBuilder, keys: list[bytes], values: list[bytes], key_serde: Serde, value_serde: Serde) -> _Layout:
    """Return the raw bytes of a store that is private to an operator."""
    return {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}, (), ()


def _columns(
    keys: list[bytes],
    key_serde: Serde,
    values: list[bytes],
    value_serde: Serde,
    bounds: dict[str, pa.Array],
    times: dict[str, pa.Array],
) -> _Layout:
    key, value = decode(key_serde, keys), decode(value_serde, values)
    notes = unreadable_note("key", key.unreadable, key_serde) + unreadable_note("value", value.unreadable, value_serde)
    notes += calendar_note(sum(column.null_count for column in times.values()))
    json_columns = tuple(name for name, column in (("key", key), ("value", value)) if column.is_json)
    return {"key": key.values, **key.more, **bounds, "value": value.values, **times}, json_columns, notes


def _with_prefix(key: bytes) -> bytes:
    return bytes(PREFIX) + key


def _by_time(key: bytes) -> bytes:
    """Return the time-first key of a window store for its changelog key."""
    return key[-12:-4] + key[:-12] + key[-4:]


_AS_STORED: dict[StoreKind, Callable[[bytes], bytes]] = {
    StoreKind.WINDOW: _with_prefix,
    StoreKind.TIMESTAMPED_WINDOW: _with_prefix,
    StoreKind.SESSION: _with_prefix,
    StoreKind.TIME_ORDERED_WINDOW: _by_time,
}
"""Functions that convert a changelog key to the key in the store's engine."""

_LAYOUTS: dict[StoreKind, Callable[[StoreBuilder, list[bytes], list[bytes], Serde, Serde], _Layout]] = {
    StoreKind.KEY_VALUE: _key_value,
    StoreKind.LRU: _key_value,
    StoreKind.TIMESTAMPED_KEY_VALUE: _timestamped,
    StoreKind.VERSIONED: _versioned,
    StoreKind.WINDOW: _window,
    StoreKind.TIMESTAMPED_WINDOW: _timestamped_window,
    StoreKind.SESSION: _session,
    StoreKind.TIME_ORDERED_WINDOW: _time_ordered,
}
