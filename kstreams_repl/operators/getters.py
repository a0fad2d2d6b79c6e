"""How one node reads another table's present row. Kafka Streams' `KTableValueGetterSupplier`s.

A materialized table is read from its store; others compute through their parent, so a filter over a stored table needs
no store of its own. A getter is a pure description; `build` is called by the operator that reads, once per task, with its own
NodeContext.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Get = Callable[[Any], tuple[Any, int] | None]
"""key -> (value, timestamp), or None when there is no row."""


class ValueGetter(ABC):
    """Reads the present row of a table."""

    __slots__ = ()

    @abstractmethod
    def stores(self) -> tuple[str, ...]:
        """Names of all stores it reads; the reading node must be connected to them."""

    @property
    def versioned(self) -> bool:
        """Whether `build_as_of` works: the table is read from a versioned store (directly or through filters and maps)."""
        return False


class StoreKindRead(StrEnum):
    """Which kind of store a `StoreGetter` reads, hence the form of its keys."""

    KEY_VALUE = "key-value"      # timestamped key-value
    VERSIONED = "versioned"
    WINDOW = "window"            # timestamped window store; keys are Windowed
    SESSION = "session"          # session store; keys are Windowed; timestamp = session end


@dataclass(slots=True)
class StoreGetter(ValueGetter):
    """Row from the table's own store (`KTableSourceValueGetterSupplier`, `KTableMaterializedValueGetterSupplier`, window
    views)."""

    store: str
    kind: StoreKindRead = StoreKindRead.KEY_VALUE

    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def versioned(self) -> bool:
        return self.kind is StoreKindRead.VERSIONED


@dataclass(slots=True)
class FilterGetter(ValueGetter):
    """Parent's row when the predicate holds, else None; keeps the timestamp."""

    parent: ValueGetter
    predicate: Callable[[Any, Any], Any]
    negate: bool = False

    def stores(self) -> tuple[str, ...]:
        return self.parent.stores()

    @property
    def versioned(self) -> bool:
        return self.parent.versioned


@dataclass(slots=True)
class MapValuesGetter(ValueGetter):
    """Parent's row with its value mapped (not called for a None value); keeps the timestamp."""

    parent: ValueGetter
    mapper: Callable[..., Any]
    with_key: bool = False

    def stores(self) -> tuple[str, ...]:
        return self.parent.stores()

    @property
    def versioned(self) -> bool:
        return self.parent.versioned


@dataclass(slots=True)
class TransformValuesGetter(ValueGetter):
    """Parent's row transformed by a transformer of its own; under the record context of the parent's row (its timestamp)."""

    parent: ValueGetter
    supplier: Callable[[], Any]
    transformer_stores: tuple[str, ...] = ()

    def stores(self) -> tuple[str, ...]:
        return self.parent.stores() + self.transformer_stores


@dataclass(slots=True)
class JoinGetter(ValueGetter):
    """Row of an unmaterialized table-table join, computed from both sides; timestamp = max of both.

    Attributes:
        kind: "inner", "left" (every left row), "right" (seen from the right side: rows need a right row), or "outer".
        left, right: the sides.
        joiner: (left, right) -> value, or (key, left, right) -> value when `with_key`.
    """

    kind: str
    left: ValueGetter
    right: ValueGetter
    joiner: Callable[..., Any]
    with_key: bool = False

    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.left.stores() + self.right.stores()))


@dataclass(slots=True)
class SuppressGetter(ValueGetter):
    """What a suppressed table last showed: the prior value of a buffered key, else the parent's row."""

    store: str
    parent: ValueGetter

    def stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.parent.stores(), self.store)))
