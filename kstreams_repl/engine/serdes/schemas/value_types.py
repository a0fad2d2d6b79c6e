"""Values as objects of a dataclass or a pydantic model instead of dicts, by pydantic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kstreams_repl.system.extras import extras

if TYPE_CHECKING:
    from pydantic import TypeAdapter


def from_value_type(kind: type | None, mode: Literal["python", "json"] = "python") -> Callable[[Any], Any] | None:
    """Return the conversion from objects of a class to dicts, of Python values or of what JSON has; None if there is no class."""
    return None if kind is None else partial(_adapter(kind).dump_python, mode=mode)


def to_value_type(kind: type | None) -> Callable[[Any], Any] | None:
    """Return the conversion from dicts to objects of a class; None if there is no class."""
    return None if kind is None else _adapter(kind).validate_python


def _adapter(kind: type) -> TypeAdapter[Any]:
    with extras():
        from pydantic import TypeAdapter

    return TypeAdapter(kind)
