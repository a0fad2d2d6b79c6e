"""The closed vocabulary of pure functions in the conformance cases.

Values are None, integers (64 bits) and texts; `text` is Java's string conversion of a value, `num` converts texts by
`String.hashCode`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def java_hash(s: str) -> int:
    """Return Java's `String.hashCode`."""
    h = 0
    units = s.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        h = (31 * h + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return h - (1 << 32) if h >> 31 else h


def text(v: object) -> str:
    """Return Java's text of a value."""
    if v is None:
        return "null"
    if v is True or v is False:
        return str(v).lower()
    if type(v) is list:
        return "[" + ", ".join(map(text, v)) + "]"
    if isinstance(v, dict):
        return "{" + ", ".join(f"{k}={text(x)}" for k, x in v.items()) + "}"
    return str(v)


def _long(n: int) -> int:
    """Return a number wrapped around to 64 bits, as Java's long."""
    return (n + (1 << 63)) % (1 << 64) - (1 << 63)


def num(v: object) -> int:
    """Return the value as a number; the hash of a text."""
    return int(v) if isinstance(v, (int, float)) and not isinstance(v, bool) else java_hash(text(v))


def is9(v: object) -> bool:
    return isinstance(v, (int, float)) and not isinstance(v, bool) and int(v) == 9


PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "v_even": lambda k, v: v is not None and num(v) % 2 == 0,
    "k_lt_c": lambda k, v: k is not None and text(k) < "c",
    "v_notnull": lambda k, v: v is not None,
    "v_gt_2": lambda k, v: v is not None and num(v) > 2,
    "all": lambda k, v: True,
    "none": lambda k, v: False,
}
VALUE: dict[str, Callable[[Any, Any], Any]] = {  # (key, value) -> value
    "id": lambda k, v: v,
    "inc": lambda k, v: None if v is None else _long(num(v) + 1),
    "double": lambda k, v: None if v is None else _long(num(v) * 2),
    "null_if_odd": lambda k, v: None if v is None or num(v) % 2 else v,
    "with_key": lambda k, v: f"{text(k)}:{text(v)}",
    "const": lambda k, v: "x",
}
KEY: dict[str, Callable[[Any, Any], Any]] = {  # (key, value) -> key
    "id": lambda k, v: k,
    "mod2": lambda k, v: k if v is None else f"m{num(v) % 2}",
    "null_if_m": lambda k, v: None if k == "m" else k,
    "null_if_odd": lambda k, v: None if v is not None and num(v) % 2 else k,
    "swap": lambda k, v: None if v is None else text(v),
    "key_value": lambda k, v: f"{text(k)}-{text(v)}",
    "const": lambda k, v: "one",
}
AGGREGATE: dict[str, Callable[[Any, Any, Any], Any]] = {  # (key, value, aggregate) -> aggregate
    "concat": lambda k, v, a: f"{text(a)}|{text(v)}",
    "sum": lambda k, v, a: _long(num(a) + (0 if v is None else num(v))),
    "sub": lambda k, v, a: _long(num(a) - (0 if v is None else num(v))),
    "add_text": lambda k, v, a: f"{text(a)}+{text(v)}",
    "sub_text": lambda k, v, a: f"{text(a)}-{text(v)}",
    "max": lambda k, v, a: max(num(a), 0 if v is None else num(v)),
    "null_if_9": lambda k, v, a: None if is9(v) else f"{text(a)}|{text(v)}",
}
REDUCE: dict[str, Callable[[Any, Any], Any]] = {  # (aggregate, value) -> aggregate
    "concat": lambda a, b: f"{text(a)}|{text(b)}",
    "sum": lambda a, b: _long(num(a) + num(b)),
    "sub": lambda a, b: _long(num(a) - num(b)),
    "add_text": lambda a, b: f"{text(a)}+{text(b)}",
    "sub_text": lambda a, b: f"{text(a)}-{text(b)}",
    "max": lambda a, b: max(num(a), num(b)),
    "last": lambda a, b: b,
    "first": lambda a, b: a,
    "null_if_9": lambda a, b: None if is9(b) else b,
}


def initial(name: str) -> Any:
    """Return the initial aggregate of the named aggregator."""
    return 0 if name in ("sum", "sub", "max") else ""


def merge_sessions(init: str, a: object, b: object) -> Any:
    """Return the merged aggregate of two sessions."""
    if init in ("sum", "sub"):
        return _long(num(a) + num(b))
    return max(num(a), num(b)) if init == "max" else text(a) + text(b)


def join(a: object, b: object) -> str:
    return f"({text(a)},{text(b)})"


def join_with_key(k: object, a: object, b: object) -> str:
    return f"{text(k)}:{join(a, b)}"


def join_with_mapped_key(k: object, mapped: object, a: object, b: object) -> str:
    return f"{text(k)}:{text(mapped)}:{join(a, b)}"
