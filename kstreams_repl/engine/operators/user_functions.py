"""User functions in one form, for either calling side of a join and with or without the key."""

from __future__ import annotations

import inspect

from kstreams_repl.engine.operators.kernel import inlined
from kstreams_repl.system.types import Joiner, KeyValueMapper, UserFunction


def joiner_of_side(joiner: Joiner, *, with_key: bool, left_side: bool = True) -> Joiner:
    """Return the joiner as (key, this, other) -> value for the calling side; the user's joiner always gets left before right."""
    if left_side:

        @inlined
        def join(key: object, this: object, other: object) -> object:
            return joiner(key, this, other) if with_key else joiner(this, other)

        return join

    @inlined
    def join_swapped(key: object, this: object, other: object) -> object:
        return joiner(key, other, this) if with_key else joiner(other, this)

    return join_swapped


def with_key_of(function: UserFunction, with_key: bool) -> KeyValueMapper:
    """Return a user's function of the value, or of key and value, as (key, value) -> result."""

    @inlined
    def call(key: object, value: object) -> object:
        return function(key, value) if with_key else function(value)

    return call


def takes_headers(partitioner: UserFunction) -> bool:
    """Return whether a partitioner is (topic, key, value, headers, partitions) -> …: it has a parameter named ``headers`` (KIP-1321)."""
    try:
        return "headers" in inspect.signature(partitioner).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature
        return False
