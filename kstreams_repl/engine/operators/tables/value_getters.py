"""Read another table's current row from a node. Kafka Streams' `KTableValueGetterSupplier`s.

A materialized table is read from its store; others are computed from their parent, so a filter over a stored table needs no store of
its own. A getter is a pure description; the reading operator calls `build` once per task, with its own NodeContext.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kstreams_repl.engine.operators.operator import NodeContext
from kstreams_repl.engine.operators.tables.transformer_context import start_transformer
from kstreams_repl.engine.operators.user_functions import joiner_of_side, with_key_of
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Joiner, Predicate, ProcessorSupplier, ValueMapper, VersionedRecord

Row = tuple[Any, int] | None

Get = Callable[[Any], Row]
"""key -> (value, timestamp), or None if there is no row. The value of a row is never None."""

GetAsOf = Callable[[Any, int], Row]
"""(key, timestamp) -> the row that was valid at that time, or None."""

UNKNOWN_TIMESTAMP = -1


class ValueGetter(ABC):
    """Reads the current row of a table."""

    __slots__ = ()

    @abstractmethod
    def stores(self) -> tuple[str, ...]:
        """Return the names of all stores it reads; the reading node must be connected to them."""

    @abstractmethod
    def build(self, node: NodeContext) -> Get:
        """Return the read function for one task; `node` is the reading node."""

    def build_as_of(self, node: NodeContext) -> GetAsOf:
        """Return the read function for past versions; only if `versioned` is True."""
        raise TopologyError(
            f"node {node.name} reads a table as of a time, but the table is not versioned",
            hint="give the table a versioned store (history_retention=...)",
            node=node.name,
        )

    @property
    def versioned(self) -> bool:
        """Whether `build_as_of` works: the table is read from a versioned store (directly or through filters and maps)."""
        return False


class StoreKindRead(StrEnum):
    """The kind of store that a `StoreGetter` reads, which determines the form of its keys."""

    KEY_VALUE = "key-value"      # timestamped key-value
    VERSIONED = "versioned"
    WINDOW = "window"            # timestamped window store; keys are Windowed
    SESSION = "session"          # session store; keys are Windowed; timestamp = session end


@dataclass(slots=True)
class StoreGetter(ValueGetter):
    """Reads a row from the table's own store (`KTableSourceValueGetterSupplier`, `KTableMaterializedValueGetterSupplier`, window views)."""

    store: str
    kind: StoreKindRead = StoreKindRead.KEY_VALUE

    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def versioned(self) -> bool:
        return self.kind is StoreKindRead.VERSIONED

    def build(self, node: NodeContext) -> Get:
        store = node.store(self.store)
        if self.kind is StoreKindRead.KEY_VALUE:
            to_bytes, read, refuse = store.serialize_key, store.get_raw, store.get

            def get_row(key: object) -> tuple[object, int] | None:
                data = to_bytes(key)
                return read(data) if data is not None else refuse(key)  # type: ignore[no-any-return]

            return get_row
        if self.kind is StoreKindRead.VERSIONED:
            get = store.get
            return lambda key: _row_of(get(key))
        if self.kind is StoreKindRead.WINDOW:
            fetch = store.fetch
            return lambda key: fetch(key[0], key[1])
        fetch_session = store.fetch_session
        return lambda key: None if (aggregate := fetch_session(key[0], key[1], key[2])) is None else (aggregate, key[2])

    def build_as_of(self, node: NodeContext) -> GetAsOf:
        if not self.versioned:
            return super(StoreGetter, self).build_as_of(node)
        get = node.store(self.store).get
        return lambda key, timestamp: _row_of(get(key, timestamp))


def _row_of(version: VersionedRecord | None) -> Row:
    return None if version is None else (version[0], version[1])


@dataclass(slots=True)
class DerivedGetter(ValueGetter):
    """Reads the parent's row, now or as of a time, and derives a row from it."""

    parent: ValueGetter

    def stores(self) -> tuple[str, ...]:
        return self.parent.stores()

    @property
    def versioned(self) -> bool:
        return self.parent.versioned

    @abstractmethod
    def build_derive(self, node: NodeContext) -> Callable[[object, Row], Row]:
        """Return (key, the parent's row) -> row."""

    def build(self, node: NodeContext) -> Get:
        read, derive = self.parent.build(node), self.build_derive(node)
        return lambda key: derive(key, read(key))

    def build_as_of(self, node: NodeContext) -> GetAsOf:
        read, derive = self.parent.build_as_of(node), self.build_derive(node)
        return lambda key, timestamp: derive(key, read(key, timestamp))


@dataclass(slots=True)
class FilterGetter(DerivedGetter):
    """None unless the predicate is true. Keeps the timestamp."""

    predicate: Predicate
    negate: bool = False

    def build_derive(self, node: NodeContext) -> Callable[[object, Row], Row]:
        predicate, negate = self.predicate, self.negate
        return lambda key, row: row if row is not None and bool(predicate(key, row[0])) is not negate else None


@dataclass(slots=True)
class MapValuesGetter(DerivedGetter):
    """Maps the row's value (not called for a None value). Keeps the timestamp."""

    mapper: ValueMapper
    with_key: bool = False

    def build_derive(self, node: NodeContext) -> Callable[[object, Row], Row]:
        mapper = with_key_of(self.mapper, self.with_key)

        def mapped(key: object, row: Row) -> Row:
            if row is None:
                return None
            value = mapper(key, row[0])
            return None if value is None else (value, row[1])

        return mapped


@dataclass(slots=True)
class TransformValuesGetter(DerivedGetter):
    """Transforms the row with a transformer of its own, under the record context of that row (its timestamp)."""

    supplier: ProcessorSupplier
    transformer_stores: tuple[str, ...] = ()

    def stores(self) -> tuple[str, ...]:
        return self.parent.stores() + self.transformer_stores

    def build_derive(self, node: NodeContext) -> Callable[[object, Row], Row]:
        transform, record = start_transformer(node, self.supplier).transform, node.record

        def transformed(key: object, row: Row) -> Row:
            old, timestamp = (None, UNKNOWN_TIMESTAMP) if row is None else (row[0], row[1])
            with record.replace(record.snapshot()._replace(topic=None, partition=-1, offset=-1, timestamp=timestamp, headers=[])):
                value = transform(key, old)
            return None if value is None else (value, timestamp)

        return transformed


@dataclass(slots=True)
class JoinGetter(ValueGetter):
    """Computes the row of an unmaterialized table-table join from both sides; timestamp = max of both.

    Attributes:
        kind: "inner", "left" (every left row), "right" (as seen from the right side: requires a right row), or "outer".
        left, right: getters of the two sides.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`.
    """

    kind: str
    left: ValueGetter
    right: ValueGetter
    joiner: Joiner
    with_key: bool = False

    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.left.stores() + self.right.stores()))

    def build(self, node: NodeContext) -> Get:
        left, right, kind = self.left.build(node), self.right.build(node), self.kind
        join = joiner_of_side(self.joiner, with_key=self.with_key)
        needs_left, needs_right = kind in ("inner", "left"), kind in ("inner", "right")

        def get_joined(key: object) -> tuple[object, int] | None:
            one = left(key)
            if one is None and needs_left:
                return None
            two = right(key)
            if two is None and (needs_right or one is None):
                return None
            this, this_time = (None, UNKNOWN_TIMESTAMP) if one is None else (one[0], one[1])
            other, other_time = (None, UNKNOWN_TIMESTAMP) if two is None else (two[0], two[1])
            value = join(key, this, other)
            return None if value is None else (value, max(this_time, other_time))

        return get_joined


@dataclass(slots=True)
class SuppressGetter(ValueGetter):
    """Reads what a suppressed table emitted last: the prior value of a buffered key, otherwise the parent's row."""

    store: str
    parent: ValueGetter

    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.parent.stores(), self.store)))

    def build(self, node: NodeContext) -> Get:
        prior_value, read = node.store(self.store).prior_value, self.parent.build(node)

        def get_shown(key: object) -> tuple[object, int] | None:
            prior = prior_value(key)
            if prior is None:
                return read(key)
            return None if prior[0] is None else (prior[0], UNKNOWN_TIMESTAMP)

        return get_shown
