"""The stores that a query reads: typed handles with Kafka Streams' reads in snake_case, over the parts of a store.

Each read of a handle is a `Read`, which its parts answer: partitions on this host (`local_parts`), or query servers (`remote_stores`).
A handle finds its parts at each read, so it works again after a task has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.queries.read import Read
from kstreams_repl.serving.queries.row_iterator import Held, RowIterator
from kstreams_repl.serving.queries.rows import KEY_VALUE
from kstreams_repl.system.errors import NullKeyError
from kstreams_repl.system.types import ValueAndTimestamp, Windowed


class StorePart(Protocol):
    """One partition of a store, or all of them, that answers reads."""

    builder: StoreBuilder

    def open(self, read: Read) -> tuple[Held | None, Any]:
        """Return (what an iterator holds, None) for rows, or (None, the value)."""


Parts = Callable[[], Sequence[StorePart]]


def without_timestamp(item: object) -> object:
    """Return what a read of a store with timestamps found, without them."""
    if type(item) is ValueAndTimestamp:
        return item.value
    if type(item) is tuple and type(item[1]) is ValueAndTimestamp:
        return item[0], item[1].value
    return item


def with_start(row: tuple[Windowed, object]) -> tuple[int, object]:
    """Return (window start, value) of (windowed key, value)."""
    return row[0].start, row[1]


def value_only(row: tuple[object, object]) -> object:
    """Return the value of (key, value)."""
    return row[1]


class _ReadOnlyStore:
    """What the handles have in common.

    Args:
        stamped: show the timestamps of values.
    """

    def __init__(self, name: str, parts: Parts, *, stamped: bool = False) -> None:
        self.name = name
        self._parts = parts
        self._show = None if stamped else without_timestamp

    def _value(self, kind: str, key: object, first: int | None = None, last: int | None = None, as_of: int | None = None) -> object:
        """Return the first part's answer that is not None."""
        if key is None:
            raise self._null_key()
        read = Read(kind, self.name, key, True, time_from=first, time_to=last, as_of=as_of)
        for part in self._parts():
            value = part.open(read)[1]
            if value is not None:
                return value if self._show is None else self._show(value)
        return None

    def _rows(self, kind: str, *, show: Callable[[Any], object] | None = None, **bounds: Any) -> RowIterator:
        """Return the rows of all parts, by partition."""
        shown = self._show if show is None else show if self._show is None else lambda row: without_timestamp(show(row))
        read = Read(kind, self.name, **bounds)
        held: list[Held] = []
        try:
            for part in self._parts():
                rows = part.open(read)[0]
                if rows is not None:
                    held.append(rows)
            return RowIterator(held, shown)
        except BaseException:
            RowIterator(held).close()
            raise

    def _rows_of(self, kind: str, key: object, **bounds: Any) -> RowIterator:
        if key is None:
            raise self._null_key()
        return self._rows(kind, key=key, has_key=True, **bounds)

    def _null_key(self) -> NullKeyError:
        return NullKeyError(f"store {self.name}: the key must not be null", store=self.name, hint="ask for a key")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ReadOnlyKeyValueStore(_ReadOnlyStore):
    """A key-value store, for reading. Rows come partition by partition, within one in the order of the serialized keys."""

    def get(self, key: object) -> Any:
        """Return the value of a key, None if it has none.

        Args:
            key: not None.

        Raises:
            InvalidStateStoreError: it cannot be read now; see its class.
        """
        return self._value("get", key)

    def get_many(self, keys: Iterable[object]) -> dict[Any, Any]:
        """Return the values of the keys that have one. Each partition answers as of one commit.

        Args:
            keys: hashable, not None.
        """
        wanted = list(dict.fromkeys(keys))
        found: dict[object, object] = {}
        for part in self._parts():
            values = part.open(Read("many", self.name, keys=wanted))[1]
            found |= {key: value for key, value in zip(wanted, values, strict=True) if value is not None}
            wanted = [key for key, value in zip(wanted, values, strict=True) if value is None]
            if not wanted:
                break
        return found if self._show is None else {key: self._show(value) for key, value in found.items()}

    def range(self, from_key: object = None, to_key: object = None) -> RowIterator:
        """Return (key, value) with from_key <= key <= to_key; None leaves that end open.

        Args:
            from_key, to_key: the bounds.
        """
        return self._rows("range", low=from_key, high=to_key)

    def reverse_range(self, from_key: object = None, to_key: object = None) -> RowIterator:
        """Return what `range` does, each partition from its last key to its first.

        Args:
            from_key, to_key: the bounds.
        """
        return self._rows("range", low=from_key, high=to_key, reverse=True)

    def all(self) -> RowIterator:
        """Return every (key, value)."""
        return self._rows("range")

    def reverse_all(self) -> RowIterator:
        """Return what `all` does, each partition from its last key to its first."""
        return self._rows("range", reverse=True)

    def prefix_scan(self, prefix: object, serialize: object = None) -> RowIterator:
        """Return (key, value) whose serialized key begins with a prefix.

        Args:
            prefix: not None.
            serialize: serde of the prefix, or a function that returns bytes; None: the store's key serde.
        """
        if prefix is None:
            raise self._null_key()
        return self._rows("prefix", prefix=prefix, serializer=serialize)

    def approximate_num_entries(self) -> int:
        """Return the number of rows on this host, approximately."""
        return sum(int(part.open(Read("count", self.name))[1]) for part in self._parts())


class ReadOnlyWindowStore(_ReadOnlyStore):
    """A window store, for reading. Bounds are window starts in milliseconds, inclusive on both ends."""

    def fetch(self, key: object, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window that starts at `time_from`; with `time_to`, an iterator of (window start, value).

        Args:
            key: not None.
            time_from, time_to: window starts.
        """
        if time_to is None:
            return self._value("window", key, time_from)
        return self._rows_of("windows", key, time_from=time_from, time_to=time_to, show=with_start)

    def backward_fetch(self, key: object, time_from: int, time_to: int) -> RowIterator:
        """Return (window start, value), the latest first.

        Args:
            key: not None.
            time_from, time_to: window starts.
        """
        return self._rows_of("windows", key, time_from=time_from, time_to=time_to, reverse=True, show=with_start)

    def fetch_range(self, from_key: object, to_key: object, time_from: int, time_to: int) -> RowIterator:
        """Return (windowed key, value) of several keys.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            time_from, time_to: window starts.
        """
        return self._rows("windows", low=from_key, high=to_key, time_from=time_from, time_to=time_to)

    def backward_fetch_range(self, from_key: object, to_key: object, time_from: int, time_to: int) -> RowIterator:
        """Return what `fetch_range` does, in reverse.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            time_from, time_to: window starts.
        """
        return self._rows("windows", low=from_key, high=to_key, time_from=time_from, time_to=time_to, reverse=True)

    def fetch_all(self, time_from: int, time_to: int) -> RowIterator:
        """Return (windowed key, value) of all keys.

        Args:
            time_from, time_to: window starts.
        """
        return self._rows("windows", time_from=time_from, time_to=time_to)

    def backward_fetch_all(self, time_from: int, time_to: int) -> RowIterator:
        """Return what `fetch_all` does, in reverse.

        Args:
            time_from, time_to: window starts.
        """
        return self._rows("windows", time_from=time_from, time_to=time_to, reverse=True)

    def all(self) -> RowIterator:
        """Return every (windowed key, value)."""
        return self._rows("windows")

    def backward_all(self) -> RowIterator:
        """Return what `all` does, in reverse."""
        return self._rows("windows", reverse=True)


class ReadOnlySessionStore(_ReadOnlyStore):
    """A session store, for reading."""

    def fetch(self, key: object) -> RowIterator:
        """Return (session, value) of a key.

        Args:
            key: not None.
        """
        return self._rows_of("sessions", key)

    def backward_fetch(self, key: object) -> RowIterator:
        """Return what `fetch` does, the latest first.

        Args:
            key: not None.
        """
        return self._rows_of("sessions", key, reverse=True)

    def all(self) -> RowIterator:
        """Return every (session, value)."""
        return self._rows("sessions")

    def fetch_range(self, from_key: object = None, to_key: object = None) -> RowIterator:
        """Return (session, value) of several keys.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
        """
        return self._rows("sessions", low=from_key, high=to_key)

    def backward_fetch_range(self, from_key: object = None, to_key: object = None) -> RowIterator:
        """Return what `fetch_range` does, in reverse.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
        """
        return self._rows("sessions", low=from_key, high=to_key, reverse=True)

    def fetch_session(self, key: object, start: int, end: int) -> Any:
        """Return the value of one session.

        Args:
            key: not None.
            start, end: of the session, in milliseconds.
        """
        return self._value("session", key, start, end)

    def find_sessions(self, key: object, earliest_end: int, latest_start: int) -> RowIterator:
        """Return (session, value) of a key's sessions that end at `earliest_end` or later and start at `latest_start` or earlier.

        Args:
            key: not None.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows_of("sessions", key, time_from=earliest_end, time_to=latest_start)

    def backward_find_sessions(self, key: object, earliest_end: int, latest_start: int) -> RowIterator:
        """Return what `find_sessions` does, the latest first.

        Args:
            key: not None.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows_of("sessions", key, time_from=earliest_end, time_to=latest_start, reverse=True)

    def find_sessions_range(self, from_key: object, to_key: object, earliest_end: int, latest_start: int) -> RowIterator:
        """Return what `find_sessions` does, of several keys.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows("sessions", low=from_key, high=to_key, time_from=earliest_end, time_to=latest_start)

    def backward_find_sessions_range(self, from_key: object, to_key: object, earliest_end: int, latest_start: int) -> RowIterator:
        """Return what `find_sessions_range` does, in reverse.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows("sessions", low=from_key, high=to_key, time_from=earliest_end, time_to=latest_start, reverse=True)


class ReadOnlyVersionedStore(_ReadOnlyStore):
    """A versioned store, for reading."""

    def get(self, key: object, as_of: int | None = None) -> Any:
        """Return the version of a key, as a `VersionedRecord`; None if it had none.

        Args:
            key: not None.
            as_of: a time in milliseconds; None: the latest version.
        """
        return self._value("get", key, as_of=as_of)

    def versions(self, key: object, time_from: int, time_to: int, newest_first: bool = True) -> RowIterator:
        """Return the versions of a key that were valid at some time in a range.

        Args:
            key: not None.
            time_from, time_to: in milliseconds.
            newest_first: the order.
        """
        return self._rows_of("versions", key, time_from=time_from, time_to=time_to, reverse=newest_first, show=value_only)

    def range(self, from_key: object = None, to_key: object = None, as_of: int | None = None) -> RowIterator:
        """Return (key, version) with from_key <= key <= to_key.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            as_of: a time in milliseconds; None: the latest versions.
        """
        return self._rows("range", low=from_key, high=to_key, as_of=as_of)

    def all(self) -> RowIterator:
        """Return (key, latest version) of every key."""
        return self._rows("range")


def handle_of(part: StorePart) -> _ReadOnlyStore:
    """Return the handle of one part, which shows the timestamps of its values."""
    kind = part.builder.kind
    handle = ReadOnlyKeyValueStore if kind in KEY_VALUE else _HANDLES.get(kind, ReadOnlyWindowStore)
    return handle(part.builder.name, lambda: [part], stamped=True)


_HANDLES: dict[StoreKind, type[_ReadOnlyStore]] = {StoreKind.SESSION: ReadOnlySessionStore, StoreKind.VERSIONED: ReadOnlyVersionedStore}
