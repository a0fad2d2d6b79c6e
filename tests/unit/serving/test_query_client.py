"""The client: every read over two hosts, owners asked at once, retries when an owner dies, the token only where it may go."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.system.errors import (
    AccessDeniedError,
    ConfigError,
    QueryServerError,
    StateStoreNotAvailableError,
    UnknownStateStoreError,
)
from kstreams_repl.system.types import Windowed
from tests.unit.serving.test_server_reads import KEYS, STORES, Hosts, fill


@pytest.fixture
def hosts(state: Callable[..., Any]) -> Iterator[Hosts]:
    made = Hosts(state(*STORES))
    yield made
    made.web.close()
    for server in made.servers.values():
        server.stop()


def client(hosts: Hosts, place: str = "a", **options: Any) -> ks.queries.QueryClient:
    server = hosts.servers[place]
    return ks.queries.connect(server.url, token=server.tokens.view, **options)


def test_values_are_those_of_local_reads(hosts: Hosts) -> None:
    with client(hosts) as state:
        for number, key in enumerate(KEYS):
            assert state.get("plain", key) == number
        assert state.get("plain", "none") is None
        assert state.get("stamped", KEYS[3]) == ks.ValueAndTimestamp(3, 1003)
        assert state.get("versions", KEYS[3]) == ks.types.VersionedRecord(4, 2000)
        assert state.get("versions", KEYS[3], as_of=1500).value == 3
        assert state.get_many("plain", KEYS) == {key: number for number, key in enumerate(KEYS)}
        assert dict(state.rows("range", "plain", limit=7)) == {key: number for number, key in enumerate(KEYS)}
        windows = list(state.rows("windows", "windows", KEYS[0], has_key=True))
        assert windows == [(Windowed(KEYS[0], start, start + 10), start) for start in (0, 100, 200)]
        answer = state.query("get", "plain", KEYS[0], has_key=True)
        assert state.query("get", "plain", KEYS[0], has_key=True, position=answer.position).value == 0
        assert state.metadata()["application"] == "queried"
        with pytest.raises(UnknownStateStoreError, match="no store 'plane'"):
            state.get("plane", "x")


def test_the_owner_is_asked_at_once(hosts: Hosts) -> None:
    with client(hosts) as state:
        before = [server.router.hops for server in hosts.servers.values()]
        for key in KEYS:
            state.get("plain", key)
        assert [server.router.hops for server in hosts.servers.values()] == before  # no server asked another
    assert "Bearer" not in repr(state) and hosts.servers["a"].tokens.view.reveal() not in repr(state)


def test_a_read_is_repeated_until_the_new_owner_answers(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 0)
    with client(hosts, "b", timeout=10) as state:
        assert state.get("plain", key) == KEYS.index(key)
        hosts.servers["a"].stop()

        def take_over() -> None:
            time.sleep(0.7)
            hosts.state.write(0, fill(0), offset=12, executor="b")
            hosts.journal.claim(0, "b", epoch=1)

        mover = threading.Thread(target=take_over)
        mover.start()
        answer = state.query("get", "plain", key, has_key=True)
        mover.join()
        assert answer.value == KEYS.index(key) and answer.position.offsets == {"in": {0: 11}} and not answer.stale


@pytest.mark.slow
def test_without_an_owner_the_error_is_typed_and_in_time(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 0)
    with client(hosts, "b", timeout=3) as state:
        hosts.servers["a"].stop()
        began = time.monotonic()
        with pytest.raises(StateStoreNotAvailableError):
            state.get("plain", key)
        assert time.monotonic() - began < 20, "the default is 30"
        hosts.state.write(0, fill(0), offset=9, executor="b")
        answer = state.query("get", "plain", key, has_key=True, stale=True)
        assert answer.stale and answer.lag == 40 and answer.value == KEYS.index(key)


def test_the_asynchronous_client_reads_the_same(hosts: Hosts) -> None:
    server = hosts.servers["b"]

    async def read() -> list[Any]:
        async with ks.queries.connect_async(server.url, token=server.tokens.view) as state:
            values = await asyncio.gather(*(state.get("plain", key) for key in KEYS))
            rows = [row async for row in state.rows("range", "plain", limit=9)]
            return [values, len(rows), await state.get_many("plain", KEYS[:3])]

    assert asyncio.run(read()) == [list(range(60)), 60, dict(zip(KEYS[:3], range(3), strict=True))]


def test_wrong_tokens_addresses_and_files_are_typed_errors(hosts: Hosts, tmp_path: Any) -> None:
    url = hosts.servers["a"].url
    with pytest.raises(AccessDeniedError):
        ks.queries.connect(url, token="wrong")
    with pytest.raises(ConfigError, match="expected the URL"):
        ks.queries.connect("ftp://x", token="t")
    with pytest.raises(ConfigError, match="token cannot be read"):
        ks.queries.connect(url, token=tmp_path / "none.json")
    with pytest.raises(QueryServerError, match="no query server answers"):
        ks.queries.connect("http://127.0.0.1:1", token="t", timeout=0.2)
