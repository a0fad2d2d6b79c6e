"""The stores of an application on other hosts, for queries: each read is a request to its query servers.

A `RemotePart` answers a `Read` as a `LocalPart` does. It has all partitions of its store, or one of them. Rows come page by page: within a
page each partition is as of one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kstreams_repl.engine.serdes.serde import Serde
from kstreams_repl.engine.stores.kinds.key_value import prefix_bytes
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.store_types import QueryableStoreType, StateStoreProvider, expect_accepted
from kstreams_repl.serving.queries.position import Position
from kstreams_repl.serving.queries.read import LONGEST, ROWS, Read
from kstreams_repl.serving.queries.row_iterator import Held
from kstreams_repl.serving.queries.rows import StoreRow, pair, value_of
from kstreams_repl.system.errors import CallError, StateStoreNotAvailableError

if TYPE_CHECKING:
    from kstreams_repl.serving.remote.client import QueryClient

_Found = TypeVar("_Found")
Call = Callable[[Callable[["QueryClient"], _Found]], _Found]
"""Calls a function with a client of a server that answers."""
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

    def key_serde(self, builder: StoreBuilder) -> Serde:
        """Return the serde of a store's keys."""
        return self.local.key_serde(builder)

    def part(self, builder: StoreBuilder, partition: int | None = None, **options: Any) -> RemotePart:
        """Return a partition of a store; None: all of them.

        Args:
            options: as `RemotePart`.
        """
        return RemotePart(self, builder, partition, **options)


class RemoteStoreProvider(StateStoreProvider):
    """Finds one part, which reads all partitions by the query servers, or the only one.

    Args:
        partition: only this one; None: all.
        stale: whether standby copies may answer.
    """

    def __init__(self, stores: RemoteStores, *, partition: int | None = None, stale: bool = False) -> None:
        self._stores, self._partition, self._stale = stores, partition, stale

    def parts(self, name: str, store_type: QueryableStoreType) -> Sequence[RemotePart]:
        builder = self._stores.builder(name)
        expect_accepted(store_type, builder)
        headers = getattr(store_type, "headers", False)
        return [self._stores.part(builder, self._partition, stale=self._stale, headers=headers)]


class RemotePart:
    """A store, or one partition of it, by query servers.

    Args:
        partition: None: all.
        stale: whether standby copies may answer.
        bound: what the answer must have reached.
        wait: seconds to wait for that.
        seconds: time for one attempt; None: as often as the client's time allows.
        headers: a store that keeps headers shows them.
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
        headers: bool = False,
    ) -> None:
        self.builder = builder
        self.partition = partition
        self.position = Position()
        """The position of the answers so far."""
        self.task = f"{builder.name}, {'all partitions' if partition is None else f'partition {partition}'}"
        self._stores = stores
        self._seconds = seconds
        bound = bound if bound is not None and any(bound.offsets.values()) else None
        self._with: dict[str, Any] = {
            "partition": partition, "stale": stale, "bound": bound, "wait": wait, "limit": PAGE_ROWS, "headers": headers,
        }  # fmt: skip

    def open(self, read: Read) -> tuple[Held | None, Any]:
        """Return (what an iterator holds, None) for rows, or (None, the value). The first page is read now."""
        if read.kind == "many":
            return None, self._values(read)
        rows, following = self._page(self._sent(read))
        if not rows and read.has_key and read.kind != "versions" and self.partition is None:
            # the input may have a partitioner of its own: ask all partitions
            everywhere = read._replace(kind="range") if read.kind == "get" else read
            rows, following = self._page(self._sent(everywhere._replace(key=None, has_key=False, low=read.key, high=read.key)))
        if read.kind == "count":
            return None, sum(int(row["count"]) for row in rows)
        if read.kind == "session":
            bounds = read.time_from, read.time_to
            rows = [row for row in rows if (row["window_start"], row["window_end"]) == bounds]
        if read.kind not in ROWS:
            return None, value_of(rows[0]) if rows else None
        return (self, None, map(pair, self._rest(rows, following))), None

    def give(self, view: object) -> None:
        """Nothing is held."""

    def _sent(self, read: Read) -> Read:
        """Return a read as the servers answer it."""
        first, last = _time(read.time_from), _time(read.time_to)
        if read.kind == "window":
            read, last = read._replace(kind="windows"), first
        elif read.kind == "session":  # the one that ends at its end or later, and starts at its start or earlier, is among these
            read, first, last = read._replace(kind="sessions"), last, first
        elif read.kind == "prefix":
            data = prefix_bytes(read.prefix, read.serializer, self._stores.key_serde(self.builder))
            read = read._replace(prefix=_text_of(data))
        return read._replace(time_from=first, time_to=last, **self._with)

    def _values(self, read: Read) -> list[object]:
        """Return the value of each key, None if it has none; of one partition: if that has it."""
        asked = {name: self._with[name] for name in ("stale", "partition", "headers")}
        values: dict[object, object] = {}
        for page in self._stores.call(lambda client: client.pages_of_many(read.store, read.keys, **asked)):
            self.position = self.position.merge(page.position)
            values |= {row["key"]: value_of(row) for row in page.rows}
        return [values.get(key) for key in read.keys]

    def _page(self, read: Read) -> tuple[list[StoreRow], Read | None]:
        from kstreams_repl.serving.remote.client import page_of  # its library is an extra of those who ask servers

        page, following = self._stores.call(lambda client: page_of(client, read, timeout=self._seconds))
        self.position = self.position.merge(page.position)
        return page.rows, following

    def _rest(self, rows: list[StoreRow], following: Read | None) -> Iterator[StoreRow]:
        yield from rows
        while following is not None:
            rows, following = self._page(following)
            yield from rows

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


def _time(value: int | None) -> int | None:
    """Return a bound of times; None if it is open."""
    return None if value is None or not -LONGEST <= value < LONGEST else value


def _text_of(prefix: bytes | None) -> str:
    try:
        return (prefix or b"").decode()
    except UnicodeDecodeError as error:
        raise CallError(
            "a prefix of keys on other hosts must be text", hint="read a range: range(from_key, to_key)", argument="prefix"
        ) from error


