"""Find the variable of a user's function that cannot be pickled; runs only after pickling the whole has failed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType

from kstreams_repl.engine.topology.differences.fingerprint import content_of, global_names, is_users

_MOST = 2_000
"""Maximal number of objects to try; each is pickled separately."""
_LOOKED_INTO = (FunctionType, MethodType, ModuleType, functools.partial, staticmethod, classmethod, type, dict, list, tuple, set, frozenset)


def culprit(item: object, sends: Callable[[object], bool]) -> tuple[str, object] | None:
    """Return (name of the variable, object) of the first object in an item that cannot be pickled; None if none is found.

    Only the user's objects are searched: for a session it returns ``session``, not the part of it that cannot be pickled.

    Args:
        sends: returns whether an object can be pickled.
    """
    seen: set[int] = set()

    def visit(inside: object, name: str) -> tuple[str, object] | None:
        for label, value in _held(inside):
            if id(value) in seen or len(seen) > _MOST:
                continue
            seen.add(id(value))
            if not sends(value):
                known = label or name
                opaque = known and not isinstance(value, _LOOKED_INTO) and not is_users(type(value).__module__)
                return (None if opaque else visit(value, known)) or (known, value)
        return None

    return visit(item, "")


def _held(item: object) -> Iterator[tuple[str, object]]:
    """Yield (name, object) of what is pickled with an object; items of collections and this package's own parts have no name."""
    if isinstance(item, FunctionType):
        yield from zip(item.__code__.co_freevars, map(content_of, item.__closure__ or ()), strict=True)
        yield from read_globals(item)
        yield from (("", value) for value in item.__defaults__ or ())
        yield from (item.__kwdefaults__ or {}).items()
    elif isinstance(item, MethodType):
        yield from (("", item.__func__), ("", item.__self__))
    elif isinstance(item, functools.partial):
        yield from (("", item.func), *(("", value) for value in item.args), *item.keywords.items())
    elif isinstance(item, dict):
        yield from (("", value) for value in list(item.values()))
    elif isinstance(item, (list, tuple, set, frozenset)):
        yield from (("", value) for value in list(item))
    elif isinstance(item, (staticmethod, classmethod)):
        yield "", item.__func__
    elif isinstance(item, (ModuleType, type)):
        everything = list(vars(item).items())
        yield from ((name, value) for name, value in everything if not name.startswith("__") or isinstance(value, FunctionType))
    else:
        users = is_users(type(item).__module__)
        slots = (getattr(kind, "__slots__", ()) for kind in type(item).__mro__)
        names = [name for each in slots for name in ((each,) if isinstance(each, str) else each)]
        names += getattr(item, "__dict__", ())
        yield from ((name if users else "", getattr(item, name)) for name in names if hasattr(item, name))
        yield "", type(item)


def read_globals(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield (name, value) of the module globals that a function's code reads."""
    known = function.__globals__
    yield from ((name, known[name]) for name in dict.fromkeys(global_names(function.__code__)) if name in known)
