"""Clients of query servers, synchronous and asynchronous: `connect` and `connect_async`.

Both use the functions of `client_requests`, which say what to ask of whom; here are the two loops that ask.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Unpack

import httpx

from kstreams_repl.serving.queries.read import Read, ReadOptions
from kstreams_repl.serving.queries.rows import pair, value_of
from kstreams_repl.serving.queries.wire import from_wire
from kstreams_repl.serving.remote.client_requests import (
    FRESH_SECONDS,
    MOST_PAUSE,
    PAUSE_SECONDS,
    STREAM,
    Ask,
    ClientRequests,
    Events,
    RemoteResult,
    may_retry,
    next_read,
    plain_of,
    reads_of_many,
    safe,
    subscription,
    token_of,
    unreachable,
)
from kstreams_repl.serving.remote.remote_errors import error_of
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import AccessDeniedError, KStreamsError, QueryServerError
from kstreams_repl.system.secrets import Secret
from kstreams_repl.system.types import JsonObject


class QueryClient(ClientRequests):
    """A synchronous client. Thread-safe; close it, or use it as a context manager.

    Example:
        >>> with ks.queries.connect("http://127.0.0.1:8081", token=path) as state:     # doctest: +SKIP
        ...     state.get("counts", "UA")
        ValueAndTimestamp(value=58665, timestamp=1388535540000)
    """

    def __init__(self, url: str, token: Secret, *, timeout: float, verify: ssl.SSLContext | bool, trusted: bool = True) -> None:
        super().__init__(url, token, timeout, trusted=trusted)
        self._web = httpx.Client(timeout=timeout, verify=verify, trust_env=False)

    def get(self, store: str, key: object, **options: Unpack[ReadOptions]) -> Any:
        """Return the value of a key, with its time if the store has it (`ValueAndTimestamp`, `VersionedRecord`); None when there is none.

        Args:
            store: name of the store.
            key: the key.
            **options: as `query`.

        Raises:
            UnknownStateStoreError: there is no such store.
            StateStoreNotAvailableError, StreamsRebalancingError: no server answered within the time.

        Example:
            >>> state.get("counts", "UA")     # doctest: +SKIP
            ValueAndTimestamp(value=58665, timestamp=1388535540000)
        """
        options["has_key"] = True
        return self.query("get", store, key, **options).value

    def get_many(self, store: str, keys: Iterable[object], *, stale: bool = False) -> dict[Any, Any]:
        """Return the values of many keys, without those that are absent.

        Args:
            store: name of the store.
            keys: the keys.
            stale: let standby copies answer for owners that do not.

        Example:
            >>> {key: found.value for key, found in state.get_many("counts", ["UA", "AA"]).items()}     # doctest: +SKIP
            {'UA': 58665, 'AA': 32729}
        """
        pages = self.pages_of_many(store, keys, stale=stale)
        return {row["key"]: value_of(row) for page in pages for row in page.rows}

    def pages_of_many(
        self, store: str, keys: Iterable[object], *, stale: bool = False, partition: int | None = None, headers: bool = False
    ) -> list[RemoteResult]:
        """Return the answers of which `get_many` is made.

        Args:
            store, keys, stale: as `get_many`.
            partition: the only one to look in; None: all.
            headers: of a store that keeps headers: with them.

        Example:
            >>> [page.position for page in state.pages_of_many("counts", ["UA", "AA"])]     # doctest: +SKIP
        """
        reads = reads_of_many(store, keys, stale, partition, headers)
        return [self._result(self._ask(lambda turn, read=read: self._route(read, turn))) for read in reads]

    def query(self, kind: str, store: str, key: object = None, **options: Unpack[ReadOptions]) -> RemoteResult:
        """Return one page of an answer, with its position.

        Args:
            kind: get, range, prefix, windows, sessions, versions or count.
            store: name of the store.
            key: the key, with ``has_key=True``.
            **options: low, high, prefix, time_from, time_to, as_of, reverse, partition, limit; position (a `Position` that the answer
                must have reached) and wait (seconds); stale, max_lag; headers (of a store that keeps them).

        Example:
            >>> state.query("range", "counts", low="A", high="B").rows     # doctest: +SKIP
        """
        read = self._read(kind, store, key, **options)
        if read.has_key:
            self._refresh()
        return self._result(self._ask(lambda turn: self._route(read, turn)))

    def rows(self, kind: str, store: str, key: object = None, **options: Unpack[ReadOptions]) -> Iterator[tuple[Any, Any]]:
        """Iterate over all rows of a read, page by page: (key, value), keys of windows and sessions as `Windowed`.

        Args:
            kind, store, key, **options: as `query`.

        Example:
            >>> dict(state.rows("range", "counts"))     # doctest: +SKIP
        """
        read: Read | None = self._read(kind, store, key, **options)
        while read is not None:
            page, read = page_of(self, read)
            yield from map(pair, page.rows)

    def sql(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of one SELECT over the stores.

        Args:
            query: the statement.

        Raises:
            SqlError: it is not one, or it was refused.

        Example:
            >>> state.sql("SELECT count(*) AS n FROM counts")     # doctest: +SKIP
            [{'n': 16}]
        """
        plain = plain_of(self._ask(lambda turn: Ask(self.url, "GET", f"/sql?{httpx.QueryParams({'q': query})}")))
        return [dict(zip(plain["columns"], map(from_wire, row), strict=True)) for row in plain["rows"]]

    def metadata(self) -> JsonObject:
        """Return where each partition of each store is.

        Example:
            >>> state.metadata()["generation"]     # doctest: +SKIP
            1
        """
        plain: JsonObject = plain_of(self._ask(lambda turn: Ask(self.url, "GET", "/metadata")))
        return plain

    def subscribe(self, store: str, *, after: str | None = None, snapshot: bool | None = None) -> Iterator[dict[str, Any]]:
        """Iterate over the events of a store without an end: its rows, then each change as it commits. Reconnects where it was.

        Args:
            store: name of the store.
            after: id of the last event that you have seen; the events after it follow.
            snapshot: begin with the rows; None: unless `after` is given.

        Example:
            >>> for event in state.subscribe("counts"):     # doctest: +SKIP
            ...     print(event["event"], event.get("key"), event.get("value"))
        """
        while True:
            ask = subscription(self.url, store, after, snapshot)
            events = Events()
            try:
                with self._web.stream("GET", ask.base + ask.target, headers=self._headers(ask), timeout=STREAM) as response:
                    if response.status_code != 200:
                        response.read()
                        raise error_of(safe(response), response.status_code)
                    for line in response.iter_lines():
                        event = events.add(line)
                        if event is not None:
                            after, snapshot = event.get("id") or after, False if event.get("id") else snapshot
                            yield event
            except httpx.HTTPError:
                time.sleep(MOST_PAUSE)
            except KStreamsError as error:
                if not may_retry(error):
                    raise
                time.sleep(MOST_PAUSE)

    def close(self) -> None:
        """Close the connections.

        Example:
            >>> state.close()     # doctest: +SKIP
        """
        self._web.close()

    def __enter__(self) -> QueryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refresh(self) -> None:
        if time.monotonic() - self._where.read_at > FRESH_SECONDS:
            asks = [Ask(self.url, "GET", path) for path in ("/metadata", "/state/stores")]
            self._learn(*(plain_of(self._ask(lambda turn, ask=ask: ask)) for ask in asks))

    def _ask(self, of: Any) -> httpx.Response:
        deadline, pause, turn = time.monotonic() + self._timeout, PAUSE_SECONDS, 0
        while True:
            try:
                return self._once(of(turn), self._timeout)
            except KStreamsError as error:
                if not may_retry(error) or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause, turn = min(2 * pause, MOST_PAUSE), turn + 1
            self._where.read_at = -1e9

    def _once(self, ask: Ask, seconds: float) -> httpx.Response:
        headers = self._headers(ask)
        try:
            response = self._web.request(ask.method, ask.base + ask.target, headers=headers, content=ask.body or None, timeout=seconds)
        except httpx.HTTPError as failed:
            raise unreachable(ask.base, failed) from failed
        if response.status_code != 200:
            raise error_of(safe(response), response.status_code)
        return response


def page_of(client: QueryClient, read: Read, *, timeout: float | None = None) -> tuple[RemoteResult, Read | None]:
    """Return one page of an answer, and the read of the next page; None after the last.

    Args:
        timeout: seconds for one attempt, by the first server; None: as often as the client's timeout allows.
    """
    if timeout is None:
        response = client._ask(lambda turn: client._route(read, turn))
    else:
        response = client._once(client._route(read, 1), timeout)
    following = response.json()["next_page"]
    return client._result(response), None if following is None else next_read(read, following)


class AsyncQueryClient(ClientRequests):
    """An asynchronous client; close it, or use it as a context manager. The calls are those of `QueryClient`.

    Example:
        >>> async with ks.queries.connect_async("http://127.0.0.1:8081", token=path) as state:     # doctest: +SKIP
        ...     await state.get("counts", "UA")
    """

    def __init__(self, url: str, token: Secret, *, timeout: float, verify: ssl.SSLContext | bool) -> None:
        super().__init__(url, token, timeout)
        self._web = httpx.AsyncClient(timeout=timeout, verify=verify, trust_env=False)

    async def get(self, store: str, key: object, **options: Unpack[ReadOptions]) -> Any:
        """Return the value of a key; None when there is none.

        Args:
            store, key, **options: as `QueryClient.get`.

        Example:
            >>> await state.get("counts", "UA")     # doctest: +SKIP
        """
        options["has_key"] = True
        return (await self.query("get", store, key, **options)).value

    async def get_many(self, store: str, keys: Iterable[object], *, stale: bool = False) -> dict[Any, Any]:
        """Return the values of many keys, without those that are absent.

        Args:
            store, keys, stale: as `QueryClient.get_many`.

        Example:
            >>> await state.get_many("counts", ["UA", "AA"])     # doctest: +SKIP
        """
        found: dict[Any, Any] = {}
        for read in reads_of_many(store, keys, stale):
            answer = self._result(await self._ask(lambda turn, read=read: self._route(read, turn)))
            found |= {row["key"]: value_of(row) for row in answer.rows}
        return found

    async def query(self, kind: str, store: str, key: object = None, **options: Unpack[ReadOptions]) -> RemoteResult:
        """Return one page of an answer, with its position.

        Args:
            kind, store, key, **options: as `QueryClient.query`.

        Example:
            >>> (await state.query("range", "counts")).rows     # doctest: +SKIP
        """
        read = self._read(kind, store, key, **options)
        if read.has_key and time.monotonic() - self._where.read_at > FRESH_SECONDS:
            asks = [Ask(self.url, "GET", path) for path in ("/metadata", "/state/stores")]
            self._learn(*[plain_of(await self._ask(lambda turn, ask=ask: ask)) for ask in asks])
        return self._result(await self._ask(lambda turn: self._route(read, turn)))

    async def rows(self, kind: str, store: str, key: object = None, **options: Unpack[ReadOptions]) -> AsyncIterator[tuple[Any, Any]]:
        """Iterate over all rows of a read, page by page.

        Args:
            kind, store, key, **options: as `QueryClient.query`.

        Example:
            >>> [row async for row in state.rows("range", "counts")]     # doctest: +SKIP
        """
        read = self._read(kind, store, key, **options)
        while True:
            answer = await self._ask(lambda turn, read=read: self._route(read, turn))
            page = self._result(answer)
            for row in page.rows:
                yield pair(row)
            if page.next is None:
                return
            read = next_read(read, answer.json()["next_page"])

    async def close(self) -> None:
        """Close the connections.

        Example:
            >>> await state.close()     # doctest: +SKIP
        """
        await self._web.aclose()

    async def __aenter__(self) -> AsyncQueryClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, of: Any) -> httpx.Response:
        deadline, pause, turn = time.monotonic() + self._timeout, PAUSE_SECONDS, 0
        while True:
            ask = of(turn)
            try:
                response = await self._web.request(ask.method, ask.base + ask.target, headers=self._headers(ask), content=ask.body or None)
                if response.status_code == 200:
                    return response
                error = error_of(safe(response), response.status_code)
                if not may_retry(error):
                    raise error
            except httpx.HTTPError as failed:
                error = unreachable(ask.base, failed)
            if time.monotonic() + pause > deadline:
                raise error
            await asyncio.sleep(pause)
            pause, turn = min(2 * pause, MOST_PAUSE), turn + 1
            self._where.read_at = -1e9


def connect(
    url: str, *, token: str | os.PathLike[str] | Secret, timeout: Seconds = 30.0, cafile: str | os.PathLike[str] | None = None
) -> QueryClient:
    """Return a client of a query server.

    Args:
        url: of any server of the application.
        token: the token, or the file with the tokens (`Application.query_token_path`).
        timeout: seconds, repetitions included.
        cafile: PEM file with the certificate authority of the servers; None: the system's.

    Raises:
        AccessDeniedError: the server refuses the token.
        QueryServerError: it does not answer.

    Example:
        >>> state = ks.queries.connect("http://127.0.0.1:8081", token=app.query_token_path)     # doctest: +SKIP
    """
    client = QueryClient(url, token_of(token), timeout=as_seconds(timeout, "timeout", above=True), verify=verified_by(cafile))
    try:
        client._refresh()
    except AccessDeniedError:
        client.close()
        raise
    except KStreamsError as error:
        client.close()
        raise QueryServerError(f"no query server answers at {url}: {error.message}", hint="app.serve() starts one") from error
    return client


def connect_async(
    url: str, *, token: str | os.PathLike[str] | Secret, timeout: Seconds = 30.0, cafile: str | os.PathLike[str] | None = None
) -> AsyncQueryClient:
    """Return an asynchronous client of a query server; it connects with its first call.

    Args:
        url, token, timeout, cafile: as `connect`.

    Example:
        >>> state = ks.queries.connect_async("http://127.0.0.1:8081", token=app.query_token_path)     # doctest: +SKIP
    """
    return AsyncQueryClient(url, token_of(token), timeout=as_seconds(timeout, "timeout", above=True), verify=verified_by(cafile))


def verified_by(cafile: str | os.PathLike[str] | None) -> ssl.SSLContext | bool:
    """Return httpx's ``verify`` for servers whose certificate is in a file, or is signed by one of it; None: by the system's."""
    if cafile is None:
        return True
    trusted = ssl.create_default_context()
    trusted.load_verify_locations(os.fspath(cafile))
    trusted.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return trusted
