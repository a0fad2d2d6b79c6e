"""What tables request from each other while a topology is built: access to their rows, and old values with their changes.

A table is kept in a store only if it is named or one of these is requested. A request is passed upstream until a table can meet
it.
Sources: Kafka Streams' `KTableImpl.valueGetterSupplier`, `enableSendingOldValues` and the suppliers they call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kstreams_repl.engine.operators.joins.table_table_join import TableTableJoin, TableTableJoinMerger
from kstreams_repl.engine.operators.tables.table_filter import TableFilter
from kstreams_repl.engine.operators.tables.table_map_values import TableMapValues
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.operators.tables.table_transform_values import TableTransformValues
from kstreams_repl.engine.operators.tables.value_getters import (
    FilterGetter,
    JoinGetter,
    MapValuesGetter,
    StoreGetter,
    StoreKindRead,
    SuppressGetter,
    TransformValuesGetter,
    ValueGetter,
)
from kstreams_repl.engine.topology.description.java_order import hash_set_order


class TableState(ABC):
    """How one table provides its rows and old values."""

    sending_old_values = False

    def enable_sending_old_values(self, *, force: bool) -> bool:
        """Enable old values; without `force` only if this needs no new store. Returns whether they are enabled."""
        if not self.sending_old_values and self._enable(force):
            self.sending_old_values = True
        return self.sending_old_values

    @abstractmethod
    def _enable(self, force: bool) -> bool: ...

    @abstractmethod
    def getter(self) -> ValueGetter:
        """Return how to read this table's rows; adds a store if there is no other way."""


def stored(store: str, versioned: bool) -> StoreGetter:
    """Return a getter of rows directly from a table's store."""
    return StoreGetter(store, StoreKindRead.VERSIONED if versioned else StoreKindRead.KEY_VALUE)


def stores_read(getter: ValueGetter) -> tuple[str, ...]:
    """Return the stores to connect to a reading node, in the order in which Kafka Streams connects them, which `describe()`
    shows.

    Sources: `KTableSuppressProcessorSupplier.view`, `KTableKTableAbstractJoinValueGetterSupplier`, `KTableKTableJoinMerger.view`.
    """
    if isinstance(getter, SuppressGetter):
        return (getter.store, *(name for name in stores_read(getter.parent) if name != getter.store))
    if isinstance(getter, JoinGetter):
        both = (*stores_read(getter.left), *stores_read(getter.right))
        side = hash_set_order(both, sized=len(both))
        return tuple(hash_set_order(side, sized=2 * len(side)))
    if isinstance(getter, FilterGetter | MapValuesGetter):
        return stores_read(getter.parent)
    if isinstance(getter, TransformValuesGetter):
        return stores_read(getter.parent) + getter.transformer_stores
    return getter.stores()


@dataclass(eq=False, repr=False)
class SourceState(TableState):
    """A table read from a topic or stream: its store is made only if needed."""

    operator: TableSource
    store: str

    def _enable(self, force: bool) -> bool:
        if self.operator.store is None and not force:
            return False
        self.operator.store = self.store
        self.operator.send_old_values = True
        return True

    def getter(self) -> ValueGetter:
        self.operator.store = self.store
        return stored(self.store, self.operator.versioned)


@dataclass(eq=False, repr=False)
class AggregateState(TableState):
    """An aggregate: always has a store. A cogroup has several `operators`."""

    operators: Sequence[Any]
    rows: StoreGetter

    def _enable(self, force: bool) -> bool:
        for operator in self.operators:
            operator.send_old_values = True
        return True

    def getter(self) -> ValueGetter:
        return self.rows


Derived = TableFilter | TableMapValues | TableTransformValues


@dataclass(eq=False, repr=False)
class DerivedState(TableState):
    """A filtered or mapped table: computed from its parent unless it has a store."""

    operator: Derived
    parent: TableState
    derive: Callable[[ValueGetter], ValueGetter]

    def _enable(self, force: bool) -> bool:
        if self.operator.store is not None or self.parent.enable_sending_old_values(force=force):
            self.operator.send_old_values = True
        return self.operator.send_old_values

    def getter(self) -> ValueGetter:
        if self.operator.store is not None:
            return stored(self.operator.store, self.operator.store_versioned)
        return self.derive(self.parent.getter())


def filter_state(operator: TableFilter, parent: TableState) -> DerivedState:
    return DerivedState(operator, parent, lambda getter: FilterGetter(getter, operator.predicate, operator.negate))


def map_values_state(operator: TableMapValues, parent: TableState) -> DerivedState:
    return DerivedState(operator, parent, lambda getter: MapValuesGetter(getter, operator.mapper, operator.with_key))


def transform_values_state(operator: TableTransformValues, parent: TableState) -> DerivedState:
    return DerivedState(operator, parent, lambda getter: TransformValuesGetter(getter, operator.supplier, operator.stores))


@dataclass(eq=False, repr=False)
class JoinState(TableState):
    """A table-table join: needs both sides' old values and rows."""

    kind: str
    merger: TableTableJoinMerger
    sides: tuple[TableTableJoin, TableTableJoin]
    left: TableState
    right: TableState

    def _enable(self, force: bool) -> bool:
        self.left.enable_sending_old_values(force=True)
        self.right.enable_sending_old_values(force=True)
        for side in self.sides:
            side.send_old_values = True
        self.merger.send_old_values = True
        return True

    def getter(self) -> ValueGetter:
        if self.merger.store is not None:
            return stored(self.merger.store, self.merger.store_versioned)
        side = self.sides[0]
        return JoinGetter(self.kind, self.left.getter(), self.right.getter(), side.joiner, side.with_key)


class SuppressState(TableState):
    """A suppressed table: its rows are the last emitted ones."""

    def __init__(self, operator: TableSuppress, parent: TableState) -> None:
        self.operator = operator
        self.parent = parent
        parent.enable_sending_old_values(force=True)  # the buffer keeps the previously emitted value

    def _enable(self, force: bool) -> bool:
        return self.parent.enable_sending_old_values(force=force)

    def getter(self) -> ValueGetter:
        return SuppressGetter(self.operator.store, self.parent.getter())
