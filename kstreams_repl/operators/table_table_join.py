"""Joins of two co-partitioned tables. Kafka Streams' `KTableKTableInnerJoin` and its siblings, `KTableKTableJoinMerger`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kstreams_repl.operators.base import Operator
from kstreams_repl.operators.getters import ValueGetter


class TableJoinKind(StrEnum):
    """Which rows a *side's* operator emits, seen from that side: for a left join the left side is LEFT, the right side RIGHT."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    OUTER = "outer"


@dataclass(slots=True)
class TableTableJoin(Operator):
    """One side of a table-table join: a change of this side is joined with the other side's present row.

    Kinds: INNER = KTableKTableInnerJoin (both sides); LEFT = KTableKTableLeftJoin (left side of a left join); RIGHT =
    KTableKTableRightJoin
    (right side of a left join); OUTER = KTableKTableOuterJoin (both sides). None keys are dropped and counted; a change
    that is not the latest (versioned) is left out. Timestamp: max of both sides.

    Attributes:
        kind: see above.
        other: how to read the other side's row.
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


@dataclass(slots=True)
class TableTableJoinMerger(Operator):
    """Where both sides meet: keeps the result in `store` when materialized, else forwards changes as they are.

    Attributes:
        store: name of the materialized result, or None.
        send_old_values: forward old values too (from the store when there is one).
        store_versioned: `store` is a versioned one.
    """

    store: str | None = None
    send_old_values: bool = False
    store_versioned: bool = False
