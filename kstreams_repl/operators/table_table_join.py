"""Joins of two co-partitioned tables. Kafka Streams' `KTableKTableInnerJoin` and its siblings, `KTableKTableJoinMerger`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kstreams_repl.operators.base import NodeContext, Operator, Process
from kstreams_repl.operators.tuple_forwarder import keeper
from kstreams_repl.operators.value_getters import ValueGetter
from kstreams_repl.types import Headers


class TableJoinKind(StrEnum):
    """Which rows the operator of one *side* emits, as seen from that side: in a left join the left side is LEFT, the right side RIGHT."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"


@dataclass(slots=True)
class TableTableJoin(Operator):
    """One side of a table-table join: joins a change of this side with the other side's current row.

    Kinds: INNER = KTableKTableInnerJoin (both sides); LEFT = KTableKTableLeftJoin (left side of a left join); RIGHT =
    KTableKTableRightJoin (right side of a left join); OUTER = KTableKTableOuterJoin (both sides). None keys, and changes of a versioned
    table that are not the latest, are dropped and counted. Timestamp: max of both sides.

    Attributes:
        kind: see above.
        other: getter of the other side's row.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`; always called in left, right order.
        this_is_right: this operator is the right side (so swap the arguments of `joiner`).
        with_key: the joiner also takes the key.
        send_old_values: forward the old joined value too.
    """

    kind: TableJoinKind
    other: ValueGetter
    joiner: Callable[..., Any]
    this_is_right: bool = False
    with_key: bool = False
    send_old_values: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        if self.kind is TableJoinKind.INNER:
            return self._build_inner(node, forward)
        if self.kind is TableJoinKind.LEFT:
            return self._build_left(node, forward)
        if self.kind is TableJoinKind.RIGHT:
            return self._build_right(node, forward)
        return self._build_outer(node, forward)

    def _build_inner(self, node: NodeContext, forward: Process) -> Process:
        read, join, drop, send_old = self.other.build(node), self._join(), node.drop, self.send_old_values

        def inner_join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            new, old, is_latest = value
            if not is_latest:
                drop("out of order in a versioned table")
                return
            row = read(key)
            if row is None:
                return
            other, other_time = row
            new = None if new is None else join(key, new, other)
            old = join(key, old, other) if send_old and old is not None else None
            forward(key, (new, old, True), timestamp if timestamp > other_time else other_time, headers)

        return inner_join

    def _build_left(self, node: NodeContext, forward: Process) -> Process:
        read, join, drop, send_old = self.other.build(node), self._join(), node.drop, self.send_old_values

        def left_join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            new, old, is_latest = value
            if not is_latest:
                drop("out of order in a versioned table")
                return
            row = read(key)
            other = None
            if row is not None:
                other, other_time = row
                if other_time > timestamp:
                    timestamp = other_time
            elif new is None and old is None:
                return
            new = None if new is None else join(key, new, other)
            old = join(key, old, other) if send_old and old is not None else None
            forward(key, (new, old, True), timestamp, headers)

        return left_join

    def _build_right(self, node: NodeContext, forward: Process) -> Process:
        read, join, drop, send_old = self.other.build(node), self._join(), node.drop, self.send_old_values

        def right_join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            new, old, is_latest = value
            if not is_latest:
                drop("out of order in a versioned table")
                return
            row = read(key)
            if row is None:
                return
            other, other_time = row
            old = join(key, old, other) if send_old else None
            forward(key, (join(key, new, other), old, True), timestamp if timestamp > other_time else other_time, headers)

        return right_join

    def _build_outer(self, node: NodeContext, forward: Process) -> Process:
        read, join, drop, send_old = self.other.build(node), self._join(), node.drop, self.send_old_values

        def outer_join(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                drop("null key")
                return
            new, old, is_latest = value
            if not is_latest:
                drop("out of order in a versioned table")
                return
            row = read(key)
            other = None
            if row is not None:
                other, other_time = row
                if other_time > timestamp:
                    timestamp = other_time
            elif new is None and old is None:
                return
            joined = join(key, new, other) if other is not None or new is not None else None
            before = join(key, old, other) if send_old and (other is not None or old is not None) else None
            forward(key, (joined, before, True), timestamp, headers)

        return outer_join

    def _join(self) -> Callable[[Any, Any, Any], Any]:
        """Return the joiner as (key, value of this side, value of the other side) -> value."""
        joiner = self.joiner
        if self.with_key:
            return (lambda key, this, other: joiner(key, other, this)) if self.this_is_right else joiner
        if self.this_is_right:
            return lambda key, this, other: joiner(other, this)
        return lambda key, this, other: joiner(this, other)


@dataclass(slots=True)
class TableTableJoinMerger(Operator):
    """Merge the results of both sides: put them into `store` if materialized, otherwise forward the changes unchanged.

    Attributes:
        store: name of the materialized result, or None.
        send_old_values: forward old values too (from the store if there is one).
        store_versioned: `store` is a versioned one.
    """

    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False

    def build(self, node: NodeContext, forward: Process) -> Process:
        send_old = self.send_old_values
        if self.store is None:
            if send_old:
                return forward

            def merge(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                forward(key, (value[0], None, value[2]), timestamp, headers)

            return merge
        keep = keeper(node, self.store, forward, send_old_values=send_old, versioned=self.store_versioned)

        def merge_stored(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            keep(key, value[0], value[1] if send_old else None, timestamp, headers)

        return merge_stored
