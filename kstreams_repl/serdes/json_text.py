"""JSON as compact UTF-8 text, the way Jackson writes it by default: no spaces, keys in order, non-ASCII characters kept.

A number that is a whole value comes back as it was, also one that JSON has no word for (NaN, Infinity) or an integer of any size: stores
keep numbers as objects and must find the same ones after a restart. Inside lists and dicts NaN and Infinity become null, and integers of
more than 64 bits are written as they are but come back as floats: keep such numbers as text there.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from kstreams_repl.errors import SerializationError
from kstreams_repl.serdes.base import Serde, wrong_bytes

_dumps = orjson.dumps
_loads = orjson.loads
_LARGE = 2.0**63


def _serialize(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        data = _dumps(value)
        return data if data != b"null" or type(value) is not float else _serialize_odd(value)
    except TypeError:
        return _serialize_odd(value)


def _serialize_odd(value: Any) -> bytes:
    """What orjson cannot write: integers over 64 bits, keys that are not text, lone surrogates, NaN and Infinity."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=True).encode("utf-8", "replace")
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"the json serde cannot write a value of type {type(value).__name__}: {error}",
            hint="it writes dict, list, str, int, float, bool and None; map the value first, or use Serde(serialize=..., deserialize=...)",
            serde="json",
        ) from error


def _deserialize(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        value = _loads(data)
        return value if type(value) is not float or -_LARGE < value < _LARGE else _deserialize_large(data, value)
    except orjson.JSONDecodeError as error:
        return _deserialize_odd(data, error)


def _deserialize_large(data: bytes, value: float) -> Any:
    """orjson reads integers over 64 bits as floats."""
    text = bytes(data)
    if b"." in text or b"e" in text or b"E" in text:
        return value
    try:
        return json.loads(text)
    except ValueError:  # more digits than Python reads
        return value


def _deserialize_odd(data: bytes, cause: Exception) -> Any:
    try:
        return json.loads(bytes(data).decode("utf-8", "replace"))
    except ValueError:
        raise wrong_bytes("json", data, f"JSON text ({cause})") from cause


JSON = Serde(
    _serialize,  # type: ignore[arg-type]
    _deserialize,
    name="json",
    immutable=(int, str, bool, float),
    none_safe=True,
)
