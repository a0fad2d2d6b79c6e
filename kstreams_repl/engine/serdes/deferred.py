"""Serdes around the application's default serde, which is known only when a task is made.

The DSL makes a `DeferredSerde` if the user gave no inner serde; the runtime binds it once per node or store, before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kstreams_repl.engine.serdes.serde import Serde


class DeferredSerde:
    """A serde whose inner serde is not known yet.

    Attributes:
        make: inner serde -> the complete serde.
        part: whether the inner serde is the default key serde or the default value serde.
    """

    __slots__ = ("make", "part")

    def __init__(self, make: Callable[[Serde], Serde], part: Literal["key", "value"]) -> None:
        self.make = make
        self.part = part

    def bind(self, key: Serde, value: Serde) -> Serde:
        """Return the complete serde, given the application's default key and value serdes."""
        return self.make(key if self.part == "key" else value)

    def __repr__(self) -> str:
        return f"DeferredSerde({getattr(self.make, '__name__', 'serde')} of the default {self.part} serde)"


def around(make: Callable[[Serde], Serde], inner: Serde | None, part: Literal["key", "value"]) -> object:
    """Return `make(inner)`, deferred until the task is made if there is no inner serde."""
    return DeferredSerde(make, part) if inner is None else make(inner)
