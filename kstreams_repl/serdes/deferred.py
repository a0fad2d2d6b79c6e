"""Serdes around the application's default serde, which is known only when a task is made.

The DSL makes a `DeferredSerde` where the user gave no inner serde; the runtime binds it, once per node or store, before the
first byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from kstreams_repl.serdes.base import Serde


class DeferredSerde:
    """A serde that is still missing its inner one.

    Attributes:
        make: inner serde -> the whole serde.
        part: whether the default key serde or the default value serde is the inner one.
    """

    __slots__ = ("make", "part")

    def __init__(self, make: Callable[[Serde], Serde], part: Literal["key", "value"]) -> None:
        self.make = make
        self.part = part

    def bind(self, key: Serde, value: Serde) -> Serde:
        """The whole serde, given the application's default key and value serdes."""
        return self.make(key if self.part == "key" else value)

    def __repr__(self) -> str:
        return f"DeferredSerde({getattr(self.make, '__name__', 'serde')} of the default {self.part} serde)"


def around(make: Callable[[Serde], Serde], inner: Serde | None, part: Literal["key", "value"]) -> Any:
    """`make(inner)`, put off until the task is made when there is no inner serde."""
    return DeferredSerde(make, part) if inner is None else make(inner)
