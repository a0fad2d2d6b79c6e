"""The flush of a write-back cache: encode all entries, write all, log all, then forward all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from kstreams_repl.stores.bytes_store import Rows, logged_columns, many_at_once
from kstreams_repl.stores.cache_entry import CacheEntry, EntryState, Frozen, is_deletion
from kstreams_repl.stores.changelog import Changelog
from kstreams_repl.stores.codec import Codec
from kstreams_repl.stores.object_store import EntryListener
from kstreams_repl.types import Headers, Outlet

_origin = attrgetter("topic", "partition", "offset")
_UNKNOWN = None, -1, -1


class Columns(NamedTuple):
    """Entries in the form in which they are sent to an outlet."""

    keys: list[bytes]
    stored: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers]


class EntryFlush:
    """Writes the entries of one store to the rows below and the changelog, and passes them downstream.

    Attributes:
        listener: called for each entry with its new and its old item, under the context of its last write.
        outlet: takes the entries as columns instead.
        with_context: whether entries have topic, partition and offset of their last record.
    """

    __slots__ = (
        "listener", "outlet", "with_context", "_send_old_values", "_rows", "_put_many", "_write_many", "_codec", "_changelog", "_context",
    )  # fmt: skip

    def __init__(self, rows: Rows, codec: Codec, changelog: Changelog, record_context: Any) -> None:
        self._rows = rows
        self._put_many = many_at_once(rows)
        self._write_many = logged_columns(rows, codec, changelog)
        self._codec = codec
        self._changelog = changelog
        self._context = record_context
        self._send_old_values = False
        self.listener: EntryListener | None = None
        self.outlet: Outlet | None = None
        self.with_context = True

    def listen(self, listener: EntryListener, send_old_values: bool) -> None:
        self.listener, self._send_old_values = listener, send_old_values

    def columns(self, leaving: list[CacheEntry], frozen: list[CacheEntry]) -> Columns | None:
        """Return the entries as columns; None if the serde serializes a value to None, or if one of those that are frozen is a deletion
        or has bytes that would be written differently after reading them.
        """
        canonical, log_value = self._codec.serde.canonical, self._codec.log_value
        if not all(slot.value.stored is not None and canonical(log_value(slot.value.stored)) for slot in frozen):
            return None
        timestamps = [slot.at for slot in leaving]
        stored = self._one_by_one(leaving) if frozen else self._encode(leaving, timestamps)
        if self._codec.serde.layout is None and None in stored:
            return None
        return Columns([slot.key for slot in leaving], stored, timestamps, [slot.headers for slot in leaving])

    def send(self, columns: Columns, outlet: Outlet) -> None:
        """Write and log columns, then pass them to the outlet."""
        keys, stored, timestamps, headers = columns
        logged = self._write_many(keys, stored, timestamps)
        outlet(keys, logged, timestamps, headers if any(headers) else None)

    def write(self, leaving: list[CacheEntry], frozen: list[CacheEntry]) -> None:
        """Write and log entries, then call the listener for each.

        Args:
            frozen: those whose value is a `Frozen`.
        """
        old_objects: dict[bytes, Any] = {}
        if self.listener is not None and (frozen or self._send_old_values):
            old_objects = self._read_old(leaving if self._send_old_values else frozen)
            if frozen:  # a tombstone for a key without a row is neither written nor forwarded
                leaving = [slot for slot in leaving if slot.key in old_objects or not is_deletion(slot.value)]
        if not leaving:
            return
        codec, log_key = self._codec, self._rows.log_key
        keys = [slot.key for slot in leaving]
        stored = self._one_by_one(leaving) if frozen else self._encode(leaving, [slot.at for slot in leaving])
        self._put_many(keys, stored)
        values: Sequence[bytes | None]
        timestamps: Sequence[int]
        if not frozen and None not in stored:
            values = codec.log_values(stored)  # type: ignore[arg-type]
            timestamps = [slot.at for slot in leaving] if codec.timestamped else [slot.timestamp for slot in leaving]
        else:
            log_value, log_timestamp = codec.log_value, codec.log_timestamp
            values = [None if data is None else log_value(data) for data in stored]
            timestamps = [
                slot.timestamp if data is None else log_timestamp(data, slot.timestamp) for data, slot in zip(stored, leaving, strict=True)
            ]
        self._changelog.send_many(keys if log_key is None else list(map(log_key, keys)), values, timestamps)
        if self.listener is not None:
            self._forward(leaving, old_objects.get if self._send_old_values else None, self.listener)

    def item(self, slot: CacheEntry) -> Any:
        """Return what a read of the entry returns."""
        value = slot.value
        if type(value) is Frozen:
            return None if value.stored is None else self._codec.decode(value.stored)
        return (value, slot.at) if self._codec.timestamped else value

    def _encode(self, leaving: list[CacheEntry], timestamps: list[int]) -> list[bytes | None]:
        try:
            return self._codec.encode_many([slot.value for slot in leaving], timestamps)
        except BaseException:  # find the value that cannot be serialized, and its record
            self._one_by_one(leaving)
            raise

    def _one_by_one(self, leaving: list[CacheEntry]) -> list[bytes | None]:
        """Return the entries' bytes; attach the entry's record to an error where it is known."""
        encode, timestamped, stored = self._codec.encode, self._codec.timestamped, list[bytes | None]()
        try:
            for slot in leaving:
                value = slot.value
                stored.append(value.stored if type(value) is Frozen else encode((value, slot.at) if timestamped else value))
        except BaseException as error:
            context, kept = self._context, self._context.snapshot()
            context.topic, context.partition, context.offset = _origin(slot) if self.with_context else _UNKNOWN
            context.raised(error)
            context.restore(kept)
            raise
        return stored

    def _forward(self, leaving: list[CacheEntry], old_of: Callable[[bytes], Any] | None, listener: EntryListener) -> None:
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

    def _read_old(self, leaving: list[CacheEntry]) -> dict[bytes, Any]:
        """Return the objects of the rows below the entries, where there are rows."""
        read, decode = self._rows.get, self._codec.decode
        return {slot.key: decode(stored) for slot in leaving if (stored := read(slot.key)) is not None}
