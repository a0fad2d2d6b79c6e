"""The changes of a store as they commit: one reader of its changelog per store and process, shared by all subscriptions.

The changelog is read with ``read_committed``, so a change arrives with the commit that it belongs to, and never one that is rolled back.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable, Iterator, Mapping

from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.serdes.header_ids import framing
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientEvents, ClientSettings, make_consumer
from kstreams_repl.host.kafka.group_offsets import assign
from kstreams_repl.host.kafka.reading import READ_GROUP, positions, ranges_of, read_ranges
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.serving.queries.wire import to_wire
from kstreams_repl.system.errors import InvalidStateStoreError, KStreamsError
from kstreams_repl.system.types import JsonObject, RecordBatch, TopicPartition

_LOG = logging.getLogger("kstreams_repl.serving")
_WINDOW = struct.Struct(">q")
_SESSION = struct.Struct(">qq")
_LONGEST = 2**63 - 1
Change = JsonObject
"""One change as JSON values; a value of None is a deletion."""
Offsets = dict[int, int]
"""By partition, the next offset of the changelog."""


def topic_of(application_id: str, builder: StoreBuilder) -> str:
    """Return the topic that has the changes of a store.

    Raises:
        InvalidStateStoreError: the store has no changelog.
    """
    if builder.source_topic is None and not builder.logging:
        raise InvalidStateStoreError(
            f"store {builder.name!r} has no changelog: its changes are not published", hint="keep its logging enabled", store=builder.name
        )
    return builder.source_topic or changelog_topic(application_id, builder.name)


class ChangeReader:
    """Turns changelog records of one store into changes."""

    def __init__(self, builder: StoreBuilder, key_serde: Serde, value_serde: Serde) -> None:
        self._key, self._value, self._frame = key_serde, value_serde, framing(key_serde, value_serde)
        self._split = _SPLITS.get(builder.kind, _plain)
        self._size = builder.window_size_ms or 0

    def changes(self, partition: int, batch: RecordBatch) -> list[Change]:
        """Return the changes of a batch in order; a record that a serde cannot read has its bytes."""
        decoded = []
        if batch.headers is not None and self._frame is not None:
            batch = self._frame(batch)
        for key, value, timestamp, offset in zip(batch.keys, batch.values, batch.timestamps, batch.offsets, strict=True):
            if key is None:
                continue
            plain, bounds = self._split(key, self._size)
            decoded.append({
                "key": _read(self._key, plain),
                **bounds,
                "value": None if value is None else _read(self._value, value),
                "timestamp": timestamp,
                "partition": partition,
                "offset": offset,
            })  # fmt: skip
        return decoded


def _read(serde: Serde, data: bytes) -> object:
    try:
        return to_wire(serde.deserialize(data))
    except Exception:  # a user's serde may raise anything
        return to_wire(data)


def _plain(key: bytes, size: int) -> tuple[bytes, dict[str, int]]:
    return key, {}


def _window(key: bytes, size: int) -> tuple[bytes, dict[str, int]]:
    if len(key) < 12:  # another program wrote it
        return key, {}
    start = _WINDOW.unpack(key[-12:-4])[0]
    return key[:-12], {"window_start": start, "window_end": min(start + size, _LONGEST)}


def _session(key: bytes, size: int) -> tuple[bytes, dict[str, int]]:
    if len(key) < 16:
        return key, {}
    end, start = _SESSION.unpack(key[-16:])
    return key[:-16], {"window_start": start, "window_end": end}


_SPLITS: Mapping[StoreKind, Callable[[bytes, int], tuple[bytes, dict[str, int]]]] = {
    StoreKind.WINDOW: _window,
    StoreKind.TIMESTAMPED_WINDOW: _window,
    StoreKind.SESSION: _session,
}


class ChangelogFeed:
    """Follows the changelog of one store while it has listeners. Thread-safe.

    Args:
        offer: of a listener: called from the feed's thread with changes and the offsets after them.
    """

    def __init__(self, settings: ClientSettings, topic: str, reader: ChangeReader) -> None:
        self._settings = settings
        self._topic = topic
        self._reader = reader
        self._lock = threading.Lock()
        self._listeners: list[Callable[[list[Change], Offsets, float], None]] = []
        self._next: Offsets = {}
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._failed: KStreamsError | None = None

    @property
    def listeners(self) -> int:
        """Number of listeners."""
        return len(self._listeners)

    def join(self, offer: Callable[[list[Change], Offsets, float], None]) -> Offsets:
        """Add a listener; return the offsets from which it receives changes.

        Raises:
            KStreamsError: the changelog does not exist or cannot be read.
        """
        with self._lock:
            if self._thread is None:
                self._ready.clear()
                self._failed = None
                self._thread = threading.Thread(target=self._follow, name=f"changes-{self._topic}", daemon=True)
                self._thread.start()
        self._ready.wait(20)
        with self._lock:
            if self._failed is not None:
                raise self._failed
            self._listeners.append(offer)
            return dict(self._next)

    def leave(self, offer: Callable[[list[Change], Offsets, float], None]) -> None:
        """Remove a listener; the reader ends with the last one."""
        with self._lock:
            if offer in self._listeners:
                self._listeners.remove(offer)

    def between(self, start: Offsets, end: Offsets) -> Iterator[tuple[list[JsonObject], dict[int, int]]]:
        """Iterate over the changes from `start` to `end`, in batches (changes, offsets after them)."""
        admin = Admin(self._settings)
        partitions = [part for part, offset in end.items() if start.get(part, 0) < offset]
        if not partitions:
            return
        for partition, batch in read_ranges(self._settings, ranges_of(admin, self._topic, partitions=partitions, start=start, end=end)):
            yield self._reader.changes(partition.partition, batch), {partition.partition: batch.offsets[-1] + 1}

    def _follow(self) -> None:
        import time

        consumer = None
        try:
            admin = Admin(self._settings)
            parts = [TopicPartition(self._topic, number) for number in range(admin.partitions(self._topic))]
            start = admin.end_offsets(parts, isolation="read_committed")
            consumer = make_consumer(
                self._settings, group_id=READ_GROUP, isolation="read_committed", events=ClientEvents(), fetch_wait_max_ms=100
            )
            assign(consumer, start)
            self._next = {partition.partition: offset for partition, offset in start.items()}
            self._ready.set()
            idle = time.monotonic()
            while True:
                first = consumer.poll(0.05)  # `consume` alone waits its whole time for more than what has come
                messages = [] if first is None else [first, *consumer.consume(1_000, 0)]
                batches = [
                    (self._reader.changes(partition.partition, batch), {partition.partition: batch.offsets[-1] + 1})
                    for partition, batch in columns(messages, lambda message, error: None)
                    if batch.offsets
                ]
                with self._lock:
                    if not batches:  # a position also advances over markers: without it a resumed reader would read them again
                        self._next |= {partition.partition: offset for partition, offset in positions(consumer, parts).items()}
                    now = time.monotonic()
                    for changes, after in batches:
                        self._next |= after
                        for offer in self._listeners:
                            offer(changes, after, now)
                    if self._listeners:
                        idle = now
                    elif now - idle > 2.0:
                        self._thread = None
                        return
        except KStreamsError as error:
            with self._lock:
                self._failed, self._thread = error, None
                listeners, self._listeners = self._listeners, []
            for offer in listeners:
                offer([], {}, -1.0)
            _LOG.warning("changes of %s cannot be read: %s", self._topic, error)
        finally:
            self._ready.set()
            if consumer is not None:
                consumer.close()
