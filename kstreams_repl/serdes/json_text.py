"""JSON as compact UTF-8 text, as Jackson writes it by default: no spaces, keys in order, non-ASCII characters kept.

JSON does not support NaN and Infinity. Inside lists and dicts they become null, as in JavaScript; as a whole value they are
rejected: stores keep numbers as objects, and null would be another value after a restart. (Text that contains NaN is read.) An
integer of any size that is a whole value is preserved; inside lists and dicts one of more than 64 bits is read as a float: store
such numbers as text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import isfinite
from typing import Any

import orjson

from kstreams_repl.errors import SerializationError
from kstreams_repl.serdes.base import Serde, wrong_bytes

_dumps = orjson.dumps
_loads = orjson.loads
_LARGE = 2.0**63
_odd_writes = [0]
"""How many values were written by `_serialize_odd`; what orjson writes is what it writes again after reading it."""


def _serialize(value: Any) -> bytes | None:
    if value is not None:
        try:
            data = _dumps(value)
            if data != b"null":
                return b"%b" % data  # a copy, because orjson 3.13 leaves its buffer of 4 KiB or more in each result
        except TypeError:
            return _serialize_odd(value)
    return _serialize_to_send(value)


def _serialize_to_send(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        data = _dumps(value)
        if data != b"null" or type(value) is not float:
            return data
    except TypeError:
        return _serialize_odd(value)
    raise SerializationError(
        f"the json serde cannot write {value}: JSON cannot represent it",
        hint="give it the double serde (serdes.double), or map it to None or a text first",
        serde="json",
    )


_serialize.to_send = _serialize_to_send  # type: ignore[attr-defined]


def _serialize_odd(value: Any) -> bytes:
    """Serialize what orjson cannot: integers over 64 bits, keys that are not text, lone surrogates."""
    _odd_writes[0] += 1
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


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def _deserialize(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        value = _loads(data)
        return value if type(value) is not float or -_LARGE < value < _LARGE else _deserialize_large(data, value)
    except orjson.JSONDecodeError as error:
        return _deserialize_odd(data, error)


def _deserialize_many(column: Sequence[bytes | None]) -> list[Any]:
    try:
        values = list(map(_loads, column))  # type: ignore[arg-type]
    except orjson.JSONDecodeError:
        return list(map(_deserialize, column))
    return list(map(_deserialize, column)) if float in set(map(type, values)) else values


def _deserialize_large(data: bytes, value: float) -> Any:
    """Deserialize an integer over 64 bits, which orjson reads as a float."""
    text = bytes(data)
    if b"." in text or b"e" in text or b"E" in text:
        return value
    try:
        return json.loads(text)
    except ValueError:  # more digits than Python's limit
        return value


def _deserialize_odd(data: bytes, cause: Exception) -> Any:
    try:
        return json.loads(bytes(data).decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise wrong_bytes("json", data, f"JSON text ({cause})") from cause


def _canonical(data: bytes) -> bool:
    """Return whether the text is the one that would be written after reading it."""
    try:
        return _dumps(_loads(data)) == data
    except (orjson.JSONDecodeError, TypeError):
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
