"""The rows of a table by `sql` in columns of numpy: partials are merged into them by the column, and written once per commit.

The columns lie over the write-back cache of the table's store (`WriteBackCache.over`), whose flush writes, logs and forwards the rows
that changed. Nothing else reads the store within the task. Invariants: a row is here or in a slot of the cache, never in both; what a
commit writes is what the same partials would, merged one by one. A read of the store from outside flushes the columns first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, compress, islice, repeat, zip_longest
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.batches.partial_columns import PartialColumns
from kstreams_repl.engine.operators.batches.sql_grouping import Merge
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.cache.record_cache import ENTRY_OVERHEAD
from kstreams_repl.system.types import Deserialize, Headers, KeyValueMapper

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray


_CAPACITY = 200_000
"""Rows that are kept after a flush."""
_WAITING = 1024
"""Partials that came one by one and wait until they are merged."""
_VALUE_SIZE = 24
_NO_HEADERS: Headers = []


class MergesRows(Protocol):
    """`stream_sql_aggregate.MergePartials`."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def merges(self) -> tuple[Merge, ...]: ...

    @property
    def averages(self) -> tuple[int, ...]: ...

    @property
    def is_value(self) -> bool: ...

    @property
    def functions(self) -> list[KeyValueMapper]: ...

    def results(self, key: object, row: object) -> Sequence[object]: ...

    def row(self, results: Sequence[object]) -> object: ...


class MergedColumns:
    """The rows of one store in one task.

    Args:
        store: a timestamped key-value store with a write-back cache.
        record: the task's record context.
    """

    def __init__(self, merge: MergesRows, store: Any, record: RecordContext) -> None:
        import numpy

        self._np, self._merge, self._record = numpy, merge, record
        self._cache, self._codec = store.cached, store.cached.codec
        self._key_of: Deserialize = store.key_serde.deserialize
        kinds = [*merge.merges, *(Merge.COUNT for _ in merge.averages)]
        self._columns = [_Column(kind, function, numpy) for kind, function in zip(kinds, merge.functions, strict=True)]
        self._layout = None
        if self._codec.serde is serdes.json and not merge.is_value and not merge.averages:
            names = (orjson.dumps(name).replace(b"%", b"%%") for name in merge.names)
            self._layout = b"{" + b",".join(name + b":%d" for name in names) + b"}"
        self._cache.over = self
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        np = self._np
        self._numbers: dict[bytes, int] = {}
        self._keys: list[bytes] = []
        self._times, self._offsets = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._partitions, self._topics = np.zeros(0, np.int32), np.zeros(0, object)
        self._dirty = np.zeros(0, bool)
        self._headers: dict[int, Headers] = {}
        self._changed: list[NDArray[numpy.int64]] = []
        self._waiting: list[tuple[Any, ...]] = []
        self._size = 0
        for column in self._columns:
            column.clear()
        self._cache.account_over(0)

    @property
    def dirty(self) -> bool:
        """Whether rows changed since the last flush."""
        return bool(self._changed or self._waiting)

    # ---- merging

    def enter(self, key: bytes, partial: Sequence[object], timestamp: int) -> None:
        """Merge the current record's partial, at the latest when the rows are flushed."""
        record = self._record
        self._waiting.append((key, partial, timestamp, record.headers, record.topic, record.partition, record.offset))
        if len(self._waiting) >= _WAITING:
            self._merge_waiting()

    def _merge_waiting(self) -> None:
        if self._waiting:
            keys, partials, timestamps, headers, *origins = map(list, zip(*self._waiting, strict=True))
            self._waiting.clear()
            results = chain(zip_longest(*partials), repeat([None] * len(keys)))  # partials of an earlier query may have fewer
            arrays = [_array(values, self._np) for values in islice(results, len(self._columns))]
            self._merge_columns(PartialColumns(keys, arrays, timestamps, headers if any(headers) else None, *origins))

    def merge(self, partials: PartialColumns) -> None:
        """Merge partials into the rows of their keys."""
        self._merge_waiting()
        if partials.keys:
            self._merge_columns(partials)

    def _merge_columns(self, partials: PartialColumns) -> None:
        np, keys = self._np, partials.keys
        if self._cache.release():  # rows that were read, or put from outside
            self.clear()
        rows = np.fromiter(map(self._numbers.get, keys, repeat(-1)), np.int64, len(keys))
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            new = list(map(keys.__getitem__, missing.tolist()))
            self._load(new)
            rows[missing] = list(map(self._numbers.__getitem__, new))
        rounds = [slice(None)] if len(set(keys)) == len(keys) else _rounds(rows, np)
        try:
            for part in rounds:
                for column, result in zip(self._columns, partials.results, strict=True):
                    self._size += column.merge(rows[part], result[part])
        except _Misfit as error:
            self._locate(partials, int(np.arange(len(keys))[part][error.at]))
            self._record.raised(error.cause)
            raise error.cause from None
        np.maximum.at(self._times, rows, np.asarray(partials.timestamps, np.int64))
        self._offsets[rows], self._partitions[rows], self._topics[rows] = partials.offsets, partials.partitions, partials.topics
        if partials.headers is not None:
            self._headers.update(zip(rows.tolist(), partials.headers, strict=True))
        elif self._headers:
            for number in rows.tolist():
                self._headers.pop(number, None)
        fresh = rows[~self._dirty[rows]]
        self._dirty[rows] = True
        self._changed.append(rows)
        self._size += len(fresh) * (ENTRY_OVERHEAD + len(keys[0]) + _VALUE_SIZE * (1 + len(self._columns)))
        if self._cache.account_over(self._size):
            self.flush()

    def _load(self, keys: Iterable[bytes]) -> None:
        """Add rows, those of the store where it has them."""
        new = list(dict.fromkeys(keys))
        first, count = len(self._keys), len(self._keys) + len(new)
        self._keys += new
        self._numbers.update(zip(new, range(first, count), strict=True))
        if count > len(self._times):
            room = count + count // 2
            for name in ("_times", "_offsets", "_partitions", "_topics", "_dirty"):
                setattr(self, name, _grown(getattr(self, name), room, self._np))
            for column in self._columns:
                column.grow(room)
        stored = list(map(self._cache.below, new))
        if stored.count(None) == len(stored):
            return
        loaded = [(number, self._codec.decode(data)) for number, data in enumerate(stored, first) if data is not None]
        rows = [self._merge.results(self._key_of(self._keys[number]), value) for number, (value, _) in loaded]
        numbers = self._np.array([number for number, _ in loaded], self._np.int64)
        self._times[numbers] = [timestamp for _, (_, timestamp) in loaded]
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=True):
            column.fill(numbers, values)

    def _locate(self, partials: PartialColumns, row: int) -> None:
        """Set the coordinates of a partial's record."""
        record, topics, partitions = self._record, partials.topics, partials.partitions
        record.timestamp, record.offset = partials.timestamps[row], partials.offsets[row]
        record.topic = topics[row] if isinstance(topics, list) else topics
        record.partition = partitions[row] if isinstance(partitions, list) else partitions
        record.headers = _NO_HEADERS if partials.headers is None else partials.headers[row]
        record.raw_key = record.raw_value = None

    # ---- flushing

    def flush(self) -> None:
        """Write, log and forward the rows that changed, in the order of their last partials."""
        self._merge_waiting()
        if not self._changed:
            return
        np, every = self._np, self._np.concatenate(self._changed)
        last, turns = np.zeros(len(self._keys), np.int64), np.arange(len(every))
        last[every] = turns
        at = every[last[every] == turns]
        self._changed.clear()
        self._dirty[at] = False
        self._size = 0
        self._cache.account_over(0)
        numbers, times = at.tolist(), self._times[at].tolist()
        keys = list(map(self._keys.__getitem__, numbers))
        headers = [self._headers.get(number, _NO_HEADERS) for number in numbers] if self._headers else [_NO_HEADERS] * len(numbers)
        data = self._written(at)
        origins = zip(self._topics[at].tolist(), self._partitions[at].tolist(), self._offsets[at].tolist(), strict=True)
        if len(self._keys) > _CAPACITY:
            self._keep(at[-_CAPACITY // 2 :])
        self._cache.write_over(keys, data, times, headers, origins)

    def _written(self, rows: NDArray[numpy.int64]) -> list[bytes | None]:
        """Return the serialized values of rows."""
        columns = [column.values_at(rows) for column in self._columns]
        if self._layout is not None and all(column.is_whole(rows) for column in self._columns):
            return list(map(self._layout.__mod__, zip(*columns, strict=True)))
        row, serialize = self._merge.row, self._codec.serde.serialize
        return [serialize(row(results)) for results in zip(*columns, strict=True)]

    def _keep(self, rows: NDArray[numpy.int64]) -> None:
        """Forget the other rows."""
        numbers = rows.tolist()
        self._keys = list(map(self._keys.__getitem__, numbers))
        self._numbers = dict(zip(self._keys, range(len(numbers)), strict=True))
        self._headers = {new: self._headers[old] for new, old in enumerate(numbers) if old in self._headers}
        for name in ("_times", "_offsets", "_partitions", "_topics", "_dirty"):
            setattr(self, name, getattr(self, name)[rows])
        for column in self._columns:
            column.keep(rows)


# ---- one column ----------------------------------------------------------------------------------------------------------------------


class _Misfit(Exception):
    """A result that cannot be merged.

    Attributes:
        at: its number.
    """

    def __init__(self, at: int, cause: Exception) -> None:
        super().__init__(str(cause))
        self.at, self.cause = at, cause


class _Column:
    """One result of every row: 64-bit integers, doubles, truth values, or objects where they are mixed or texts.

    Args:
        merge, function: how it is merged, and (old, new) -> merged for objects.
    """

    def __init__(self, merge: Merge, function: KeyValueMapper, np: ModuleType) -> None:
        self._kind, self._function, self._np = merge, function, np
        self.clear()

    def clear(self) -> None:
        self._values: Any = None
        self._known = self._np.zeros(0, bool)

    def grow(self, room: int) -> None:
        self._known = _grown(self._known, room, self._np)
        if self._values is not None:
            self._values = _grown(self._values, room, self._np)

    def keep(self, rows: NDArray[numpy.int64]) -> None:
        self._known = self._known[rows]
        self._values = None if self._values is None else self._values[rows]

    def fill(self, rows: NDArray[numpy.int64], values: Sequence[object]) -> None:
        """Put the results of rows that were read."""
        column = _array(values, self._np)
        if column.mask.all():
            return
        self._fit(column.dtype)
        self._values[rows] = column.data if self._values.dtype == column.dtype else column.data.astype(object)
        self._known[rows] = ~column.mask

    def _fit(self, dtype: Any) -> None:
        """Have the column keep values of this type, too."""
        if self._values is None:
            self._values = self._np.zeros(len(self._known), dtype)
        elif self._values.dtype != dtype:
            self._values = self._values.astype(object)

    def values_at(self, rows: NDArray[numpy.int64]) -> list[object]:
        """Return results of rows; None for those that are not known."""
        has_value = self._known[rows]
        if self._values is None:
            return [None] * len(rows)
        values: list[object] = self._values[rows].tolist()
        return values if has_value.all() else [value if is_set else None for value, is_set in zip(values, has_value.tolist(), strict=True)]

    def is_whole(self, rows: NDArray[numpy.int64]) -> bool:
        """Return whether these rows have integers."""
        return self._values is not None and self._values.dtype == self._np.int64 and bool(self._known[rows].all())

    def merge(self, rows: NDArray[numpy.int64], results: Any) -> int:
        """Merge results into these rows, each of which occurs once; return how many characters were merged.

        Raises:
            _Misfit: a sum is out of range.
        """
        np = self._np
        has_value = ~np.ma.getmaskarray(results)
        new = np.ma.getdata(results)
        if not has_value.any():
            if self._kind is Merge.SAME:
                self._known[rows] = False
            return 0
        dtype = np.dtype(_DTYPES_OF_KINDS.get(new.dtype.kind, object))
        self._fit(dtype)
        if self._values.dtype == object:
            return self._merge_objects(rows, [value if is_known else None for value, is_known in zip(new.tolist(), has_value, strict=True)])
        new = new.astype(dtype, copy=False)
        values, before = self._values, self._known[rows]
        if self._kind is Merge.SAME:
            values[rows], self._known[rows] = new, has_value
            return 0
        old = values[rows]
        if self._kind in _ADDED:
            values[rows] = np.where(has_value & before, self._sum(old, new, has_value & before), np.where(has_value, new, old))
        else:
            better = new < old if self._kind in _LEAST else new > old
            values[rows] = np.where(has_value & (~before | better), new, old)
        self._known[rows] = before | has_value
        return 0

    def _sum(self, old: Any, new: Any, both: Any) -> Any:
        np = self._np
        with np.errstate(over="ignore", invalid="ignore"):
            total = old + new
        wrong = both & (((old ^ total) & (new ^ total)) < 0 if total.dtype == np.int64 else ~np.isfinite(total))
        if wrong.any():
            index = int(wrong.argmax())
            self._merge_one(index, old[index].item(), new[index].item())
        return total

    def _merge_objects(self, rows: NDArray[numpy.int64], new: list[Any]) -> int:
        np = self._np
        old = [value if is_set else None for value, is_set in zip(self._values[rows].tolist(), self._known[rows].tolist(), strict=True)]
        merged = _objects([self._merge_one(number, *pair) for number, pair in enumerate(zip(old, new, strict=True))], np)
        self._values[rows], self._known[rows] = merged.data, ~merged.mask
        return sum(len(value) for value in new if type(value) is str)

    def _merge_one(self, row: int, old: object, new: object) -> object:
        try:
            return self._function(old, new)
        except Exception as error:
            raise _Misfit(row, error) from error


_DTYPES: dict[type, str] = {int: "int64", float: "float64", bool: "bool"}
_DTYPES_OF_KINDS: dict[str, str] = {"i": "int64", "u": "int64", "f": "float64", "b": "bool"}
_ADDED = frozenset({Merge.SUM, Merge.COUNT, Merge.AVERAGE})
_LEAST = frozenset({Merge.MIN, Merge.AND})


def _objects(values: Sequence[object], np: ModuleType) -> Any:
    """Return an array of objects; None is masked."""
    column = np.ma.empty(len(values), object)
    for index, value in enumerate(values):  # not by a slice, which takes lists for a dimension
        column.data[index] = value
    column.mask = [value is None for value in values]
    return column


def _array(values: Sequence[object], np: ModuleType) -> Any:
    """Return objects as an array of their type; None is masked."""
    has_value = [value is not None for value in values]
    kinds = set(map(type, compress(values, has_value)))
    dtype = _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if dtype is None:
        return _objects(values, np)
    try:
        filled = np.array([0 if value is None else value for value in values], dtype)
    except OverflowError:  # an integer of more than 64 bits
        return _objects(values, np)
    return np.ma.array(filled, mask=[not is_known for is_known in has_value])


def _grown(column: Any, room: int, np: ModuleType) -> Any:
    """Return the array with room for more."""
    more = np.zeros(room, column.dtype)
    more[: len(column)] = column
    return more


def _rounds(rows: NDArray[numpy.int64], np: ModuleType) -> list[Any]:
    """Return the numbers of the rows in parts, in order, in none of which a row occurs twice."""
    seen: dict[int, int] = {}
    turn = np.empty(len(rows), np.int64)
    for index, number in enumerate(rows.tolist()):
        turn[index] = seen[number] = seen.get(number, -1) + 1
    return [np.flatnonzero(turn == each) for each in range(int(turn.max()) + 1)]
