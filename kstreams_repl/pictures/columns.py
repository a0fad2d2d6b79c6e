"""Deserialization to Arrow columns, a whole column at once for the built-in serdes.

A value that a serde cannot read does not fail the query: the cell is NULL, and a note contains the number of such cells. JSON stays text
here; `json_values` lets DuckDB convert it to structs.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from types import NoneType
from typing import Any
from uuid import UUID

import orjson
import pyarrow as pa
import pyarrow.compute

from kstreams_repl.engine.serdes import Serde, of
from kstreams_repl.engine.serdes.header_ids import Part, framed_column
from kstreams_repl.engine.serdes.schemas.schema_registry import is_registered
from kstreams_repl.pictures.wording import counted
from kstreams_repl.system.types import Headers, Windowed

SerializedValues = Sequence[bytes | None]

GUESS_SAMPLE = 50
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999
"""The first millisecond of the year 1 and the last of 9999, the range of Python's dates."""
_FIXED = {
    "long": ("q", 8, pa.int64()), "integer": ("i", 4, pa.int32()), "short": ("h", 2, pa.int16()),
    "double": ("d", 8, pa.float64()), "float32": ("f", 4, pa.float32()),
}  # fmt: skip


@dataclass(slots=True)
class Decoded:
    """One decoded column.

    Attributes:
        values: the Arrow array.
        is_json: the values are JSON text, to be converted to structs.
        unreadable: number of cells that could not be read and are NULL.
    """

    values: pa.Array
    is_json: bool = False
    unreadable: int = 0
    more: dict[str, pa.Array] = field(default_factory=dict)
    """Additional columns decoded from the same bytes: window bounds."""


@dataclass(slots=True)
class TableData:
    """A table before it is registered: named columns, which of them are JSON text, and the bounds of the read.

    Attributes:
        bound: a description of what was read.
        notes: further information for the user (cells that could not be read).
        commits: the commits of tasks that the rows reflect.
        cut: if rows were left out: how much was read of how much, and the keyword argument that lifts the bound.
        narrowed: whether rows were left out that the query does not need.
    """

    columns: dict[str, pa.Array]
    json_columns: tuple[str, ...] = ()
    bound: str = ""
    notes: tuple[str, ...] = ()
    cut: str = ""
    commits: str = ""
    narrowed: bool = False

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


def decode(serde: Serde | None, cells: SerializedValues) -> Decoded:
    """Decode a column of serialized values.

    Args:
        serde: the serde that wrote them; None = guess from the first values (JSON, text, else bytes).
    """
    chosen = of(guess(cells)) if serde is None else serde
    serde_name = chosen.name if chosen._builtin else ""
    if serde_name == "bytes":
        return Decoded(pa.array(cells, pa.binary()))
    if serde_name in ("string", "json", "uuid"):
        return _text(cells, is_json=serde_name == "json")
    if serde_name in _FIXED:
        return _fixed(cells, *_FIXED[serde_name])
    return _by_function(cells, chosen.deserialize)


def recognised(
    serde: Serde | None, cells: SerializedValues, headers: Sequence[Headers | None], part: Part
) -> tuple[Serde, SerializedValues]:
    """Return the serde of keys or values (None: guessed from the first ones), and the cells as it reads them.

    Args:
        headers: those of the records, which may have the schema ids of the cells.
    """
    framed = framed_column(cells, headers, part) if serde is None or serde.reads_header_ids else cells
    chosen = serde or of(guess(framed))
    return chosen, framed if chosen.reads_header_ids else cells


def guess(cells: SerializedValues) -> str:
    """Return the built-in serde that the first values look written with: json, string, registry or bytes. Numbers of 4 or 8 bytes stay
    bytes."""
    sample = [cell for cell in cells[: GUESS_SAMPLE * 20] if cell is not None][:GUESS_SAMPLE]
    if not sample:
        return "bytes"
    if all(map(is_registered, sample)):
        return "registry"
    try:
        texts = [bytes(cell).decode("utf-8") for cell in sample]
    except UnicodeDecodeError:
        return "bytes"
    if any("\0" in text for text in texts):
        return "bytes"
    if all(text[:1] in "{[" for text in texts) and all(map(_is_json, sample)):
        return "json"
    return "string"


def _is_json(cell: bytes) -> bool:
    try:
        orjson.loads(cell)
    except orjson.JSONDecodeError:
        return False
    return True


def _text(cells: SerializedValues, *, is_json: bool) -> Decoded:
    try:
        return Decoded(pa.array(cells, pa.string()), is_json)
    except (pa.ArrowInvalid, TypeError, UnicodeDecodeError):
        unreadable, texts = 0, []
        for cell in cells:
            try:
                texts.append(None if cell is None else bytes(cell).decode("utf-8"))
            except UnicodeDecodeError:
                unreadable += is_json
                texts.append(None if is_json else bytes(cell or b"").decode("utf-8", "replace"))
        return Decoded(pa.array(texts, pa.string()), is_json, unreadable)


def _fixed(cells: SerializedValues, code: str, size: int, kind: pa.DataType) -> Decoded:
    whole = [cell for cell in cells if cell is not None]
    if len(whole) == len(cells) and set(map(len, whole)) == {size}:
        return Decoded(_numbers(whole, code, kind))
    blank = bytes(size)
    good = [cell is not None and len(cell) == size for cell in cells]
    values = _numbers([cell if ok and cell is not None else blank for cell, ok in zip(cells, good, strict=True)], code, kind)
    unreadable = sum(not ok and cell is not None for cell, ok in zip(cells, good, strict=True))
    return Decoded(pa.compute.if_else(pa.array(good), values, pa.scalar(None, kind)), unreadable=unreadable)


def _by_function(cells: SerializedValues, deserialize: Callable[[bytes | None], object]) -> Decoded:
    """Decode value by value with the user's own serde."""
    values: list[Any] = []
    unreadable = 0
    for cell in cells:
        try:
            values.append(None if cell is None else deserialize(cell))
        except Exception:  # a cell that its serde rejects is shown as NULL and counted
            values.append(None)
            unreadable += 1
    if any(isinstance(value, Windowed) for value in values):
        return _windowed(values, unreadable)
    return Decoded(as_array(values), unreadable=unreadable)


def _windowed(values: Iterable[Windowed | None], unreadable: int) -> Decoded:
    rows = [(None, None, None) if value is None else value for value in values]
    return Decoded(
        as_array([key for key, _, _ in rows]),
        unreadable=unreadable,
        more={
            "window_start": milliseconds([start for _, start, _ in rows]),
            "window_end": milliseconds([end for _, _, end in rows]),
        },
    )


def as_array(values: Sequence[object]) -> pa.Array:
    """Convert Python values to Arrow, nested ones to structs; values without a common type are shown as text, of dicts and lists only those
    fields and elements that have none."""
    try:
        found = pa.array([_without_uuids(value) for value in values])
        if pa.types.is_binary(found.type) and any(isinstance(value, str) for value in values):
            raise TypeError("expected bytes, got text")
        return found
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
        return _apart(values)


def _apart(values: Sequence[Any]) -> pa.Array:
    """Convert values that have no common type: dicts field by field, lists element by element, large integers as decimals."""
    kinds = {type(value) for value in values} - {NoneType}
    missing = pa.array([value is None for value in values], pa.bool_())
    if kinds == {int}:
        for kind in (pa.uint64(), pa.decimal128(38, 0)):
            with suppress(pa.ArrowException, OverflowError):
                return pa.array(values, kind)
    if kinds == {dict} and all(isinstance(name, str) for value in values for name in value or ()):
        names = list(dict.fromkeys(name for value in values for name in value or ()))
        columns = [as_array([None if value is None else value.get(name) for value in values]) for name in names]
        return pa.StructArray.from_arrays(columns, names, mask=missing) if names else as_texts(values)
    if kinds == {list}:
        ends = accumulate((len(value or ()) for value in values), initial=0)
        elements = as_array([item for value in values for item in value or ()])
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), elements, mask=missing)
    return as_texts(values)


def _without_uuids(value: Any) -> object:
    """Return the value with UUIDs, for which Arrow infers no type, as text."""
    kind = type(value)
    if kind is dict:
        return {name: _without_uuids(item) for name, item in value.items()}
    if kind is list:
        return [_without_uuids(item) for item in value]
    return str(value) if kind is UUID else value


def as_texts(values: Iterable[object]) -> pa.Array:
    """Return each value as it is displayed."""
    return pa.array([None if value is None else _as_text(value) for value in values], pa.string())


def _as_text(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception as error:  # a user's own __repr__
        text = f"<{type(value).__name__}: {type(error).__name__} while it was shown>"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # a lone surrogate cannot be encoded as UTF-8


def milliseconds(values: Sequence[int | None] | pa.Array) -> pa.Array:
    """Convert epoch milliseconds to timestamps (UTC, without a zone); times outside SQL's calendar become NULL."""
    times = values if isinstance(values, pa.Array) else pa.array(values, pa.int64())
    beyond = pa.compute.or_(pa.compute.greater(times, _LAST), pa.compute.less(times, _FIRST))
    if pa.compute.any(beyond).as_py():
        times = pa.compute.if_else(beyond, pa.scalar(None, pa.int64()), times)
    return times.cast(pa.timestamp("ms")).cast(pa.timestamp("us"))


def calendar_note(beyond: int) -> tuple[str, ...]:
    """Return a note on timestamps that became NULL; empty if there are none."""
    if not beyond:
        return ()
    times = counted(beyond, "timestamp")
    return (f"{times} {'is' if beyond == 1 else 'are'} outside of the years 1 to 9999 and NULL; session.read has the number",)


def longs(parts: Sequence[bytes]) -> pa.Array:
    """Decode int64 values of eight big-endian bytes each."""
    return _numbers(parts, "q", pa.int64())


def long_pairs(parts: Sequence[bytes]) -> tuple[pa.Array, pa.Array]:
    """Decode the first and the second int64 of sixteen big-endian bytes each."""
    both = _native(parts, "q")
    return _as_arrow(both[0::2], pa.int64()), _as_arrow(both[1::2], pa.int64())


def _numbers(parts: Sequence[bytes], code: str, kind: pa.DataType) -> pa.Array:
    return _as_arrow(_native(parts, code), kind)


def _native(parts: Sequence[bytes], code: str) -> array[Any]:
    numbers = array(code)
    numbers.frombytes(b"".join(parts))
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def _as_arrow(numbers: array[Any], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def unreadable_note(column: str, unreadable: int, serde: Serde | None) -> tuple[str, ...]:
    """Return a note on cells that could not be read; empty if there are none."""
    if not unreadable:
        return ()
    written = f"as {serde.name}" if serde is not None else "as JSON"
    one = unreadable == 1
    cells = counted(unreadable, "cell")
    return (f"{cells} of {column} could not be read {written} and {'is' if one else 'are'} NULL",)
