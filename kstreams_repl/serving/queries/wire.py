"""Keys and values as JSON: what JSON has no type for is an object with one key that begins with ``$``. The client reads it back.

Nothing that comes in is evaluated: a key is text, a number, or this JSON, and the store's own serde turns it into bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from itertools import chain

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.serving.queries.position import Position
from kstreams_repl.serving.queries.rows import StoreRow
from kstreams_repl.system.errors import CallError
from kstreams_repl.system.types import Windowed

_WHOLE = frozenset({"long", "integer", "short"})
_REAL = frozenset({"double", "float32"})
_DEPTH = 60
_PLAIN = frozenset({str, int, bool, type(None)})


def to_wire(value: object, depth: int = 0) -> object:
    """Return a value of a store as JSON values.

    Example:
        >>> to_wire({"at": b"x", "n": [1, None]})
        {'at': {'$bytes': 'eA=='}, 'n': [1, None]}
    """
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if depth > _DEPTH:
        return {"$text": "…"}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, Windowed):
        return {"$windowed": [to_wire(value.key, depth + 1), value.start, value.end]}
    if isinstance(value, Mapping):
        if all(isinstance(name, str) and not name.startswith("$") for name in value):
            return {name: to_wire(part, depth + 1) for name, part in value.items()}
        return {"$dict": [[to_wire(name, depth + 1), to_wire(part, depth + 1)] for name, part in value.items()]}
    if isinstance(value, tuple):
        return {"$tuple": [to_wire(part, depth + 1) for part in value]}
    if isinstance(value, list):
        return [to_wire(part, depth + 1) for part in value]
    if isinstance(value, Decimal) and value == value.to_integral_value():  # sums of SQL
        return int(value)
    if isinstance(value, str | int):
        return kind.__mro__[-2](value) if kind.__mro__[-2] in (str, int) else str(value)
    return {"$text": str(value)}


def page_text(after: tuple[int, int, object]) -> str:
    """Return where the next page begins, as text."""
    return json.dumps([after[0], after[1], to_wire(after[2])], separators=(",", ":"))


def position_to_wire(position: Position) -> dict[str, dict[str, int]]:
    """Return a position as JSON values."""
    return {topic: {str(part): offset for part, offset in offsets.items()} for topic, offsets in position.offsets.items()}


def position_from_wire(content: Mapping[str, Mapping[str, int]] | None) -> Position:
    """Return the position that `position_to_wire` has written."""
    return Position({topic: {int(part): offset for part, offset in parts.items()} for topic, parts in (content or {}).items()})


def rows_to_wire(rows: list[StoreRow]) -> list[StoreRow]:
    """Return rows with `to_wire` of each value; the same rows if JSON has types for all of them.

    Example:
        >>> rows_to_wire([{"key": b"x", "value": 1}])
        [{'key': {'$bytes': 'eA=='}, 'value': 1}]
    """
    if _PLAIN.issuperset(map(type, chain.from_iterable(map(dict.values, rows)))):
        return rows
    return [{name: to_wire(value) for name, value in row.items()} for row in rows]


def keys_from_wire(keys: list[object]) -> list[object]:
    """Return `from_wire` of each key; the same list if all are text or numbers.

    Raises:
        CallError: a key is of an unknown form.

    Example:
        >>> keys_from_wire(["a", {"$bytes": "eA=="}])
        ['a', b'x']
    """
    return keys if _PLAIN.issuperset(map(type, keys)) else list(map(from_wire, keys))


def from_wire(value: object, depth: int = 0) -> object:
    """Return the value that `to_wire` has written; what it had to write as text stays text.

    Raises:
        CallError: an object of an unknown form.

    Example:
        >>> from_wire({"$windowed": ["a", 0, 10]})
        Windowed(key='a', start=0, end=10)
    """
    if depth > _DEPTH:
        raise CallError(f"the JSON is nested deeper than {_DEPTH}", argument="key")
    if isinstance(value, list):
        return [from_wire(part, depth + 1) for part in value]
    if not isinstance(value, dict):
        return value
    name = next(iter(value), None) if len(value) == 1 else None
    if name is None or not name.startswith("$"):
        return {key: from_wire(part, depth + 1) for key, part in value.items()}
    content = value[name]
    try:
        if name == "$bytes":
            return base64.b64decode(content, validate=True)
        if name == "$float" and content in ("nan", "inf", "-inf"):
            return float(content)
        if name == "$windowed":
            key, start, end = content
            return Windowed(from_wire(key, depth + 1), int(start), int(end))
        if name == "$tuple":
            return tuple(from_wire(part, depth + 1) for part in content)
        if name == "$dict":
            return {from_wire(key, depth + 1): from_wire(part, depth + 1) for key, part in content}
        if name == "$text" and isinstance(content, str):
            return content
    except (TypeError, ValueError, OverflowError) as error:
        raise CallError(f"{name} has invalid content", argument="key") from error
    raise CallError(f"unknown form {name[:20]!r} in JSON", hint="$bytes, $float, $windowed, $tuple, $dict", argument="key")


def key_of(text: str, serde: Serde, key_format: str = "text") -> object:
    """Return the key that a path or query string names.

    Args:
        serde: the key serde of the store: numbers are read as such, bytes from Base64, other types from JSON.
        key_format: ``text`` as above, or ``json`` as `to_wire` writes it.

    Raises:
        CallError: the text is not a key of this type.

    Example:
        >>> from kstreams_repl import serdes
        >>> key_of("7", serdes.long), key_of("7", serdes.string), key_of('"7"', serdes.long, "json")
        (7, '7', '7')
    """
    try:
        if key_format == "json":
            return from_wire(json.loads(text))
        if key_format != "text":
            raise CallError(f"key_format must be text or json, got {key_format[:20]!r}", argument="key_format")
        if serde.name == "string":
            return text
        if serde.name in _WHOLE:
            return int(text)
        if serde.name in _REAL:
            return float(text)
        if serde.name == "bytes":
            return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
        return from_wire(json.loads(text))
    except (ValueError, RecursionError, binascii.Error) as error:
        raise CallError(
            f"{text[:80]!r} is not a key of type {serde.name}", hint="key_format=json takes the key as JSON", argument="key"
        ) from error
