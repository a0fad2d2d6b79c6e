"""The stores of an application on other hosts, for queries: each read is a request to its query servers.

A `RemotePart` stands in for a `TaskPart`, so the composites (`read_only_stores`), and types of the user's own, read it like a part on this
host. It has all partitions of its store, or one of them. Rows come page by page: within a page each partition is as of one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from kstreams_repl.engine.stores.kinds.key_value import prefix_bytes
from kstreams_repl.engine.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.serving.client_requests import pair, value_of
from kstreams_repl.serving.local_stores import LocalStores
from kstreams_repl.serving.position import Position
from kstreams_repl.serving.read_only_stores import READS, expect_accepted
from kstreams_repl.serving.row_iterator import Held, RowIterator
from kstreams_repl.serving.server.reads import Read
from kstreams_repl.serving.store_types import QueryableStoreType
from kstreams_repl.system.errors import CallError, InvalidStateStoreError, StateStoreNotAvailableError

if TYPE_CHECKING:
    from kstreams_repl.serving.client import QueryClient

_Found = TypeVar("_Found")
Call = Callable[[Callable[["QueryClient"], _Found]], _Found]
"""Calls a function with a client of a server that answers."""
_WINDOWS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW})
_FARTHEST = 2**63 - 1
PAGE_ROWS = 1_000


class RemoteStores:
    """The stores of one application by its query servers.

    Args:
        local: describes the stores.
        call: calls a function with a client of a server that answers.
    """

    def __init__(self, local: LocalStores, call: Call[Any]) -> None:
        self.local = local
        self.call = call

    def builder(self, store: str) -> StoreBuilder:
        """Return the description of a store that can be queried.

        Raises:
            UnknownStateStoreError: there is none, or it has no name of its own.
            StateStoreNotAvailableError: it is kept in memory.
        """
        builder = self.local.builder(store)
        self.local.refuse_memory(store)
        return builder

    def partition_count(self, store: str) -> int:
        """Return the number of partitions of a store.

        Raises:
            StateStoreNotAvailableError: no server answers.
        """
        return len(self.call(lambda client: client.metadata())["stores"][store])

    def key_serde(self, builder: StoreBuilder) -> Any:
        """Return the serde of a store's keys."""
        return self.local.key_serde(builder)

    def part(self, builder: StoreBuilder, partition: int | None = None, **options: Any) -> RemotePart:
        """Return a partition of a store; None: all of them.

        Args:
            options: as `RemotePart`.
        """
        return RemotePart(self, builder, partition, **options)


class RemoteStoreProvider:
    """`StateStoreProvider` over the query servers: one part, which reads all partitions, or the only one.

    Args:
        partition: only this one; None: all.
        stale: whether standby copies may answer.
    """

    def __init__(self, stores: RemoteStores, *, partition: int | None = None, stale: bool = False) -> None:
        self._stores, self._partition, self._stale = stores, partition, stale

    def stores(self, name: str, store_type: QueryableStoreType) -> Sequence[RemotePart]:
        """Return the parts of a store.

        Raises:
            InvalidStateStoreError: the type does not accept it, or instances keep it in their memory.
        """
        builder = self._stores.builder(name)
        expect_accepted(store_type, builder)
        if getattr(store_type, "headers", False):
            raise InvalidStateStoreError(
                f"query servers do not send the headers of store {name!r}; asking again does not help",
                hint="read it on the host that has it (app.query), or take the type without headers",
                store=name,
            )
        return [self._stores.part(builder, self._partition, stale=self._stale)]


class RemotePart:
    """A store, or one partition of it, by query servers: the reads of its kind (`READS`) are its methods.

    Args:
        partition: None: all.
        stale: whether standby copies may answer.
        bound: what the answer must have reached.
        wait: seconds to wait for that.
        seconds: time for one attempt; None: as often as the client's time allows.
    """

    def __init__(
        self,
        stores: RemoteStores,
        builder: StoreBuilder,
        partition: int | None = None,
        *,
        stale: bool = False,
        bound: Position | None = None,
        wait: float = 0.0,
        seconds: float | None = None,
    ) -> None:
        self.partition = partition
        self.position = Position()
        """The position of the answers so far."""
        self.task = f"{builder.name}, {'all partitions' if partition is None else f'partition {partition}'}"
        self._stores = stores
        self._builder = builder
        self._seconds = seconds
        offsets = {} if bound is None else {topic: {str(at): o for at, o in parts.items()} for topic, parts in bound.offsets.items()}
        self._with: dict[str, Any] = {"partition": partition, "stale": stale, "bound": offsets, "wait": wait, "limit": PAGE_ROWS}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in READS.get(self._builder.kind, ()):
            raise AttributeError(f"a {self._builder.kind} store has no read {name!r}")
        return lambda *args: self.read(name, *args)

    def read(self, name: str, *args: Any) -> Any:
        """Return what a read finds."""
        held, found = self.open(name, *args)
        return found if held is None else RowIterator([held])

    def open(self, name: str, *args: Any) -> tuple[Held | None, Any]:
        """Return (what an iterator holds, None) for rows, or (None, the value). The first page is read now."""
        kind = self._builder.kind
        if kind in _WINDOWS:
            read, show = _window_read(self._builder.name, name, *args)
        elif kind is StoreKind.SESSION:
            read, show = _session_read(self._builder.name, name, *args)
        else:
            read, show = self._key_value_read(name, *args)
        rows, following = self._page(replace(read, **self._with))
        if not rows and read.has_key and read.kind != "versions" and self.partition is None:
            # the input may have a partitioner of its own: ask all partitions
            kind_of_all = "range" if read.kind == "get" else read.kind
            everywhere = replace(read, kind=kind_of_all, key=None, has_key=False, low=read.key, high=read.key)
            rows, following = self._page(replace(everywhere, **self._with))
        if read.kind == "count":
            return None, sum(int(row["count"]) for row in rows)
        if name == "get" or (name == "fetch" and len(args) == 2 and kind in _WINDOWS):
            return None, value_of(rows[0]) if rows else None
        if name == "fetch_session":
            bounds = args[1:]
            return None, next((value_of(row) for row in rows if (row["window_start"], row["window_end"]) == bounds), None)
        return (self, None, map(show, self._rest(rows, following))), None

    def get_many(self, keys: Sequence[Any]) -> list[Any]:
        """Return the value of each key, None if it has none; of one partition: if that has it."""
        found: dict[Any, Any] = {}
        name, options = self._builder.name, {"stale": self._with["stale"], "partition": self.partition}
        for page in self._stores.call(lambda client: client.pages_of_many(name, keys, **options)):
            self.position = self.position.merge(page.position)
            found |= {row["key"]: value_of(row) for row in page.rows}
        return [found.get(key) for key in keys]

    def give(self, view: Any) -> None:
        """Nothing is held."""

    def _page(self, read: Read) -> tuple[list[dict[str, Any]], Read | None]:
        page, following = self._stores.call(lambda client: client.page(read, seconds=self._seconds))
        self.position = self.position.merge(page.position)
        return page.rows, following

    def _rest(self, rows: list[dict[str, Any]], following: Read | None) -> Iterator[dict[str, Any]]:
        yield from rows
        while following is not None:
            rows, following = self._page(following)
            yield from rows

    def _key_value_read(self, name: str, *args: Any) -> tuple[Read, Callable[[dict[str, Any]], Any]]:
        store = self._builder.name
        if name == "approximate_num_entries":
            return Read("count", store), pair
        if name == "get":
            return Read("get", store, args[0], True, as_of=args[1] if len(args) > 1 else None), pair
        if name == "versions":
            key, first, last, newest_first = (*args, True)[:4]
            return Read("versions", store, key, True, time_from=_time(first), time_to=_time(last), reverse=newest_first), value_of
        if name == "prefix_scan":
            prefix, serialize = (*args, None)[:2]
            data = prefix_bytes(prefix, serialize, self._stores.key_serde(self._builder))
            return Read("prefix", store, prefix=_text_of(data)), pair
        low, high, as_of, reverse = (*args, None, None, None, False)[:4] if not name.endswith("all") else (None, None, None, False)
        return Read("range", store, low=low, high=high, as_of=as_of, reverse=reverse or name.startswith("reverse")), pair

    def __repr__(self) -> str:
        return f"RemotePart({self.task})"


def no_servers(application: str, store: str) -> StateStoreNotAvailableError:
    """Return the error for a store on a cluster whose application has no query servers."""
    return StateStoreNotAvailableError(
        f"{application} runs on a cluster and has no query servers: the rows of store {store!r} are on its hosts",
        hint="set application.server, deploy again, and read it here or by ks.queries.connect(url, token=...)",
        store=store,
        retriable=False,
    )


def _window_read(store: str, name: str, *args: Any) -> tuple[Read, Callable[[dict[str, Any]], Any]]:
    reverse, plain = name.startswith("backward"), name.removeprefix("backward_")
    if plain == "fetch":
        key, first, last = (*args, args[1])[:3]
        read = Read("windows", store, key, True, time_from=_time(first), time_to=_time(last), reverse=reverse)
        return read, lambda row: (row["window_start"], value_of(row))
    low, high, first, last = args if plain == "fetch_range" else (None, None, *(args or (None, None)))
    return Read("windows", store, low=low, high=high, time_from=_time(first), time_to=_time(last), reverse=reverse), pair


def _session_read(store: str, name: str, *args: Any) -> tuple[Read, Callable[[dict[str, Any]], Any]]:
    reverse, plain = name.startswith("backward"), name.removeprefix("backward_")
    if plain in ("fetch", "find_sessions", "fetch_session"):
        key, first, last = (*args, None, None)[:3]
        if plain == "fetch_session":  # the one session that ends at its end or later, and starts at its start or earlier, is among these
            first, last = last, first
        return Read("sessions", store, key, True, time_from=_time(first), time_to=_time(last), reverse=reverse), pair
    if plain not in ("fetch_range", "find_sessions_range", "all"):
        raise CallError(f"{plain} reads parts on the same host only", hint="read all sessions: all()", argument="read")
    low, high, first, last = (*args, None, None, None, None)[:4]
    return Read("sessions", store, low=low, high=high, time_from=_time(first), time_to=_time(last), reverse=reverse), pair


def _time(value: int | None) -> int | None:
    """Return a bound of times; None if it is open."""
    return None if value is None or not -_FARTHEST <= value < _FARTHEST else value


def _text_of(prefix: bytes | None) -> str:
    try:
        return (prefix or b"").decode()
    except UnicodeDecodeError as error:
        raise CallError(
            "a prefix of keys on other hosts must be text", hint="read a range: range(from_key, to_key)", argument="prefix"
        ) from error


