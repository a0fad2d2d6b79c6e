"""The flush of a write-back cache: encode all entries, write all, log all, then forward all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.serdes.serde import of_values
from kstreams_repl.engine.stores.cache.cache_entry import CacheEntry, EntryState, Frozen, is_deletion
from kstreams_repl.engine.stores.layers.bytes_store import PhysicalRows, logged_columns
from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.engine.stores.layers.object_store import EntryListener
from kstreams_repl.engine.stores.log.changelog import Changelog
from kstreams_repl.system.types import Deserialize, Headers, Outlet, RowLoop

_origin = attrgetter("topic", "partition", "offset")
_UNKNOWN = None, -1, -1


class Columns(NamedTuple):
    """Entries in the form in which they are sent to an outlet."""

    keys: list[bytes]
    stored: list[bytes | None]
    logged: Sequence[bytes | None]
    timestamps: list[int]
    headers: list[Headers]


class EntryFlush:
    """Writes the entries of one store to the rows below and the changelog, and passes them downstream.

    Attributes:
        listener: called for each entry with its new and its old item, under the context of its last write.
        outlet: takes the entries as columns instead.
        loop: forwards many entries at once; `keys_of` returns their keys.
        with_context: whether entries have topic, partition and offset of their last record.
    """

    __slots__ = (
        "listener", "outlet", "with_context", "keys_of", "loop", "_send_old_values", "_odd_writes", "_rows", "_write_many", "_codec",
        "_context",
    )  # fmt: skip

    def __init__(self, rows: PhysicalRows, codec: Codec, changelog: Changelog, record_context: RecordContext) -> None:
        self._rows = rows
        self._write_many = logged_columns(rows, changelog)
        self._codec = codec
        self._context = record_context
        self._send_old_values = False
        self._odd_writes = self._count_odd_writes()
        """At the last flush: all values that leave were written since."""
        self.listener: EntryListener | None = None
        self.outlet: Outlet | None = None
        self.loop: RowLoop | None = None
        self.keys_of: Callable[[list[bytes]], Sequence[object]] = list
        self.with_context = True

    def _count_odd_writes(self) -> int | None:
        odd = self._codec.serde.odd_writes
        return None if odd is None else odd[0]

    def listen(self, listener: EntryListener, send_old_values: bool) -> None:
        self.listener, self._send_old_values = listener, send_old_values

    def columns(self, leaving: list[CacheEntry], frozen: list[CacheEntry]) -> Columns | None:
        """Return the entries as columns; None if the serde serializes a value to None, or if one of those that are frozen is a deletion
        or has bytes that would be written differently after reading them.
        """
        before, self._odd_writes = self._odd_writes, self._count_odd_writes()
        if any(slot.value.data is None for slot in frozen):
            return None
        canonical = self._codec.serde.canonical
        if (before is None or before != self._odd_writes) and not all(canonical(slot.value.data) for slot in frozen):
            return None
        timestamps = [slot.at for slot in leaving]
        stored, logged = self._encode(leaving, frozen, timestamps)
        if self._codec.serde.layout is None and None in stored:
            return None
        return Columns([slot.key for slot in leaving], stored, logged, timestamps, [slot.headers for slot in leaving])

    def send(self, columns: Columns, outlet: Outlet) -> None:
        """Write and log columns, then pass them to the outlet."""
        keys, stored, logged, timestamps, headers = columns
        self._write_many(keys, stored, logged, timestamps)
        outlet(keys, logged, timestamps, headers if any(headers) else None)

    def write(self, leaving: list[CacheEntry], frozen: list[CacheEntry]) -> None:
        """Write and log entries, then call the listener for each.

        Args:
            frozen: those whose value is a `Frozen`.
        """
        old_objects: dict[bytes, object] = {}
        deletions = [slot for slot in frozen if slot.value.data is None]
        if self.listener is not None and (deletions or self._send_old_values):
            old_objects = self._read_old(leaving if self._send_old_values else deletions)
            if deletions:  # a tombstone for a key without a row is neither written nor forwarded
                leaving = [slot for slot in leaving if not is_deletion(slot.value) or slot.key in old_objects]
                frozen = [slot for slot in leaving if type(slot.value) is Frozen]
        if not leaving:
            return
        timestamps = [slot.at for slot in leaving] if self._codec.timestamped else [slot.timestamp for slot in leaving]
        stored, logged = self._encode(leaving, frozen, timestamps)
        if self._codec.timestamped and None in stored:
            timestamps = [slot.timestamp if data is None else slot.at for data, slot in zip(stored, leaving, strict=True)]
        self._write_many([slot.key for slot in leaving], stored, logged, timestamps)
        if self.listener is not None and not self._forward_together(leaving, timestamps, stored):
            self._forward(leaving, old_objects.get if self._send_old_values else None, self.listener)

    def item(self, slot: CacheEntry) -> object:
        """Return what a read of the entry returns."""
        value = slot.value
        if type(value) is Frozen:
            if value.data is None:
                return None
            value = self._codec.serde.deserialize(value.data)
        return (value, slot.at) if self._codec.timestamped else value

    def _encode(
        self, leaving: list[CacheEntry], frozen: list[CacheEntry], timestamps: list[int]
    ) -> tuple[list[bytes | None], Sequence[bytes | None]]:
        """Return the entries' bytes in the store and in the changelog."""
        codec = self._codec
        if not frozen:
            try:
                stored = codec.encode_many([slot.value for slot in leaving], timestamps)
            except BaseException:  # find the value that cannot be serialized, and its record
                self._one_by_one(leaving)
                raise
        elif len(frozen) == len(leaving) and None not in (logged := [slot.value.data for slot in leaving]):
            return codec.encode_data(logged, timestamps), logged
        else:
            stored = self._one_by_one(leaving)
        if None not in stored:
            return stored, codec.log_values(stored)  # type: ignore[arg-type]
        log_value = codec.log_value
        return stored, [None if data is None else log_value(data) for data in stored]

    def _one_by_one(self, leaving: list[CacheEntry]) -> list[bytes | None]:
        """Return the entries' bytes; attach the entry's record to an error where it is known."""
        codec, timestamped, stored = self._codec, self._codec.timestamped, list[bytes | None]()
        try:
            for slot in leaving:
                value = slot.value
                if type(value) is Frozen:
                    stored += [None] if value.data is None else codec.encode_data([value.data], [slot.at])
                else:
                    stored.append(codec.encode((value, slot.at) if timestamped else value))
        except BaseException as error:
            context, kept = self._context, self._context.snapshot()
            context.topic, context.partition, context.offset = _origin(slot) if self.with_context else _UNKNOWN
            context.raised(error)
            context.restore(kept)
            raise
        return stored

    def _forward_together(self, leaving: list[CacheEntry], timestamps: list[int], stored: list[bytes | None]) -> bool:
        """Forward the entries by the loop, if there is one and all their records are of one partition. Return False to forward them one by
        one; that is also how a value that cannot be read is found.
        """
        if self.loop is None or self._send_old_values:
            return False
        if None in stored and any(
            data is None and not is_deletion(slot.value) for data, slot in zip(stored, leaving, strict=True)
        ):
            return False  # the changelog has the tombstone under another timestamp than the one with which the value leaves
        partitions = {(slot.topic, slot.partition) for slot in leaving}
        if len(partitions) > 1:
            return False
        thaw = of_values(self._codec.serde.deserialize)
        try:
            keys, values = self.keys_of([slot.key for slot in leaving]), [slot.value for slot in leaving]
            values = [
                value if type(value) is not Frozen else None if value.data is None else thaw(value.data) for value in values
            ]
        except Exception:  # of a user's serde: one by one the value is found, and its record named
            return False
        context = self._context
        with context.replace(context.snapshot()):
            ((context.topic, context.partition),) = partitions
            return self.loop(keys, values, timestamps, [slot.headers for slot in leaving], leaving)

    def _forward(self, leaving: list[CacheEntry], old_of: Deserialize | None, listener: EntryListener) -> None:
        context, with_context, item = self._context, self.with_context, self.item
        for slot in leaving:
            slot.state = EntryState.LEAVING
        with context.replace(context.snapshot()):  # without raw bytes: the current ones are not those of the entries
            for slot in leaving:
                context.topic, context.partition, context.offset = _origin(slot) if with_context else _UNKNOWN
                context.timestamp, context.headers = slot.timestamp, slot.headers
                key = slot.key
                listener(key, item(slot), None if old_of is None else old_of(key), slot.timestamp, slot.headers)
        for slot in leaving:
            slot.state = EntryState.CLEAN

    def _read_old(self, leaving: list[CacheEntry]) -> dict[bytes, object]:
        """Return the objects of the rows below the entries, where there are rows."""
        read, decode = self._rows.get, self._codec.decode
        return {slot.key: decode(stored) for slot in leaving if (stored := read(slot.key)) is not None}
