"""The partitions of a store on this host, which answer reads from the last commit of their tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kstreams_repl.engine.stores.engine.failures import RawError
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.store_types import QueryableStoreType, StateStoreProvider, expect_accepted
from kstreams_repl.serving.queries.read import ROWS, Read, rows_of, value_in
from kstreams_repl.serving.queries.row_iterator import Held, Holder
from kstreams_repl.serving.queries.task_view import TaskView, migrated
from kstreams_repl.system.types import ValueAndTimestamp

_stamped = ValueAndTimestamp._make


class LocalPart:
    """One partition of a store.

    Args:
        stale: whether a copy that is behind may answer.
        headers: a store that keeps headers shows them.
    """

    def __init__(self, local: LocalStores, builder: StoreBuilder, partition: int, *, stale: bool = False, headers: bool = False) -> None:
        self.builder = builder
        self.partition = partition
        self._local = local
        self._stale = stale
        self._headers = headers

    def open(self, read: Read) -> tuple[Held | None, Any]:
        """Return (what an iterator holds, None) for rows, or (None, the value)."""
        reader, view = self._local.take(self.builder.name, self.partition, stale=self._stale)
        held = None
        try:
            held, value = ViewPart(reader, view, self.builder, headers=self._headers).open(read)
            return held, value
        except RawError as error:
            raise migrated(reader.task) from error
        finally:
            if held is None:
                reader.give(view)

    def __repr__(self) -> str:
        return f"LocalPart({self.builder.name!r}, partition {self.partition})"


class ViewPart:
    """One commit of a partition.

    Args:
        holder: gets the view back when rows have ended; without rows it is the caller's to give back.
    """

    def __init__(self, holder: Holder, view: TaskView, builder: StoreBuilder, *, headers: bool = False) -> None:
        self.builder = builder
        self._holder, self._view = holder, view
        self._headers = headers

    def open(self, read: Read) -> tuple[Held | None, Any]:
        """Return (what an iterator holds, None) for rows, or (None, the value)."""
        builder, view, headers = self.builder, self._view, self._headers
        if read.kind in ROWS:
            return (self._holder, view, rows_of(read, view.store(builder, headers=headers), builder)), None
        if read.kind != "many":
            return None, value_in(read, view.store(builder, headers=headers))
        values = view.get_many(builder, read.keys, headers=headers)
        if builder.kind is StoreKind.TIMESTAMPED_KEY_VALUE and not headers:
            return None, [None if value is None else _stamped(value) for value in values]
        return None, values


class LocalStoreProvider(StateStoreProvider):
    """Finds the parts of the stores of this host.

    Args:
        partition: only this one; None: all that are here.
        stale: whether copies that are behind may answer.
    """

    def __init__(self, local: LocalStores, *, partition: int | None = None, stale: bool = False) -> None:
        self._local = local
        self._partition = partition
        self._stale = stale
        self._last: tuple[tuple[list[int], bool], list[LocalPart]] = (([], False), [])

    def parts(self, name: str, store_type: QueryableStoreType) -> Sequence[LocalPart]:
        builder = self._local.builder(name)
        expect_accepted(store_type, builder)
        self._local.refuse_memory(name)
        partitions = self._local.expect_any(name, stale=self._stale) if self._partition is None else [self._partition]
        headers = getattr(store_type, "headers", False)
        if (partitions, headers) != self._last[0]:
            parts = [LocalPart(self._local, builder, partition, stale=self._stale, headers=headers) for partition in partitions]
            self._last = ((partitions, headers), parts)
        return self._last[1]
