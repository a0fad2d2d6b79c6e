"""Answer a read: here if this host has the partition, else by one request to the server that has it.

The order for one partition: 1. its active task, here or on its owner · 2. if the caller allows staleness and the owner does not answer,
a standby copy, here or on another host, else the last commit of the owner's worker that died, if its files are here. A request that
another server has forwarded is answered here or refused: it makes one hop. Reads of several partitions take them in order, page by page.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import httpx

from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.query_tokens import QueryTokens, signature
from kstreams_repl.serving.queries.position import Position
from kstreams_repl.serving.queries.read import BEHIND, Read
from kstreams_repl.serving.queries.rows import StoreRow
from kstreams_repl.serving.queries.wire import from_wire, position_from_wire
from kstreams_repl.serving.remote.discovery import DRIVER, Discovery
from kstreams_repl.serving.remote.remote_errors import error_of
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.serving.server.local_reads import LocalReads
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
_INSTANT = frozenset({"get", "count", "many"})
_INSTANT_KEYS = 1_000
"""Reads of up to two milliseconds: a thread would wait as long for the interpreter."""


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

    rows: list[StoreRow]
    position: Position = field(default_factory=Position)
    next: tuple[int, int, object] | None = None
    stale: bool = False
    lag: int = 0
    partitions: tuple[int, ...] = ()
    size: int = 0
    unknown: tuple[int, ...] = ()


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
        local: LocalReads,
        place: str,
        tokens: QueryTokens,
        *,
        certificates: ssl.SSLContext | bool = True,
        most_bytes: int = ServerLimits().page_bytes,
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
        if read.kind == "many" and read.partition is None:
            return await self._many(read, forwarded)
        partitions = self.partitions_of(read)
        if len(partitions) == 1:
            return await self._one(read, partitions[0], forwarded)
        rows = 0
        parts: list[Answer] = []
        start = partitions[0] if read.after is None else read.after[0]
        for partition in (each for each in partitions if each >= start):
            parts.append(await self._one(read.following(rows, partition), partition, forwarded))
            rows += len(parts[-1].rows)
            full = rows >= read.limit or sum(part.size for part in parts) > self._most_bytes
            following = parts[-1].next or ((partition + 1, 0, None) if full and partition != partitions[-1] else None)
            if following is not None:
                return _together(parts, following)
        return _together(parts)

    async def _many(self, read: Read, forwarded: bool) -> Answer:
        """Return one row per key that is there, from all partitions at once.

        A key that is not where Kafka's default partitioner puts it is looked for in the others: the input may have a partitioner
        of its own.
        """
        count = self._expect_partitions(read.store)
        by_partition = self.discovery.keys_by_partition(read.store, list(read.keys))
        answer = await self._from_partitions(read, by_partition, forwarded)
        if count < 2 or len(answer.rows) >= len(read.keys):
            return answer
        returned = {repr(row["key"]) for row in answer.rows}  # keys may be lists
        elsewhere: dict[int, list[object]] = {}
        for asked, group in by_partition.items():
            missing = [key for key in group if repr(key) not in returned]
            for other in range(count):
                if missing and other != asked:
                    elsewhere.setdefault(other, []).extend(missing)
        rest = await self._from_partitions(read, elsewhere, forwarded)
        return _together([answer, rest])

    async def _from_partitions(self, read: Read, by_partition: dict[int, list[object]], forwarded: bool) -> Answer:
        groups = sorted(by_partition.items())
        parts = (self._one(read._replace(keys=keys, partition=partition), partition, forwarded) for partition, keys in groups)
        return _together(await asyncio.gather(*parts))

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
        store = read.store
        if store in self.discovery.global_stores:
            return await self._here(read, partition, False)
        now, task = self.discovery.placement, self.discovery.task_of(store, partition)
        owner = now.active.get(task, "")
        copies = now.standbys.get(task, ())
        state = now.states.get(task, "running")
        try:
            if state in ("restoring", "starting") and owner != DRIVER:
                raise _taken_over(store, partition)
            if owner == self._place:
                try:
                    return await self._here(read, partition, False)
                except InvalidStateStorePartitionError as error:  # claimed, and its files are not made yet
                    raise _taken_over(store, partition) from error
            if forwarded:
                raise StreamsRebalancingError(
                    f"partition {partition} of store {store!r} is not on this host", hint="ask again: it moves", store=store,
                    partition=partition,
                )  # fmt: skip
            return await self._there(self._server(now.servers, owner, store, partition), read, partition)
        except KStreamsError as error:
            if not read.stale or not getattr(error, "retriable", False):
                raise
            if owner == self._place and task in now.promoted:  # what was its standby copy until it took the task over
                copies = (*copies, owner)
            fallback = await self._from_copy(read, partition, now.servers, copies, forwarded)
            if fallback is None and owner == self._place and isinstance(error, StreamsRebalancingError):
                fallback = await self._from_last_commit(read, partition)
            if fallback is None:
                raise
            return fallback

    async def _from_last_commit(self, read: Read, partition: int) -> Answer | None:
        """Return the answer of the last commit of a task whose worker died here; None while it is restored: then rows are missing."""
        try:
            answer = await self._here(read, partition, True)
        except KStreamsError:
            return None
        within = read.max_lag is None or answer.lag <= read.max_lag
        return replace(answer, stale=True) if answer.position.offsets and within else None

    async def _from_copy(
        self, read: Read, partition: int, servers: Mapping[str, HostInfo], copies: tuple[str, ...], forwarded: bool
    ) -> Answer | None:
        """Return the answer of a standby copy; None if none answers within the allowed lag."""
        for place in sorted(copies, key=lambda place: place != self._place):
            try:
                if place == self._place:
                    answer = await self._here(read, partition, True)
                elif forwarded or place not in servers:
                    continue
                else:
                    answer = await self._there(servers[place], read, partition)
            except KStreamsError:
                continue
            if read.max_lag is None or answer.lag <= read.max_lag:
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
        call = _at_once if read.kind in _INSTANT and len(read.keys) <= _INSTANT_KEYS else asyncio.to_thread
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
        lag = self._local.lag(read.store, partition) if copy else 0
        with_position = read.store in self.discovery.global_stores or any(partition in parts for parts in rows.position.offsets.values())
        following = None if rows.complete else rows.next_of(read, partition)
        return Answer(rows.rows, rows.position, following, copy, lag, (partition,), rows.size, () if with_position else (partition,))

    async def _there(self, host: HostInfo, read: Read, partition: int) -> Answer:
        method, target, body = read._replace(partition=partition).request()
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
            position_from_wire(plain.get("position")),
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


def _together(parts: Sequence[Answer], following: tuple[int, int, object] | None = None) -> Answer:
    """Return the answer that the answers of partitions are, in their order."""
    return Answer(
        [row for part in parts for row in part.rows],
        reduce(Position.merge, (part.position for part in parts), Position()),
        following,
        any(part.stale for part in parts),
        max((part.lag for part in parts), default=0),
        tuple(sorted({number for part in parts for number in part.partitions})),
        sum(part.size for part in parts),
        tuple(sorted({number for part in parts for number in part.unknown})),
    )


async def _at_once(call: Callable[..., object], *arguments: object) -> Any:
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
