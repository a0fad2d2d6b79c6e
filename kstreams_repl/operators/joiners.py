"""User joiners in one form, `(key, this, other) -> value`, for either calling side and with or without the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Joiner = Callable[[Any, Any, Any], Any]


def joiner_with_key(joiner: Callable[..., Any], with_key: bool) -> Joiner:
    """Return the joiner as (key, left, right) -> value."""
    return joiner if with_key else lambda key, left, right: joiner(left, right)


def joiner_of_side(joiner: Callable[..., Any], *, with_key: bool, left_side: bool) -> Joiner:
    """Return the joiner as (key, this, other) -> value for the calling side; the user's joiner always gets left before right."""
    if left_side:
        return joiner_with_key(joiner, with_key)
    if with_key:
        return lambda key, this, other: joiner(key, other, this)
    return lambda key, this, other: joiner(other, this)
