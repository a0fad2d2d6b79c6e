"""User functions in one form, for either calling side of a join and with or without the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.engine.operators.kernel import inlined

Joiner = Callable[[Any, Any, Any], Any]


def joiner_of_side(joiner: Callable[..., Any], *, with_key: bool, left_side: bool = True) -> Joiner:
    """Return the joiner as (key, this, other) -> value for the calling side; the user's joiner always gets left before right."""
    if left_side:

        @inlined
        def join(key: Any, this: Any, other: Any) -> Any:
            return joiner(key, this, other) if with_key else joiner(this, other)

        return join

    @inlined
    def join_swapped(key: Any, this: Any, other: Any) -> Any:
        return joiner(key, other, this) if with_key else joiner(other, this)

    return join_swapped


def with_key_of(function: Callable[..., Any], with_key: bool) -> Callable[[Any, Any], Any]:
    """Return a user's function of the value, or of key and value, as (key, value) -> result."""

    @inlined
    def call(key: Any, value: Any) -> Any:
        return function(key, value) if with_key else function(value)

    return call
