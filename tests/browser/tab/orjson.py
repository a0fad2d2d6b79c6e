"""What the wheel calls of orjson, by msgspec, which writes the same text of what both write."""

from __future__ import annotations

import json
from typing import Any

import msgspec


def dumps(value: object) -> bytes:
    _check(value)
    return msgspec.json.encode(value)


def loads(text: bytes) -> Any:
    return json.loads(text)


def _check(value: object) -> None:
    """Raise TypeError for what orjson does not write and msgspec does."""
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError(f"a key is a {type(key).__name__}")
            _check(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item)
    elif type(value) is int and not -(1 << 63) <= value < 1 << 64:
        raise TypeError("an integer of more than 64 bits")
    elif not isinstance(value, str | int | float | bool | None):
        raise TypeError(f"a {type(value).__name__}")
