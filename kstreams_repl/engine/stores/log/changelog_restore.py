"""Restore a store's physical rows from changelog records.

Each batch of one changelog is written together with its end position in one store transaction that bypasses the uncommitted
writes. State that a store keeps in addition to its rows is also derived from the records: observed time, the sequence number of
stores that retain duplicates, the order of an LRU store. Rows that have already expired are skipped; rows that expire later are
dropped with their segment. `finish` makes open stores read the restored state.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

from kstreams_repl.engine.serdes.header_ids import Framed, framing
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.kinds.buffer_headers import restored
from kstreams_repl.engine.stores.kinds.buffer_value import BufferValue
from kstreams_repl.engine.stores.kinds.lru import MOST_SAVED, ORDER, pack_order, unpack_order
from kstreams_repl.engine.stores.kinds.outer_join import decode_list
from kstreams_repl.engine.stores.kinds.time_ordered_window import physical_key
from kstreams_repl.engine.stores.kinds.typed_store import LONG
from kstreams_repl.engine.stores.kinds.versioned import VersionedRows
from kstreams_repl.engine.stores.layers.header_rows import with_headers
from kstreams_repl.engine.stores.layers.segments import segment_interval_ms
from kstreams_repl.engine.topology.store_builder import HISTORY_SUFFIX, StoreBuilder, StoreKind
from kstreams_repl.system.errors import SerializationError, TaskCorruptedError
from kstreams_repl.system.types import RecordBatch

_DAY_MS = 86_400_000
_NO_TIME_SIZE = 8
_SUPPRESS_VERSION = b"\x03"

_UNREADABLE = (struct.error, ValueError, SerializationError)
_Rows = tuple[Sequence[bytes], Sequence[bytes | None]]


def _refuse_short(keys: Sequence[bytes | None], least: int) -> None:
    """Raise ValueError if a key is too short for its times."""
    shortest = min((len(key) for key in keys if key is not None), default=least)
    if shortest < least:
        raise ValueError(f"a key of {shortest} bytes, which has at least {least}")


class Restorer:
    """Applies one changelog partition to one store.

    Args:
        builder: the store's builder.
        environment: the task's environment; nothing else may write to this store during the restore.
        topic_partition: name under which the position is stored, ``topic-partition``.
    """

    def __init__(self, builder: StoreBuilder, environment: Environment, topic_partition: str) -> None:
        self.builder = builder
        self._environment = environment
        self._at = topic_partition
        self._name = builder.name
        self._retention = builder.retention_ms if builder.retention_ms is not None else _DAY_MS
        self._interval = segment_interval_ms(self._retention)
        self._frame = None if builder.source_topic is None else framing(builder.key_serde, builder.value_serde)
        self._live = 0
        """The first live segment; earlier ones have expired."""
        self._order: dict[bytes, None] | None = None
        """The key order of an LRU store; saved at the end of the restore."""
        self._versioned: VersionedRows | None = None
        if builder.kind is StoreKind.VERSIONED:
            # Opened here so that the engines exist before the first batch; registers no hooks.
            self._versioned = VersionedRows(
                environment,
                self._name,
                environment.engine(self._name, persistent=builder.persistent),
                environment.engine(self._name + HISTORY_SUFFIX, persistent=builder.persistent),
                retention_ms=self._retention,
                follow=False,
            )
        self._convert: Callable[[RecordBatch], _Rows] = {
            StoreKind.TIMESTAMPED_KEY_VALUE: self._timestamped,
            StoreKind.SUBSCRIPTION: self._timestamped,
            StoreKind.LRU: self._lru,
            StoreKind.WINDOW: self._window,
            StoreKind.TIMESTAMPED_WINDOW: self._timestamped_window,
            StoreKind.TIME_ORDERED_WINDOW: self._time_ordered_window,
            StoreKind.SESSION: self._session,
            StoreKind.SUPPRESS_BUFFER: self._suppress_buffer,
            StoreKind.JOIN_GRACE_BUFFER: self._join_grace_buffer,
            StoreKind.OUTER_JOIN: self._outer_join,
        }.get(builder.kind, self._plain)

    def apply(self, batch: RecordBatch) -> None:
        """Write a batch in offset order, together with the position after it."""
        if not len(batch.offsets):
            return
        if batch.headers is not None and self._frame is not None:
            batch = self._framed(self._frame, batch)
        positions = {self._at: batch.offsets[-1] + 1} if self.builder.persistent else {}
        if self._versioned is not None:
            self._apply_versions(self._versioned, batch, positions)
            return
        try:
            keys, values = self._convert(batch)
        except _UNREADABLE as cause:
            raise self._unreadable(batch, cause) from cause
        if None in keys:
            present = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
            keys, values = [key for key, _ in present], [value for _, value in present]
        self._environment.restore(self._name, keys, values, positions=positions, persistent=self.builder.persistent)

    def _framed(self, frame: Callable[[RecordBatch], RecordBatch], batch: RecordBatch) -> RecordBatch:
        """Return the records of a table's source topic with schema ids in front, as the store has its values."""
        framed = frame(batch)
        if getattr(self.builder.key_serde, "header_id_size", None) is None and any(type(key) is Framed for key in framed.keys):
            raise TaskCorruptedError(
                f"store {self._name} cannot be restored from {self._at}: the keys there have their schema ids in headers, and the store "
                "writes them in front of its keys",
                hint="give the table a changelog of its own (topology.optimization=none), and have it read its topic again: "
                "session.reset(name), then deploy",
                store=self._name,
            )
        return framed

    def _unreadable(self, batch: RecordBatch, cause: Exception) -> TaskCorruptedError:
        """Return the error of a record that is not a row of this kind of store, with its offset."""
        for index in range(len(batch)):
            offset = batch.offsets[index]
            try:
                self._convert(batch.part(slice(index, index + 1)))
            except _UNREADABLE as found:
                cause = found
                break
        topic, _, partition = self._at.rpartition("-")
        return TaskCorruptedError(
            f"store {self._name} cannot be restored: {self._at} offset {offset} is not a row of a {self.builder.kind} store: {cause}",
            hint="another program wrote to this changelog; rebuild the store: session.reset(name), then deploy",
            store=self._name,
            topic=topic,
            partition=int(partition) if partition.isdecimal() else None,
            offset=offset,
        )

    def finish(self, position: int) -> None:
        """Save the end position and make open stores reload; called at the end of the changelog."""
        positions = {self._at: position} if self.builder.persistent else {}
        if self._order is not None:
            self._environment.set_attribute(self._name + ORDER, pack_order(self._order))
            self._order = None
        self._environment.restore(self._name, (), (), positions=positions, persistent=self.builder.persistent)
        self._environment.rollback()

    # ---- one per layout ------------------------------------------------------------------------------------------------------------

    def _plain(self, batch: RecordBatch) -> _Rows:
        return batch.keys, batch.values  # type: ignore[return-value]

    def _lru(self, batch: RecordBatch) -> _Rows:
        if self._order is None:
            self._order = unpack_order(self._environment.attribute(self._name + ORDER))
        order = self._order
        for key, value in zip(batch.keys, batch.values, strict=True):
            if key is not None:
                order.pop(key, None)
                if value is not None:
                    order[key] = None
        if len(order) <= MOST_SAVED:  # a standby task that follows its changelog never calls `finish`
            self._environment.set_attribute(self._name + ORDER, pack_order(order))
        return self._plain(batch)

    def _timestamped(self, batch: RecordBatch) -> _Rows:
        return batch.keys, self._stamped(batch)  # type: ignore[return-value]

    def _window(self, batch: RecordBatch) -> _Rows:
        rows = self._segmented(batch.keys, batch.values, 12)
        if self.builder.retain_duplicates:
            self._raise_sequence(max((int.from_bytes(key[-4:], "big") for key in batch.keys if key is not None), default=0))
        return rows

    def _timestamped_window(self, batch: RecordBatch) -> _Rows:
        return self._segmented(batch.keys, self._stamped(batch), 12)

    def _session(self, batch: RecordBatch) -> _Rows:
        return self._segmented(batch.keys, with_headers(batch, batch.values) if self.builder.headers else batch.values, 16)

    def _stamped(self, batch: RecordBatch) -> list[bytes | None]:
        pack = LONG.pack
        values = [
            None if value is None else pack(timestamp) + value for value, timestamp in zip(batch.values, batch.timestamps, strict=True)
        ]
        return with_headers(batch, values) if self.builder.headers else values

    def _segmented(self, logged: Sequence[bytes | None], values: Sequence[bytes | None], timestamp_at: int) -> _Rows:
        unpack_from, pack, interval = LONG.unpack_from, LONG.pack, self._interval
        keys = [key for key in logged if key is not None]
        if len(keys) < len(logged):
            values = [value for key, value in zip(logged, values, strict=True) if key is not None]
        _refuse_short(keys, timestamp_at)
        times = [unpack_from(key, len(key) - timestamp_at)[0] for key in keys]
        live = self._first_live(max(times, default=-1))
        self._drop_before(live, live)
        segments = [time // interval for time in times]
        prefixes = {segment: pack(segment) for segment in set(segments) if segment >= live}
        if len(prefixes) == len(set(segments)):
            return [prefixes[segment] + key for segment, key in zip(segments, keys, strict=True)], values
        kept = [
            (prefixes[segment] + key, value) for segment, key, value in zip(segments, keys, values, strict=True) if segment in prefixes
        ]
        return [key for key, _ in kept], [value for _, value in kept]

    def _time_ordered_window(self, batch: RecordBatch) -> _Rows:
        values = self._stamped(batch) if self.builder.options.get("timestamped", True) else batch.values
        _refuse_short(batch.keys, 12)
        rows = [(physical_key(key), value) for key, value in zip(batch.keys, values, strict=True) if key is not None]
        times = [LONG.unpack_from(key)[0] for key, _ in rows]
        live = self._first_live(max(times, default=-1))
        start = live * self._interval
        self._drop_before(live, start)
        rows = [row for row, time in zip(rows, times, strict=True) if time >= start]
        return [key for key, _ in rows], [value for _, value in rows]

    def _suppress_buffer(self, batch: RecordBatch) -> _Rows:
        headers = batch.headers
        for index, value in enumerate(batch.values):
            if value is not None:
                named = (headers[index] or ()) if headers else ()
                version = next((data for name, data in reversed(named) if name == "v"), None)
                if version != _SUPPRESS_VERSION:
                    raise TaskCorruptedError(
                        f"store {self._name}: expected buffer format 3, got {version!r}, {self._at} offset {batch.offsets[index]}",
                        hint="Kafka Streams before 2.5 wrote it; drain the suppress buffer there before you move the application",
                        store=self._name,
                        offset=batch.offsets[index],
                    )
                BufferValue.decode(value)
        if self.builder.headers:
            own = headers or [[]] * len(batch.values)
            rows = [None if value is None else restored(value, of or []) for value, of in zip(batch.values, own, strict=True)]
            return batch.keys, rows  # type: ignore[return-value]
        return batch.keys, batch.values  # type: ignore[return-value]

    def _join_grace_buffer(self, batch: RecordBatch) -> _Rows:
        keys = batch.keys
        _refuse_short(keys, 13)
        for value in batch.values:
            if value is not None:
                BufferValue.decode(value)
        self._raise_observed(max((LONG.unpack_from(key, 1)[0] for key in keys if key is not None), default=-1))
        self._raise_sequence(max((int.from_bytes(key[-4:], "big") for key in keys if key is not None), default=0))
        return keys, [value if value is None else value[:-_NO_TIME_SIZE] for value in batch.values]  # type: ignore[return-value]

    def _outer_join(self, batch: RecordBatch) -> _Rows:
        _refuse_short(batch.keys, 9)
        for value in batch.values:
            if value is not None:
                decode_list(value)
        return self._plain(batch)

    def _apply_versions(self, rows: VersionedRows, batch: RecordBatch, positions: Mapping[str, int]) -> None:
        put = rows.put
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if key is not None:
                put(key, value, timestamp)
        rows.save()
        self._environment.commit(positions, self._environment.commit_id)

    # ---- state in addition to the rows ----------------------------------------------------------------------------------------------

    def _first_live(self, time: int) -> int:
        """Return the first segment that a window or session store keeps when its observed time is `time`."""
        return max(self._raise_observed(time) - self._retention, 0) // self._interval

    def _drop_before(self, live: int, start: int) -> None:
        """Drop the segments before `live`, whose physical keys are below `start`, as the open store does: a standby task follows its
        changelog for as long as the application runs.
        """
        if live > self._live:
            self._live = live
            self._environment.engine(self._name, persistent=self.builder.persistent).delete_range(LONG.pack(0), LONG.pack(start))

    def _raise_observed(self, time: int) -> int:
        name = f"{self._name}/observed-time"
        kept = self._environment.attribute(name)
        observed: int = -1 if kept is None else LONG.unpack(kept)[0]
        if time > observed:
            observed = time
            self._environment.set_attribute(name, LONG.pack(time))
        return observed

    def _raise_sequence(self, number: int) -> None:
        name = f"{self._name}/sequence"
        kept = self._environment.attribute(name)
        if number > (0 if kept is None else int.from_bytes(kept, "big")):
            self._environment.set_attribute(name, number.to_bytes(4, "big"))

