"""The table of a SELECT ... GROUP BY: merge the partials of a key (`stream_sql_partials`) into its row.

A row is a dict of the selected columns, or the single column `value` alone; averages have a sum and a count in it, too. Where the store
has a write-back cache that nothing else reads, partials are merged by the column (`merged_columns`); otherwise one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from math import isfinite
from typing import Any

from kstreams_repl.engine.operators.aggregates.stream_aggregate import StreamAggregate
from kstreams_repl.engine.operators.batches.merged_columns import MergedColumns
from kstreams_repl.engine.operators.batches.partial_columns import Merging, PartialColumns
from kstreams_repl.engine.operators.batches.record_columns import VALUE
from kstreams_repl.engine.operators.batches.sql_grouping import Merge
from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.engine.operators.tables.tuple_forwarder import forwards_on_flush
from kstreams_repl.system.errors import InvalidRecordError, StateStoreError
from kstreams_repl.system.types import Headers, KeyValueMapper


@dataclass(slots=True)
class StreamSqlAggregate(StreamAggregate):
    """`StreamAggregate` whose aggregator is `MergePartials`."""

    def build(self, node: NodeContext, forward: Process) -> Process:
        store = node.store(self.store)
        if getattr(store, "cached", None) is None or not (node.owns(self.store) and node.by_columns):
            return StreamAggregate.build(self, node, forward)
        assert isinstance(self.aggregator, MergePartials)
        forwards_on_flush(node, store, forward, self.send_old_values)
        columns, to_bytes, drop = MergedColumns(self.aggregator, store, node.record), store.serialize_key, node.drop

        def enter(key: object, value: Sequence[object], timestamp: int, headers: Headers) -> None:
            if key is None or value is None:
                drop("null key or value")
            else:
                columns.enter(to_bytes(key), value, timestamp)

        def merge(partials: PartialColumns) -> None:
            columns.merge(partials)

        enter.merging = Merging(store.key_serde, merge)  # type: ignore[attr-defined]
        return enter


@dataclass(frozen=True, slots=True)
class MergePartials:
    """The aggregator (key, partial, row) -> row of a table's rows.

    Attributes:
        names, merges: of the selected columns.
    """

    names: tuple[str, ...]
    merges: tuple[Merge, ...]
    averages: tuple[int, ...] = field(init=False)
    """The numbers of the columns that are averages: rows have a sum and a count of each, too."""
    is_value: bool = field(init=False)
    """A row is the single column `value`, and not a dict."""

    def __post_init__(self) -> None:
        averages = tuple(number for number, merge in enumerate(self.merges) if merge is Merge.AVERAGE)
        object.__setattr__(self, "averages", averages)
        object.__setattr__(self, "is_value", self.names == (VALUE,) and not averages)

    def __call__(self, key: object, partial: Sequence[object], row: object) -> object:
        """Return the new row."""
        results = chain(partial, repeat(None))  # a partial of an earlier query may have fewer results
        return self.row([merge(old, new) for merge, old, new in zip(self.functions, self.results(key, row), results, strict=False)])

    @property
    def functions(self) -> list[KeyValueMapper]:
        """Return (old, new) -> merged for each result of a partial: the selected columns, and a count for each average."""
        return [*map(_MERGED.__getitem__, self.merges), *(_sum for _ in self.averages)]

    def results(self, key: object, row: Any) -> Sequence[object]:
        """Return what is kept of a row for each result of a partial; None for what it does not have yet.

        Raises:
            StateStoreError: an earlier query wrote the row in another form.
        """
        if row is not None and self.is_value is isinstance(row, dict):
            raise StateStoreError(
                f"the row of {key!r} has another form than the query's results: {str(row)[:60]}",
                hint="an earlier query selected other columns: reset the store, or give the table a new one",
            )
        if self.is_value:
            return [row]
        old = row or {}
        names = list(self.names)
        for number in self.averages:
            names.append(f"{names[number]}_count")
            names[number] += "_sum"
        return list(map(old.get, names))

    def row(self, results: Sequence[Any]) -> object:
        """Return the row of merged results."""
        if self.is_value:
            return results[0]
        row = dict(zip(self.names, results, strict=False))
        for number, count in zip(self.averages, results[len(self.names) :], strict=True):
            name, total = self.names[number], results[number]
            row |= {name: total / count if count else None, f"{name}_sum": total, f"{name}_count": count}
        return row


def _newer(old: object, new: object) -> object:
    return new


def _sum(old: Any, new: Any) -> object:
    if old is None or new is None:
        return new if old is None else old
    total = old + new
    if not (_LEAST <= total <= _MOST if type(total) is int else isfinite(total)):
        raise InvalidRecordError(f"the sum {old} + {new} is out of range", hint="sum DOUBLE instead of integers, or smaller numbers")
    return total


def _least(old: Any, new: Any) -> object:
    return old if new is None or (old is not None and old <= new) else new


def _most(old: Any, new: Any) -> object:
    return old if new is None or (old is not None and old >= new) else new


_LEAST, _MOST = -(2**63), 2**63 - 1
_MERGED: dict[Merge, KeyValueMapper] = {
    Merge.SAME: _newer,
    Merge.AVERAGE: _sum,
    Merge.COUNT: _sum,
    Merge.SUM: _sum,
    Merge.MIN: _least,
    Merge.MAX: _most,
    Merge.AND: _least,  # False is less than True
    Merge.OR: _most,
}
