"""Records as Arrow columns: what `map_batches` gives its function and `sql` its query.

A column is typed by the stream's serde, and by the first value where that is not known. Fields of JSON objects are read by the column,
with declared types, so that a type never depends on which records share a batch. Invariant: a column has one entry per record, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.operators.batches.exact_columns import exact_array
from kstreams_repl.engine.operators.batches.json_fields import json_reader, json_type
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.system.errors import InvalidRecordError, MissingPackageError, TopologyError, did_you_mean
from kstreams_repl.system.types import Headers

if TYPE_CHECKING:
    import pyarrow as pa

COORDINATES = ("key", "timestamp", "partition", "offset", "headers")
"""Columns of every batch besides the values."""
VALUE = "value"
Fields = tuple[tuple[str, object], ...]
"""(name, Arrow type or its alias) of the declared fields."""

_TYPES: dict[object, str] = {
    int: "int64", float: "float64", str: "string", bool: "bool", "bigint": "int64", "integer": "int32", "smallint": "int16",
    "double": "float64", "real": "float32", "varchar": "string", "text": "string", "boolean": "bool",
}  # fmt: skip
_BY_SERDE = {
    "string": "string", "long": "int64", "integer": "int32", "short": "int16", "double": "float64", "float32": "float32",
    "boolean": "bool", "bytes": "binary", "json": "json",
}  # fmt: skip
_BY_VALUE: dict[type, str] = {str: "string", bool: "bool", int: "int64", float: "float64", bytes: "binary"}


@dataclass(slots=True)
class RecordColumns:
    """The records of one batch.

    Attributes:
        count: how many.
        keys, values: return the objects.
        partitions, offsets: where they were read; -1 for records that were made in a punctuation. One number if it is the same for all.
        headers: None if no record has any.
        texts: the values as JSON that has not been read; None: read `values`.
        key_texts: the keys as UTF-8 that has not been read; None: read `keys`.
    """

    count: int
    keys: Callable[[], Sequence[object]]
    values: Callable[[], Sequence[object]]
    timestamps: Sequence[int]
    partitions: Sequence[int] | int
    offsets: Sequence[int]
    headers: Sequence[Headers] | None
    texts: Sequence[bytes | None] | None = None
    key_texts: Sequence[bytes | None] | None = None
    are_read: bool = False
    found: list[bool] | None = None
    """After `fields`: which values are not None; None if all are."""

    def json(self) -> Sequence[bytes | None]:
        """Return the values as JSON text; None for a value None."""
        return list(map(serdes.json.serialize, self.values())) if self.texts is None else self.texts

    def has_value(self) -> list[bool] | None:
        """Return which records have another value than None; None if all have."""
        if self.are_read:
            return self.found
        texts = self.values() if self.texts is None else self.texts
        return [value is not None for value in texts] if None in texts else None

    def coordinate(self, name: str, kind: str | None) -> pa.Array:
        """Return one of `COORDINATES` as an Arrow array.

        Args:
            kind: the type of the keys.
        """
        pa = arrow("a batch")
        if name == "key":
            return self._keys(kind)
        if name == "timestamp":
            return pa.array(self.timestamps, pa.int64()).cast(pa.timestamp("ms"))
        if name == "offset":
            offsets = self.offsets
            if isinstance(self.partitions, int) and offsets and offsets[-1] - offsets[0] == self.count - 1:  # of one partition, no gaps
                return pa.compute.add(self.numbers().cast(pa.int64()), offsets[0])
            return pa.array(offsets, pa.int64())
        if name == "partition":
            numbers = self.partitions
            return pa.repeat(pa.scalar(numbers, pa.int32()), self.count) if isinstance(numbers, int) else pa.array(numbers, pa.int32())
        entry = pa.struct([("name", pa.string()), ("value", pa.binary())])
        if self.headers is None or not any(self.headers):
            return pa.ListArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), self.count + 1), pa.array([], entry))
        return pa.array([[{"name": one, "value": value} for one, value in headers] for headers in self.headers], pa.list_(entry))

    def _keys(self, kind: str | None) -> pa.Array:
        pa = arrow("a batch")
        if self.key_texts is not None and kind == "string":
            try:
                return pa.array(self.key_texts, pa.binary()).cast(pa.string())
            except pa.ArrowInvalid:  # no UTF-8; the serde replaces it
                pass
        return typed(self.keys(), kind, "key")

    def numbers(self) -> pa.Array:
        """Return the numbers of the records, from 0, as an Arrow array."""
        return _numbers(max(self.count, 8192)).slice(0, self.count)

    def fields(self, schema: object) -> dict[str, pa.Array]:
        """Return the declared fields of JSON objects as columns: a missing field and a value None are null, other fields are not read.

        Raises:
            InvalidRecordError: a value is not an object, or a field has another type.
        """
        columns, self.found = json_reader(schema).columns(self.json())
        self.are_read = True
        return columns


@dataclass(slots=True)
class BatchResult:
    """What a batch became: give `values`, `texts`, or a function for each, or `columns`.

    Attributes:
        rows: for each output record the index of its input record, ascending.
        values: returns the values of the output; None: read `texts`.
        texts: returns them as the json serde writes them; None: write `values`.
        keys: of the output records; None: those of their input records.
        dropped: how many input records were dropped, by reason.
        columns: arrays of numpy, whose rows are the values as tuples.
    """

    rows: Sequence[int]
    values: Callable[[], Sequence[Any]] | None = None
    texts: Callable[[], Sequence[bytes | None]] | None = None
    keys: Sequence[object] | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    columns: Sequence[Any] | None = None

    def objects(self) -> Sequence[object]:
        """Return the values as objects."""
        if self.values is not None:
            return self.values()
        if self.columns is not None:
            return list(zip(*(column.tolist() for column in self.columns), strict=True))
        return [] if self.texts is None else list(map(serdes.json.deserialize, self.texts()))

    def json(self) -> Sequence[bytes | None]:
        """Return the values as the json serde writes them."""
        return list(map(serdes.json.serialize, self.objects())) if self.texts is None else self.texts()


def arrow(what: str) -> Any:
    """Return the module pyarrow.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError as cause:
        raise MissingPackageError(f"{what} needs pyarrow, which is not installed", hint="pip install 'kstreams-repl[kafka]'") from cause
    return pyarrow


def declared(columns: Mapping[str, object] | None, operator: str) -> Fields:
    """Return the declared fields of an operator's argument `columns`.

    Args:
        columns: name -> int, float, str, bool, an Arrow or SQL name of a type, or an Arrow type; None: none.

    Raises:
        TopologyError: a name is not a text, or a type is unknown.
    """
    if columns is None:
        return ()
    if not isinstance(columns, Mapping) or not columns or not all(isinstance(name, str) and name for name in columns):
        raise TopologyError(
            f"{operator}() expected columns as a dict of field names and types, got {columns!r}",
            hint='for example columns={"user": int, "item": str}',
        )
    return tuple((name, _declared_type(name, kind, operator)) for name, kind in columns.items())


def type_of(kind: object) -> object:
    """Return Arrow's alias of a declared type (int, "bigint", …); an alias or an Arrow type as it is."""
    return _TYPES.get(kind.lower() if isinstance(kind, str) else kind, kind) if isinstance(kind, str | type) else kind


def _declared_type(name: str, kind: object, operator: str) -> object:
    pa = arrow(f"{operator}()")
    alias = type_of(kind)
    try:
        json_type(pa.field(name, alias).type)
    except (ValueError, TypeError, AttributeError) as cause:
        names = [text for text in _TYPES if isinstance(text, str)]
        raise TopologyError(
            f"{operator}() does not know the type {kind!r} of the column {name!r}",
            hint=(did_you_mean(kind, names) if isinstance(kind, str) else None)
            or "a type is int, float, str, bool, a name such as 'int64' or 'bigint', or an Arrow type",
        ) from cause
    return alias


def kind_of(serde: Serde | None) -> str | None:
    """Return the type of a serde's objects: an Arrow alias, "json" for those that are written as JSON, None if only the values tell."""
    return None if serde is None else _BY_SERDE.get(serde.name)


def kind_of_values(values: Sequence[object]) -> str:
    """Return the type of a column by its first value that is not None."""
    first = next((value for value in values if value is not None), None)
    return _BY_VALUE.get(type(first), "json")


def typed(values: Sequence[object], kind: str | None, name: str) -> pa.Array:
    """Return objects as an Arrow array.

    Args:
        kind: an Arrow alias, or "json": the type is inferred; None: that of the first object.
        name: of the column, for errors.

    Raises:
        InvalidRecordError: an object does not fit.
    """
    pa, kind = arrow("a batch"), kind or kind_of_values(values)
    try:
        return pa.array(values) if kind == "json" else exact_array(values, pa.type_for_alias(kind))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        raise InvalidRecordError(
            f"the column {name!r} cannot be made: {cause}",
            hint="declare the fields that are read with columns=" if kind == "json" else "map the records to one type first",
        ) from cause


@lru_cache(maxsize=4)
def _numbers(count: int) -> pa.Array:
    pa = arrow("a batch")
    return pa.array(range(count), pa.int32())
