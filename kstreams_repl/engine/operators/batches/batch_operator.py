"""What the operators have in common that take many records at once: `map_batches` and `sql`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeVar

from kstreams_repl.engine.operators.batches.record_columns import BatchResult, Fields, RecordColumns, arrow
from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process

if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")


class BatchWork(Protocol):
    """What a node does with a batch, in one task."""

    reads_fields: bool
    """It reads declared fields of JSON, and no values."""

    def __call__(self, rows: RecordColumns) -> BatchResult: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class BatchOperator(Operator):
    """An operator that takes many records at once (`engine.runtime.batches.batch_node`).

    Attributes:
        fields: the declared fields of the values, which are then JSON objects.
        key, value: the types of keys and values (`record_columns.kind_of`); None if only the objects tell.
    """

    rekeys: ClassVar[bool] = False
    """Its results have keys of their own (`BatchResult.keys`)."""

    fields: Fields
    key: str | None
    value: str | None

    def build(self, node: NodeContext, forward: Process) -> Process:
        return node.task.batch_node(self, node, forward)

    @abstractmethod
    def work(self, node: str) -> BatchWork:
        """Return what one task's node does with a batch."""

    def schema(self, names: Collection[str] | None = None) -> pa.Schema | None:
        """Return the Arrow schema of the declared fields with these lower-case names, of all for None; None if there is no such field."""
        fields = [(name, kind) for name, kind in self.fields if names is None or name.lower() in names]
        if not fields:
            return None
        return arrow("a declared column").schema(fields)

    def not_declared(self, names: Iterable[str]) -> list[str]:
        """Return the names that are not those of declared fields, which hide other columns."""
        own = dict(self.fields)
        return [name for name in names if name not in own]


def without_deleted(values: Sequence[T], indices: Sequence[int], rows: RecordColumns) -> list[T | None]:
    """Return the values with None for those that come from a record whose value is None: a deletion stays one."""
    has_value = rows.has_value()
    return list(values) if has_value is None else [value if has_value[row] else None for value, row in zip(values, indices, strict=True)]
