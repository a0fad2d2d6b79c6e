"""Windowed joins of two streams. Kafka Streams' `KStreamKStreamJoinLeftSide`, `RightSide`, `SelfJoin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstreams_repl.operators.base import Operator


@dataclass(slots=True)
class StreamStreamJoin(Operator):
    """One side of a windowed stream-stream join: joins a record with the other side's records in its window.

    `before_ms` and `after_ms` are *this side's*: the other record's timestamp lies in `[ts - before_ms, ts + after_ms]` (already
    swapped by the DSL for the right side). See the reference, section 2.6 rule 29 for nulls and the order of outer results.

    Attributes:
        left_side: this operator handles the left stream.
        other_store: name of the other side's window store.
        before_ms, after_ms, grace_ms: the window as seen from this side.
        close_before_ms, close_after_ms: the window as seen from the *left* stream, for when parked records close:
            a parked left record closes at ts + close_after + grace, a right one at ts + close_before + grace.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`; always in left, right order.
        outer: unmatched records of *this* side are emitted with None.
        outer_store: name of the shared store of parked records (kind `OUTER_JOIN`); None for inner joins.
        time_tracker: both sides of one join carry the same name and share one stream time and emit throttle per task.
        with_key: the joiner also takes the key.
    """

    left_side: bool
    other_store: str
    before_ms: int
    after_ms: int
    grace_ms: int
    close_before_ms: int
    close_after_ms: int
    joiner: Callable[..., Any]
    outer: bool
    outer_store: str | None
    time_tracker: str
    with_key: bool = False


@dataclass(slots=True)
class StreamStreamSelfJoin(Operator):
    """An inner join of a stream with itself over one store: the order of results is that of the two-sided join.

    Comes after a `StreamJoinWindow` on the same store (the record itself is already in it). Inner joins only.

    Attributes:
        store: name of the stream's window store.
        before_ms, after_ms, grace_ms: the window as seen from the left.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`.
        with_key: the joiner also takes the key.
    """

    store: str
    before_ms: int
    after_ms: int
    grace_ms: int
    joiner: Callable[..., Any]
    with_key: bool = False
