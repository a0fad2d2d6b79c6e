"""JSON as compact UTF-8 text, as Jackson writes it by default: no spaces, keys in order, non-ASCII characters kept.

JSON does not support NaN and Infinity. Inside lists and dicts they become null, as in JavaScript; as a whole value they are
rejected: stores keep numbers as objects, and null would be another value after a restart. (Text that contains NaN is read.) Integers
of any size are preserved: msgspec reads, because orjson reads those of more than 64 bits as floats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, TypedDict

import orjson
from msgspec import DecodeError
from msgspec.json import Decoder

from kstreams_repl.engine.serdes.serde import Serde, wrong_bytes
from kstreams_repl.system.errors import SerializationError

_dumps = orjson.dumps
_loads: Callable[[Any], Any] = Decoder().decode
_typed_dict: Any = TypedDict
"""For names that are known at run time only."""
_UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)
_odd_writes = [0]
"""How many values were written by `_serialize_odd`; what orjson writes is what it writes again after reading it."""


def _serialize(value: object) -> bytes | None:
    if value is not None:
        try:
            data = _dumps(value)
            if data != b"null":
                return b"%b" % data  # a copy, because orjson 3.13 leaves its buffer of 4 KiB or more in each result
        except TypeError:
            return _serialize_odd(value)
    return _serialize_to_send(value)


def _serialize_to_send(value: object) -> bytes | None:
    if value is None:
        return None
    try:
        data = _dumps(value)
        if data != b"null" or type(value) is not float:
            return data
    except TypeError:
        return _serialize_odd(value)
    raise _not_a_number(value)


_serialize.to_send = _serialize_to_send  # type: ignore[attr-defined]


def _serialize_odd(value: object) -> bytes:
    """Serialize what orjson cannot: integers over 64 bits, keys that are not text, lone surrogates."""
    _odd_writes[0] += 1
    if isinstance(value, float) and not isfinite(value):  # NumPy's
        raise _not_a_number(value)
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=True)
        if "NaN" in text or "Infinity" in text:
            text = json.dumps(_without_nan(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"the json serde cannot write a value of type {type(value).__name__}: {error}",
            hint="it writes dict, list, str, int, float, bool and None; map the value first, or use Serde(serialize=..., deserialize=...)",
            serde="json",
        ) from error


def _not_a_number(value: float) -> SerializationError:
    return SerializationError(
        f"the json serde cannot write {value}: JSON cannot represent it",
        hint="give it the double serde (serdes.double), or map it to None or a text first",
        serde="json",
    )


def _without_nan(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _deserialize(data: bytes | None) -> object:
    if data is None:
        return None
    try:
        return _loads(data)
    except _UNREADABLE as error:
        return _deserialize_odd(data, error)


def _deserialize_many(column: Sequence[bytes | None]) -> list[Any]:
    try:
        return list(map(_loads, column))
    except (*_UNREADABLE, TypeError):  # TypeError: a None
        return list(map(_deserialize, column))


@lru_cache(maxsize=256)
def _deserialize_fields(fields: frozenset[str], *, plain: bool = False) -> Callable[[Sequence[bytes | None]], list[Any]]:
    """Return a reader (`DeserializeFields`): msgspec checks the syntax of other fields, and skips them."""
    scalar = str | int | float | bool | None
    some: Any = _typed_dict("Fields", dict.fromkeys(sorted(fields), scalar if plain else Any), total=False)
    read = Decoder(some).decode if plain else Decoder(some | list | scalar).decode

    def read_some(column: Sequence[bytes | None]) -> list[Any]:
        try:
            return list(map(read, column))  # type: ignore[arg-type]
        except (*_UNREADABLE, TypeError):
            return _deserialize_many(column)

    def read_plain(column: Sequence[bytes | None]) -> list[Any]:
        b"".join(filter(None, column)).decode()
        return [None if data is None else read(data) for data in column] if None in column else list(map(read, column))  # type: ignore[arg-type]

    return read_plain if plain else read_some


def _deserialize_odd(data: bytes, cause: Exception) -> object:
    try:
        return json.loads(bytes(data).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise wrong_bytes("json", data, f"JSON text ({cause})") from cause


def _canonical(data: bytes) -> bool:
    """Return whether the text is the one that would be written after reading it."""
    try:
        return _dumps(_loads(data)) == data
    except (*_UNREADABLE, TypeError):
        return False


JSON = Serde(
    _serialize,  # type: ignore[arg-type]
    _deserialize,
    name="json",
    passthrough=True,
    canonical=_canonical,
    odd_writes=_odd_writes,
    immutable=(int, str, bool, float),
    none_safe=True,
    deserialize_many=_deserialize_many,
)
JSON.deserialize_fields = _deserialize_fields
