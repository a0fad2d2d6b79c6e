"""The stores that a query reads: composites over the parts of a store on this host, one for each partition.

A part of a store is a `TaskPart`: it has the reads of its kind of store under their names, each at the last commit of its task. The
composites have Kafka Streams' reads in snake_case and find their parts at each read, so they work again after a task has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from kstreams_repl.engine.stores.engine.failures import RawError
from kstreams_repl.engine.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.serving.local_stores import LocalStores
from kstreams_repl.serving.row_iterator import Held, RowIterator
from kstreams_repl.serving.task_view import migrated
from kstreams_repl.system.errors import InvalidStateStoreError, NullKeyError
from kstreams_repl.system.types import ValueAndTimestamp

_KEY_VALUE_READS = frozenset({"get", "range", "reverse_range", "all", "reverse_all", "prefix_scan", "approximate_num_entries"})
_WINDOW_READS = frozenset(
    {
        "fetch", "backward_fetch", "fetch_range", "backward_fetch_range", "fetch_all", "backward_fetch_all", "all", "backward_all",
    }
)  # fmt: skip
_SESSION_READS = frozenset(
    {
        "fetch", "backward_fetch", "fetch_range", "backward_fetch_range", "fetch_session", "find_sessions", "backward_find_sessions",
        "find_sessions_range", "backward_find_sessions_range", "find_closed", "all",
    }
)  # fmt: skip
READS = {
    StoreKind.KEY_VALUE: _KEY_VALUE_READS,
    StoreKind.LRU: _KEY_VALUE_READS,
    StoreKind.TIMESTAMPED_KEY_VALUE: _KEY_VALUE_READS,
    StoreKind.WINDOW: _WINDOW_READS,
    StoreKind.TIMESTAMPED_WINDOW: _WINDOW_READS,
    StoreKind.TIME_ORDERED_WINDOW: _WINDOW_READS,
    StoreKind.SESSION: _SESSION_READS,
    StoreKind.VERSIONED: frozenset({"get", "versions", "range", "all"}),
}
"""The reads of each kind of store."""


_stamped = ValueAndTimestamp._make


def without_timestamp(item: Any) -> Any:
    """Return what a read of a store with timestamps found, without them."""
    if type(item) is ValueAndTimestamp:
        return item.value
    if type(item) is tuple and type(item[1]) is ValueAndTimestamp:
        return item[0], item[1].value
    return item


class TaskPart:
    """One partition of a store, for reading: the reads of its kind (`READS`) are its methods.

    Args:
        stale: whether a copy that is behind may answer.
        show: applied to each result; None: none.
        headers: a store that keeps headers shows them.
    """

    def __init__(
        self,
        local: LocalStores,
        builder: StoreBuilder,
        partition: int,
        *,
        stale: bool = False,
        show: Callable[[Any], Any] | None = None,
        headers: bool = False,
    ) -> None:
        self.partition = partition
        self._local = local
        self._builder = builder
        self._stale = stale
        self._show = show
        self._headers = headers

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in READS.get(self._builder.kind, ()):
            raise AttributeError(f"a {self._builder.kind} store has no read {name!r}")
        return lambda *args: self.read(name, *args)

    def read(self, name: str, *args: Any) -> Any:
        """Return what a read finds; rows as an iterator that holds its commit."""
        held, found = self.open(name, *args)
        if held is not None:
            return RowIterator([held], self._show)
        return found if self._show is None else self._show(found)

    def open(self, name: str, *args: Any) -> tuple[Held | None, Any]:
        """Return (what an iterator holds, None) for rows, or (None, the value)."""
        reader, view = self._local.take(self._builder.name, self.partition, stale=self._stale)
        rows = None
        try:
            rows = getattr(view.store(self._builder, headers=self._headers), name)(*args)
            if isinstance(rows, Iterator):
                return (reader, view, rows), None
            return None, rows
        except RawError as error:
            raise migrated(reader.task) from error
        finally:
            if not isinstance(rows, Iterator):
                reader.give(view)

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the value of each key, all as of one commit; for stores with `get`."""
        with self._local.view(self._builder.name, self.partition, stale=self._stale) as view:
            found = view.get_many(self._builder, keys, headers=self._headers)
        if self._builder.kind is StoreKind.TIMESTAMPED_KEY_VALUE and not self._headers:
            found = [None if item is None else _stamped(item) for item in found]
        return found if self._show is None else list(map(self._show, found))

    def __repr__(self) -> str:
        return f"TaskPart({self._builder.name!r}, partition {self.partition})"


class _Provider(Protocol):
    def stores(self, name: str, store_type: Any) -> Sequence[Any]: ...


class StoreParts:
    """Finds the parts of a store at each read."""

    def __init__(self, provider: _Provider, name: str, store_type: Any) -> None:
        self.name = name
        self._provider = provider
        self._type = store_type

    def __call__(self) -> Sequence[Any]:
        return self._provider.stores(self.name, self._type)


class _Composite:
    """What the composites have in common."""

    def __init__(self, parts: Callable[[], Sequence[TaskPart]], *, stamped: bool = False) -> None:
        self._parts = parts
        self._show = None if stamped else without_timestamp

    @property
    def name(self) -> str:
        """The store's name."""
        return str(getattr(self._parts, "name", ""))

    def _first(self, read: str, *args: Any) -> Any:
        """Return the first part's answer that is not None."""
        if args[0] is None:
            raise NullKeyError(f"store {self.name}: the key must not be null", store=self.name, hint="ask for a key")
        for part in self._parts():
            found = part.open(read, *args)[1]
            if found is not None:
                return found if self._show is None else self._show(found)
        return None

    def _rows(self, read: str, *args: Any) -> RowIterator:
        """Return the rows of all parts, by partition."""
        held: list[Held] = []
        try:
            for part in self._parts():
                one = part.open(read, *args)[0]
                if one is not None:
                    held.append(one)
            return RowIterator(held, self._show)
        except BaseException:
            RowIterator(held).close()
            raise

    def _rows_of(self, key: Any, read: str, *args: Any) -> RowIterator:
        if key is None:
            raise NullKeyError(f"store {self.name}: the key must not be null", store=self.name, hint="ask for a key")
        return self._rows(read, key, *args)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


class ReadOnlyKeyValueStore(_Composite):
    """A key-value store, for reading. Rows come partition by partition, within one in the order of the serialized keys."""

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if it has none.

        Args:
            key: not None.

        Raises:
            InvalidStateStoreError: it cannot be read now; see its class.
        """
        return self._first("get", key)

    def get_many(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """Return the values of the keys that have one. Each partition answers as of one commit.

        Args:
            keys: hashable, not None.
        """
        wanted = list(dict.fromkeys(keys))
        found: dict[Any, Any] = {}
        for part in self._parts():
            values = part.get_many(wanted)
            found |= {key: value for key, value in zip(wanted, values, strict=True) if value is not None}
            wanted = [key for key, value in zip(wanted, values, strict=True) if value is None]
            if not wanted:
                break
        return found if self._show is None else {key: self._show(value) for key, value in found.items()}

    def range(self, from_key: Any = None, to_key: Any = None) -> RowIterator:
        """Return (key, value) with from_key <= key <= to_key; None leaves that end open.

        Args:
            from_key, to_key: the bounds.
        """
        return self._rows("range", from_key, to_key)

    def reverse_range(self, from_key: Any = None, to_key: Any = None) -> RowIterator:
        """Return what `range` does, each partition from its last key to its first.

        Args:
            from_key, to_key: the bounds.
        """
        return self._rows("reverse_range", from_key, to_key)

    def all(self) -> RowIterator:
        """Return every (key, value)."""
        return self._rows("all")

    def reverse_all(self) -> RowIterator:
        """Return what `all` does, each partition from its last key to its first."""
        return self._rows("reverse_all")

    def prefix_scan(self, prefix: Any, serialize: Any = None) -> RowIterator:
        """Return (key, value) whose serialized key begins with a prefix.

        Args:
            prefix: not None.
            serialize: serde of the prefix, or a function that returns bytes; None: the store's key serde.
        """
        return self._rows_of(prefix, "prefix_scan", serialize)

    def approximate_num_entries(self) -> int:
        """Return the number of rows on this host, approximately."""
        return sum(int(part.open("approximate_num_entries")[1]) for part in self._parts())


class ReadOnlyWindowStore(_Composite):
    """A window store, for reading. Bounds are window starts in milliseconds, inclusive on both ends."""

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the value of the window that starts at `time_from`; with `time_to`, an iterator of (window start, value).

        Args:
            key: not None.
            time_from, time_to: window starts.
        """
        return self._first("fetch", key, time_from) if time_to is None else self._rows_of(key, "fetch", time_from, time_to)

    def backward_fetch(self, key: Any, time_from: int, time_to: int) -> RowIterator:
        """Return (window start, value), the latest first.

        Args:
            key: not None.
            time_from, time_to: window starts.
        """
        return self._rows_of(key, "backward_fetch", time_from, time_to)

    def fetch_range(self, from_key: Any, to_key: Any, time_from: int, time_to: int) -> RowIterator:
        """Return (windowed key, value) of several keys.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            time_from, time_to: window starts.
        """
        return self._rows("fetch_range", from_key, to_key, time_from, time_to)

    def backward_fetch_range(self, from_key: Any, to_key: Any, time_from: int, time_to: int) -> RowIterator:
        """Return what `fetch_range` does, in reverse.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            time_from, time_to: window starts.
        """
        return self._rows("backward_fetch_range", from_key, to_key, time_from, time_to)

    def fetch_all(self, time_from: int, time_to: int) -> RowIterator:
        """Return (windowed key, value) of all keys.

        Args:
            time_from, time_to: window starts.
        """
        return self._rows("fetch_all", time_from, time_to)

    def backward_fetch_all(self, time_from: int, time_to: int) -> RowIterator:
        """Return what `fetch_all` does, in reverse.

        Args:
            time_from, time_to: window starts.
        """
        return self._rows("backward_fetch_all", time_from, time_to)

    def all(self) -> RowIterator:
        """Return every (windowed key, value)."""
        return self._rows("all")

    def backward_all(self) -> RowIterator:
        """Return what `all` does, in reverse."""
        return self._rows("backward_all")


class ReadOnlySessionStore(_Composite):
    """A session store, for reading."""

    def fetch(self, key: Any) -> RowIterator:
        """Return (session, value) of a key.

        Args:
            key: not None.
        """
        return self._rows_of(key, "fetch")

    def backward_fetch(self, key: Any) -> RowIterator:
        """Return what `fetch` does, the latest first.

        Args:
            key: not None.
        """
        return self._rows_of(key, "backward_fetch")

    def fetch_range(self, from_key: Any = None, to_key: Any = None) -> RowIterator:
        """Return (session, value) of several keys.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
        """
        return self._rows("fetch_range", from_key, to_key)

    def backward_fetch_range(self, from_key: Any = None, to_key: Any = None) -> RowIterator:
        """Return what `fetch_range` does, in reverse.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
        """
        return self._rows("backward_fetch_range", from_key, to_key)

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        """Return the value of one session.

        Args:
            key: not None.
            start, end: of the session, in milliseconds.
        """
        return self._first("fetch_session", key, start, end)

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> RowIterator:
        """Return (session, value) of a key's sessions that end at `earliest_end` or later and start at `latest_start` or earlier.

        Args:
            key: not None.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows_of(key, "find_sessions", earliest_end, latest_start)

    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> RowIterator:
        """Return what `find_sessions` does, the latest first.

        Args:
            key: not None.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows_of(key, "backward_find_sessions", earliest_end, latest_start)

    def find_sessions_range(self, from_key: Any, to_key: Any, earliest_end: int, latest_start: int) -> RowIterator:
        """Return what `find_sessions` does, of several keys.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows("find_sessions_range", from_key, to_key, earliest_end, latest_start)

    def backward_find_sessions_range(self, from_key: Any, to_key: Any, earliest_end: int, latest_start: int) -> RowIterator:
        """Return what `find_sessions_range` does, in reverse.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            earliest_end, latest_start: in milliseconds.
        """
        return self._rows("backward_find_sessions_range", from_key, to_key, earliest_end, latest_start)


class ReadOnlyVersionedStore(_Composite):
    """A versioned store, for reading."""

    def get(self, key: Any, as_of: int | None = None) -> Any:
        """Return the version of a key, as a `VersionedRecord`; None if it had none.

        Args:
            key: not None.
            as_of: a time in milliseconds; None: the latest version.
        """
        return self._first("get", key, as_of)

    def versions(self, key: Any, time_from: int, time_to: int, newest_first: bool = True) -> RowIterator:
        """Return the versions of a key that were valid at some time in a range.

        Args:
            key: not None.
            time_from, time_to: in milliseconds.
            newest_first: the order.
        """
        return self._rows_of(key, "versions", time_from, time_to, newest_first)

    def range(self, from_key: Any = None, to_key: Any = None, as_of: int | None = None) -> RowIterator:
        """Return (key, version) with from_key <= key <= to_key.

        Args:
            from_key, to_key: the bounds; None leaves that end open.
            as_of: a time in milliseconds; None: the latest versions.
        """
        return self._rows("range", from_key, to_key, as_of)

    def all(self) -> RowIterator:
        """Return (key, latest version) of every key."""
        return self._rows("all")


def expect_accepted(store_type: Any, builder: StoreBuilder) -> None:
    """Raise InvalidStateStoreError if a type of queryable store does not accept a store."""
    if not store_type.accepts(builder):
        raise InvalidStateStoreError(
            f"store {builder.name!r} is a {builder.kind} store, which {store_type!r} does not accept; asking again does not help",
            hint="take the type for its kind from QueryableStoreTypes",
            store=builder.name,
        )


class LocalStoreProvider:
    """`StateStoreProvider` over the stores of this host.

    Args:
        partition: only this one; None: all that are here.
        stale: whether copies that are behind may answer.
    """

    def __init__(self, local: LocalStores, *, partition: int | None = None, stale: bool = False) -> None:
        self._local = local
        self._partition = partition
        self._stale = stale
        self._known: tuple[tuple[list[int], bool], list[TaskPart]] = (([], False), [])

    def stores(self, name: str, store_type: Any) -> Sequence[TaskPart]:
        """Return the parts of a store, one for each partition.

        Args:
            name: the store's name.
            store_type: must accept the store.

        Raises:
            InvalidStateStoreError: it does not, no part is here, or instances keep it in their memory.
        """
        builder = self._local.builder(name)
        expect_accepted(store_type, builder)
        self._local.refuse_memory(name)
        partitions = self._local.expect_any(name, stale=self._stale) if self._partition is None else [self._partition]
        headers = getattr(store_type, "headers", False)
        if (partitions, headers) != self._known[0]:
            parts = [TaskPart(self._local, builder, partition, stale=self._stale, headers=headers) for partition in partitions]
            self._known = ((partitions, headers), parts)
        return self._known[1]
