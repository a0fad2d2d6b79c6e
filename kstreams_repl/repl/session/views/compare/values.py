"""What differs between two values: `fields_that_differ` names the fields, so that those which differ by chance can be told from others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

_DEPTH = 20
ANY = "[]"
"""Stands for the place in a list."""


def fields_that_differ(one: Any, other: Any, name: str = "", depth: int = _DEPTH) -> Iterator[str]:
    """Yield the paths at which two values differ: ``value.total``, ``value.items[].price``; nothing if they are equal.

    Objects of a class that does not define equality are equal if their attributes are; two classes are the same if they have the same name
    in the same module, because a cell that ran again has defined it again.
    """
    if one is other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            if key not in one or key not in other:
                yield _inside(name, key)
            else:
                yield from fields_that_differ(one[key], other[key], _inside(name, key), depth)
        if not depth or (list(one) != list(other) and set(one) == set(other)):
            yield name  # another order of fields is another text
        return
    if _kind(one) != _kind(other):
        yield name
        return
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            yield name
            return
        for a, b in zip(one, other, strict=True):
            yield from fields_that_differ(a, b, name + ANY, depth)
        return
    if isinstance(one, float):
        if one != other and not (math.isnan(one) and math.isnan(other)):
            yield name
        return
    if _equal(one, other):
        return
    state, other_state = _state(one), _state(other)
    if depth and state is not None and other_state is not None:
        yield from fields_that_differ(state, other_state, name, depth - 1)
    else:
        yield name


def without(fields: Iterable[str], noisy: Iterable[str]) -> list[str]:
    """Return the fields that are neither noisy nor in or around a noisy one."""
    known = list(noisy)
    return [field for field in fields if not any(_within(field, each) or _within(each, field) for each in known)]


def _within(field: str, outer: str) -> bool:
    return field == outer or field.startswith((f"{outer}.", f"{outer}{ANY}"))


def _inside(name: str, key: object) -> str:
    return f"{name}.{key}" if name else str(key)


def _kind(value: object) -> tuple[str, str]:
    kind = type(value)
    return kind.__module__, kind.__qualname__


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - the equality of a user's class, or of arrays
        return False


def _state(value: Any) -> Any:
    """Return the attributes of an object; None if it has none that can be compared."""
    slots = [name for kind in type(value).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    state = {name: getattr(value, name) for name in slots if name not in ("__dict__", "__weakref__") and hasattr(value, name)}
    state |= getattr(value, "__dict__", {})
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    return state or None


def _names(slots: object) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)  # type: ignore[arg-type]
