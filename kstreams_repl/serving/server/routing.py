"""Answer a read: here if this host has the partition, else by one request to the server that has it.

The order for one partition: 1. its active task, here or on its owner · 2. if the caller allows staleness and the owner does not answer,
a standby copy, here or on another host, else the last commit of the owner's worker that died, if its files are here. A request that
another server has forwarded is answered here or refused: it makes one hop. Reads of several partitions take them in order, page by page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import httpx

from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.query_tokens import QueryTokens, signature
from kstreams_repl.serving.discovery import DRIVER, Discovery
from kstreams_repl.serving.remote_errors import error_of
from kstreams_repl.serving.server.limits import Limits
from kstreams_repl.serving.server.reads import BEHIND, Read, Rows
from kstreams_repl.serving.wire import from_wire, to_wire
from kstreams_repl.system.errors import (
    InvalidStateStorePartitionError,
    KStreamsError,
    StateStoreNotAvailableError,
    StreamsRebalancingError,
)

_HOP_SECONDS = 5.0
_DOWN_SECONDS = 0.5
_WAIT_SECONDS, _MOST_WAIT_SECONDS = 0.002, 0.02
"""Pauses between looks whether a store has reached a position."""
_INSTANT = frozenset({"get", "count"})
"""Reads of microseconds, which are not worth a thread."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a read.

    Attributes:
        next: where the next page begins; None: there is none.
        stale: whether a standby copy answered, and `lag` by how many records it was behind.
        partitions: the partitions that were read.
        size: bytes of the rows.
        unknown: partitions whose position is not known: nothing was committed since their task was taken over.
    """

    rows: list[dict[str, Any]]
    position: dict[str, dict[str, int]] = field(default_factory=dict)
    next: tuple[int, int, Any] | None = None
    stale: bool = False
    lag: int = 0
    partitions: tuple[int, ...] = ()
    size: int = 0
    unknown: tuple[int, ...] = ()


class LocalStores(Protocol):
    """The stores of this host. Reads see committed rows only, and are safe in any thread."""

    def read(self, read: Read, partition: int, stale: bool) -> Rows:
        """Return the rows of one partition, from the active task's store, or with `stale` from a standby copy too."""

    def get_many(self, store: str, keys: list[Any], partition: int, stale: bool) -> Rows:
        """Return one row per key that is there."""

    def lag(self, store: str, partition: int) -> int:
        """Return by how many records the copy here is behind its changelog."""


class Router:
    """Routes reads.

    Args:
        place: the executor directory of this host's stores.
        certificates: as httpx's ``verify``, for requests to other servers.
        most_bytes: of rows in one answer: a page ends with the partition that passes it.
    """

    def __init__(
        self,
        discovery: Discovery,
        local: LocalStores,
        place: str,
        tokens: QueryTokens,
        *,
        certificates: Any = True,
        most_bytes: int = Limits().page_bytes,
    ) -> None:
        self.discovery = discovery
        self._most_bytes = most_bytes
        self._local = local
        self._place = place
        self._tokens = tokens
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(_HOP_SECONDS, connect=1.0),
            limits=httpx.Limits(max_connections=128, max_keepalive_connections=64),
            verify=certificates,
            trust_env=False,
            follow_redirects=False,
        )
        self._down: dict[HostInfo, float] = {}
        self.hops = 0

    async def close(self) -> None:
        """Close the connections to other servers."""
        await self._client.aclose()

    async def answer(self, read: Read, *, forwarded: bool = False) -> Answer:
        """Answer a read.

        Raises:
            StateStoreNotAvailableError, StreamsRebalancingError: the owner does not answer now.
        """
        partitions = self.partitions_of(read)
        if len(partitions) == 1:
            return await self._one(read, partitions[0], forwarded)
        rows: list[dict[str, Any]] = []
        position: dict[str, dict[str, int]] = {}
        unknown: tuple[int, ...] = ()
        stale, lag, size, taken = False, 0, 0, []
        start = partitions[0] if read.after is None else read.after[0]
        for partition in (each for each in partitions if each >= start):
            after = read.after if read.after is not None and read.after[0] == partition else None
            part = await self._one(replace(read, limit=read.limit - len(rows), after=after), partition, forwarded)
            rows += part.rows
            merge_positions(position, part.position)
            stale, lag, size = stale or part.stale, max(lag, part.lag), size + part.size
            taken.append(partition)
            unknown = (*unknown, *part.unknown)
            full = len(rows) >= read.limit or size > self._most_bytes
            if part.next is not None or (full and partition != partitions[-1]):
                return Answer(rows, position, part.next or (partition + 1, 0, None), stale, lag, tuple(taken), unknown=unknown)
        return Answer(rows, position, None, stale, lag, tuple(taken), unknown=unknown)

    async def get_many(
        self, store: str, keys: list[Any], partition: int | None = None, *, stale: bool = False, forwarded: bool = False
    ) -> Answer:
        """Return one row per key that is there, from all partitions at once.

        A key that is not where Kafka's default partitioner puts it is looked for in the others: the input may have a partitioner
        of its own.

        Args:
            partition: the only one to look in; None: all.
        """
        count = self._expect_partitions(store)
        if partition is not None:
            _expect_partition(store, partition, count)
            return await self._many(store, keys, partition, stale, forwarded)
        by_partition = self.discovery.keys_by_partition(store, keys)
        answer = await self._from_partitions(store, by_partition, stale, forwarded)
        if count < 2 or len(answer.rows) >= len(keys):
            return answer
        found = {repr(row["key"]) for row in answer.rows}  # keys may be lists
        elsewhere: dict[int, list[Any]] = {}
        for asked, group in by_partition.items():
            missing = [key for key in group if repr(key) not in found]
            for other in range(count):
                if missing and other != asked:
                    elsewhere.setdefault(other, []).extend(missing)
        rest = await self._from_partitions(store, elsewhere, stale, forwarded)
        merge_positions(answer.position, rest.position)
        partitions = tuple(sorted({*answer.partitions, *rest.partitions}))
        stale, lag, unknown = answer.stale or rest.stale, max(answer.lag, rest.lag), tuple(sorted({*answer.unknown, *rest.unknown}))
        return Answer(answer.rows + rest.rows, answer.position, None, stale, lag, partitions, unknown=unknown)

    async def _from_partitions(self, store: str, by_partition: dict[int, list[Any]], stale: bool, forwarded: bool) -> Answer:
        parts = await asyncio.gather(
            *(self._many(store, group, partition, stale, forwarded) for partition, group in sorted(by_partition.items()))
        )
        position: dict[str, dict[str, int]] = {}
        for part in parts:
            merge_positions(position, part.position)
        return Answer(
            [row for part in parts for row in part.rows],
            position,
            None,
            any(part.stale for part in parts),
            max((part.lag for part in parts), default=0),
            tuple(sorted(by_partition)),
            unknown=tuple(number for part in parts for number in part.unknown),
        )

    def partitions_of(self, read: Read) -> list[int]:
        """Return the partitions that a read needs.

        Raises:
            StateStoreNotAvailableError: the application has no assignment yet.
        """
        store = read.store
        count = self._expect_partitions(store)
        if store in self.discovery.global_stores:
            return [0]
        if read.partition is not None:
            _expect_partition(store, read.partition, count)
            return [read.partition]
        if read.has_key:
            return [self.discovery.query_metadata_for_key(store, read.key).partition]
        return list(range(count))

    def _expect_partitions(self, store: str) -> int:
        """Return the number of partitions of a store."""
        self.discovery.builder(store)
        count = 1 if store in self.discovery.global_stores else self.discovery.partitions_of(store)
        if not count:
            raise StateStoreNotAvailableError(
                f"the application has not started: no task has store {store!r} yet", hint="ask again when it runs", store=store
            )
        return count

    # ---- one partition

    async def _one(self, read: Read, partition: int, forwarded: bool) -> Answer:
        return await self._route(
            read.store,
            partition,
            read.stale,
            forwarded,
            lambda copy: self._here(read, partition, copy),
            lambda host: self._there(host, "GET", read.on(partition).target()),
            read.max_lag,
        )

    async def _many(self, store: str, keys: list[Any], partition: int, stale: bool, forwarded: bool) -> Answer:
        async def here(copy: bool) -> Answer:
            call = asyncio.to_thread if len(keys) > 100 else _at_once
            return self._answered(store, partition, await call(self._local.get_many, store, keys, partition, copy), copy)

        async def there(host: HostInfo) -> Answer:
            content = {"keys": [to_wire(key) for key in keys], "stale": stale, "partition": partition}
            return await self._there(host, "POST", f"/state/stores/{store}", content)

        return await self._route(store, partition, stale, forwarded, here, there, None)

    async def _route(
        self,
        store: str,
        partition: int,
        stale: bool,
        forwarded: bool,
        here: Callable[[bool], Any],
        there: Callable[[HostInfo], Any],
        max_lag: int | None,
    ) -> Answer:
        if store in self.discovery.global_stores:
            return await here(False)  # type: ignore[no-any-return]
        now, task = self.discovery.placement, self.discovery.task_of(store, partition)
        owner = now.active.get(task, "")
        copies = now.standbys.get(task, ())
        state = now.states.get(task, "running")
        try:
            if state in ("restoring", "starting") and owner != DRIVER:
                raise _taken_over(store, partition)
            if owner == self._place:
                try:
                    return await here(False)  # type: ignore[no-any-return]
                except InvalidStateStorePartitionError as error:  # claimed, and its files are not made yet
                    raise _taken_over(store, partition) from error
            if forwarded:
                raise StreamsRebalancingError(
                    f"partition {partition} of store {store!r} is not on this host", hint="ask again: it moves", store=store,
                    partition=partition,
                )  # fmt: skip
            return await there(self._server(now.servers, owner, store, partition))  # type: ignore[no-any-return]
        except KStreamsError as error:
            if not stale or not getattr(error, "retriable", False):
                raise
            if owner == self._place and task in now.promoted:  # what was its standby copy until it took the task over
                copies = (*copies, owner)
            fallback = await self._from_copy(now.servers, copies, forwarded, here, there, max_lag)
            if fallback is None and owner == self._place and isinstance(error, StreamsRebalancingError):
                fallback = await self._from_last_commit(here, max_lag)
            if fallback is None:
                raise
            return fallback

    async def _from_last_commit(self, here: Callable[[bool], Any], max_lag: int | None) -> Answer | None:
        """Return the answer of the last commit of a task whose worker died here; None while it is restored: then rows are missing."""
        try:
            answer: Answer = await here(True)
        except KStreamsError:
            return None
        within = max_lag is None or answer.lag <= max_lag
        return replace(answer, stale=True) if answer.position and within else None

    async def _from_copy(
        self,
        servers: Mapping[str, HostInfo],
        copies: tuple[str, ...],
        forwarded: bool,
        here: Callable[[bool], Any],
        there: Callable[[HostInfo], Any],
        max_lag: int | None,
    ) -> Answer | None:
        """Return the answer of a standby copy; None if none answers within the allowed lag."""
        for place in sorted(copies, key=lambda place: place != self._place):
            try:
                if place == self._place:
                    answer: Answer = await here(True)
                elif forwarded or place not in servers:
                    continue
                else:
                    answer = await there(servers[place])
            except KStreamsError:
                continue
            if max_lag is None or answer.lag <= max_lag:
                return replace(answer, stale=True)
        return None

    def _server(self, servers: Mapping[str, HostInfo], owner: str, store: str, partition: int) -> HostInfo:
        host = servers.get(owner)
        if host is None:
            raise StateStoreNotAvailableError(
                f"no query server has reported for the host of partition {partition} of store {store!r}",
                hint="ask again; servers start with the instances if application.server is set",
                store=store,
                partition=partition,
            )
        if self._down.get(host, 0.0) > time.monotonic():
            raise _unreachable(host, "it did not answer a moment ago", store)
        return host

    async def _here(self, read: Read, partition: int, copy: bool) -> Answer:
        call = _at_once if read.kind in _INSTANT else asyncio.to_thread
        deadline, pause = time.monotonic() + read.wait, _WAIT_SECONDS
        while True:
            try:
                rows = await call(self._local.read, read, partition, copy)
                break
            except StateStoreNotAvailableError as error:
                if error.status != BEHIND or time.monotonic() + pause > deadline:
                    raise
            await asyncio.sleep(pause)  # no thread waits: there are few
            pause = min(2 * pause, _MOST_WAIT_SECONDS)
        answer = self._answered(read.store, partition, rows, copy)
        if rows.complete:
            return answer
        return replace(answer, next=rows.next_of(read, partition))

    def _answered(self, store: str, partition: int, rows: Rows, copy: bool) -> Answer:
        lag = self._local.lag(store, partition) if copy else 0
        position = {topic: dict(parts) for topic, parts in rows.position.items()}
        known = store in self.discovery.global_stores or any(str(partition) in parts for parts in position.values())
        return Answer(rows.rows, position, None, copy, lag, (partition,), rows.size, () if known else (partition,))

    async def _there(self, host: HostInfo, method: str, target: str, content: Any = None) -> Answer:
        from kstreams_repl.serving.server.answers import encoded

        body = b"" if content is None else encoded(content)
        headers = {
            "Host": str(host),
            "KStreams-Hop": "1",
            "Authorization": signature(self._tokens.view, method, str(host), target, body),
        }
        if body:
            headers["Content-Type"] = "application/json"
        self.hops += 1
        try:
            response = await self._client.request(method, host.url + target, headers=headers, content=body or None)
            plain = response.json()
        except (httpx.HTTPError, ValueError) as error:
            self._down[host] = time.monotonic() + _DOWN_SECONDS
            raise _unreachable(host, type(error).__name__, None) from error
        self._down.pop(host, None)
        if response.status_code != 200:
            raise error_of(plain, response.status_code)
        after = plain.get("next_page")
        return Answer(
            [{name: from_wire(value) for name, value in row.items()} for row in plain["rows"]],
            plain.get("position") or {},
            None if after is None else (after[0], after[1], from_wire(after[2])),
            bool(plain.get("stale")),
            int(plain.get("lag", 0)),
            tuple(plain.get("partitions", ())),
            len(response.content),
            tuple(plain.get("position_unknown", ())),
        )


def _expect_partition(store: str, partition: int, count: int) -> None:
    if partition >= count:
        message = f"store {store!r} has partitions 0 to {count - 1}, not {partition}"
        raise InvalidStateStorePartitionError(message, store=store, partition=partition, status=404)


def merge_positions(into: dict[str, dict[str, int]], other: Mapping[str, Mapping[str, int]]) -> None:
    """Take the larger offset of each partition."""
    for topic, parts in other.items():
        mine = into.setdefault(topic, {})
        for partition, offset in parts.items():
            mine[partition] = max(offset, mine.get(partition, offset))


async def _at_once(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


def _taken_over(store: str, partition: int) -> StreamsRebalancingError:
    return StreamsRebalancingError(
        f"partition {partition} of store {store!r} is being restored", hint="ask again", store=store, partition=partition
    )


def _unreachable(host: HostInfo, why: str, store: str | None) -> StateStoreNotAvailableError:
    return StateStoreNotAvailableError(
        f"the query server at {host} does not answer ({why})",
        hint="ask again: another host takes the partition over; stale=true reads a standby copy meanwhile",
        host=host.host,
        port=host.port,
        store=store,
    )
