"""The aggregators of `count` and `reduce`, for streams, windows and tables. Kernels inline them (`engine.operators.kernel`)."""

from __future__ import annotations

from kstreams_repl.engine.operators.kernel import inlined
from kstreams_repl.system.types import Aggregator, Reducer


@inlined
def zero() -> int:
    """Return the initial value of a count."""
    return 0


@inlined
def nothing() -> None:
    """Return None, the initial value of a reduce: there is no aggregate yet."""
    return None


@inlined
def count_one(key: object, value: object, count: int) -> int:
    """Count a record; in windows a None value counts too."""
    return count + 1


@inlined
def uncount_one(key: object, value: object, count: int) -> int:
    """Remove a table's row from the count of its group."""
    return count - 1


@inlined
def add_counts(key: object, one: int, other: int) -> int:
    """Return the count of two merged sessions."""
    return one + other


def reducing(reducer: Reducer) -> Aggregator:
    """Return an aggregator whose first value is its first aggregate."""

    @inlined
    def aggregate(key: object, value: object, so_far: object) -> object:
        return value if so_far is None else reducer(so_far, value)

    return aggregate
