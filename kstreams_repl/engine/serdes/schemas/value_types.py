"""Values as objects of a dataclass or a pydantic model instead of dicts, by pydantic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from kstreams_repl.system.extras import extras


def from_value_type(kind: type | None, mode: Literal["python", "json"] = "python") -> Callable[[Any], Any] | None:
    """Return the conversion from objects of a class to dicts, of Python values or of what JSON has; None if there is no class."""
    if kind is None:
        return None
    with extras():
        from pydantic import TypeAdapter

    return partial(TypeAdapter(kind).dump_python, mode=mode)


def to_value_type(kind: type | None) -> Callable[[Any], Any] | None:
    """Return the conversion from dicts to objects of a class; None if there is no class."""
    if kind is None:
        return None
    with extras():
        from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python
