"""Declared fields of JSON objects as Arrow columns, read by msgspec: only what is declared becomes objects.

JSON types do not change: an integer column takes no 1.0, a text column no number. Timestamps and dates are ISO 8601
texts, times of day numbers in their unit, decimals numbers or texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypedDict

from kstreams_repl.system.errors import InvalidRecordError
from kstreams_repl.system.extras import extras

if TYPE_CHECKING:
    import pyarrow as pa

_typed_dict: Any = TypedDict
"""For names and types that are known at run time only."""


@lru_cache(maxsize=64)
def json_reader(schema: object) -> JsonReader:
    """Return the reader of the fields of an Arrow schema."""
    return JsonReader(schema)


class JsonReader:
    """Reads JSON objects.

    Args:
        schema: the fields' names and types (`json_type`).
    """

    def __init__(self, schema: pa.Schema) -> None:
        with extras():
            from msgspec import defstruct, field
            from msgspec.json import Decoder

        record: Any
        kinds = {one.name: json_type(one.type) | None for one in schema}
        if any(json.dumps(name, ensure_ascii=False) != f'"{name}"' for name in kinds):  # msgspec's structs have no such names
            record = _typed_dict("Record", kinds, total=False)
            got = [f".get({name!r})" for name in kinds]
        else:
            own = [(f"f{index}", kind, field(default=None, name=name)) for index, (name, kind) in enumerate(kinds.items())]
            record = defstruct("Record", own, gc=False)
            got = [f".{name}" for name, *_ in own]
        lists = ", ".join(f"[row{how} for row in rows]" for how in got)
        self._lists: Callable[[Sequence[object]], Sequence[list[object]]] = eval(f"lambda rows: ({lists},)")
        """Generated, which halves its cost per row."""
        self._schema, self._empty = schema, record()
        self._decode, self._decode_or_null = Decoder(record).decode, Decoder(record | None).decode

    def columns(self, texts: Sequence[bytes | None]) -> tuple[dict[str, pa.Array], list[bool] | None]:
        """Return the columns, null where a field is missing, and which texts are objects, not None or null; None if all are.

        Raises:
            InvalidRecordError: a text is not an object, or a field has another type.
        """
        import pyarrow as pa
        from msgspec import DecodeError, ValidationError

        has_value: list[bool] | None = None
        try:
            try:
                rows = list(map(self._decode, texts))  # type: ignore[arg-type]
            except (TypeError, ValidationError):  # there may be None or null
                read = [None if text is None else self._decode_or_null(text) for text in texts]
                has_value = [row is not None for row in read]
                rows = [self._empty if row is None else row for row in read]
            fields = zip(self._schema, self._lists(rows), strict=True)
            return {field.name: _array(values, field.type) for field, values in fields}, has_value
        except (DecodeError, UnicodeDecodeError, pa.ArrowException, OverflowError) as cause:
            listed = ", ".join(f"{field.name} {field.type}" for field in self._schema)
            raise InvalidRecordError(
                f"a value does not fit the columns ({listed}): {cause}", hint="change columns=, or filter or map such values first"
            ) from cause


def json_type(kind: pa.DataType) -> Any:
    """Return the Python type of a field of this Arrow type, as msgspec reads it.

    Raises:
        TypeError: JSON has no such values.

    Example:
        >>> import pyarrow as pa
        >>> json_type(pa.list_(pa.int64()))
        list[int | None]
    """
    from pyarrow import types

    plain = (
        (types.is_integer, int), (types.is_floating, float), (types.is_boolean, bool), (types.is_string, str), (types.is_large_string, str),
        (types.is_binary, str), (types.is_timestamp, str), (types.is_date, str), (types.is_time, int), (types.is_decimal, Decimal),
    )  # fmt: skip
    for is_kind, python in plain:
        if is_kind(kind) and not types.is_float16(kind):
            return python
    if types.is_list(kind):
        return list[json_type(kind.value_type) | None]  # type: ignore[misc]
    if types.is_struct(kind):
        own = {field.name: json_type(field.type) | None for field in kind}
        return _typed_dict("Fields", own, total=False)
    raise TypeError(f"JSON has no values of the type {kind}")


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return a column; timestamps and dates are read by Arrow, which keeps nanoseconds and refuses digits that the type has not."""
    import pyarrow as pa

    as_text = _with_times(kind, lambda _: pa.string())
    read = pa.array(values, as_text)
    return read if as_text == kind else _timed(read, kind)


def _timed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts as times. Arrow reads those with a time zone and those without, which are UTC, one or the other at once."""
    import pyarrow as pa

    def cast(zone: str | None) -> pa.Array:
        return texts.cast(_with_times(kind, lambda time: pa.timestamp(time.unit, zone) if pa.types.is_timestamp(time) else time)).cast(kind)

    half = len(texts) // 2
    for zone in (None, "UTC"):
        with suppress(pa.ArrowInvalid):
            return cast(zone)
    return pa.concat_arrays([_timed(texts[:half], kind), _timed(texts[half:], kind)]) if half else cast("UTC")


def _with_times(kind: pa.DataType, of: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with another one in place of each timestamp and date in it."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return of(kind)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_times(kind.value_type, of)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_times(field.type, of)) for field in kind])
    return kind
