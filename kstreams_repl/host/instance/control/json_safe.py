"""Conversion of any value to bounded JSON for display: plain values as they are, everything else as text."""

from __future__ import annotations

import math
from typing import Any

MOST_TEXT = 2_000
MOST_ITEMS = 100
MOST_DEPTH = 5
_LARGEST_INT = 2**53


def shown(value: Any, depth: int = 0) -> object:
    """Return None, numbers, texts, lists and dicts with text keys as a copy; any other value as its text.

    Long texts are cut (marked by an ellipsis), and so are long lists and deep nesting. Never raises: the text of a value whose
    conversion fails says so.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, int):
        return int(value) if abs(value) <= _LARGEST_INT else _number(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value[:MOST_TEXT])) + ("…" if len(value) > MOST_TEXT else "")
    if depth < MOST_DEPTH:
        if isinstance(value, dict) and all(isinstance(name, str) for name in value):
            cut = {_cut(name): shown(item, depth + 1) for name, item in list(value.items())[:MOST_ITEMS]}
            return cut | {"…": f"{len(value) - MOST_ITEMS} more"} if len(value) > MOST_ITEMS else cut
        if type(value) in (list, tuple):
            items = [shown(item, depth + 1) for item in value[:MOST_ITEMS]]
            return [*items, f"… {len(value) - MOST_ITEMS} more"] if len(value) > MOST_ITEMS else items
    try:
        return _cut(str(value))
    except Exception as error:  # a user's own __str__
        return f"<{type(value).__name__}: {type(error).__name__} while it was shown>"


def _cut(text: str) -> str:
    # UTF-8 cannot encode a lone surrogate
    whole = text if len(text) <= MOST_TEXT else text[:MOST_TEXT] + "…"
    return whole.encode("utf-8", "backslashreplace").decode("utf-8")


def _number(value: int) -> str:
    return str(value) if value.bit_length() < 4000 else f"an integer of {value.bit_length():,} bits"
