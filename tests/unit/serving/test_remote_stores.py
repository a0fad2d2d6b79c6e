"""Typed handles and requests by query servers: two hosts, each read as it is on one host that has both partitions; errors; no servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.serving.local.queryable_state import QueryableState
from kstreams_repl.serving.remote import client as serving_client
from kstreams_repl.serving.remote.remote_state import RemoteState
from kstreams_repl.serving.remote.remote_stores import RemoteStores
from kstreams_repl.system.errors import CallError, InvalidStateStoreError, StateStoreNotAvailableError, UnknownStateStoreError
from tests.unit.serving.test_server_reads import KEYS, STORES, Hosts, fill

TYPES = ks.queries.QueryableStoreTypes
KEY = KEYS[7]
OTHER = next(key for key in KEYS if partition_for_key(key.encode(), 2) != partition_for_key(KEY.encode(), 2))
LOW, HIGH = KEYS[10], KEYS[29]
KEY_VALUE: list[tuple[str, tuple[Any, ...]]] = [
    ("get", (KEY,)), ("get", (OTHER,)), ("get", ("none",)), ("get_many", ([*KEYS[:5], "none"],)), ("range", (LOW, HIGH)), ("range", ()),
    ("reverse_range", (None, HIGH)), ("all", ()), ("reverse_all", ()), ("prefix_scan", ("key-01",)), ("prefix_scan", ("key-02", "string")),
    ("approximate_num_entries", ()),
]  # fmt: skip
WINDOWS: list[tuple[str, tuple[Any, ...]]] = [
    ("fetch", (KEY, 100)), ("fetch", (KEY, 101)), ("fetch", (KEY, 1, 200)), ("fetch", ("none", 0, 200)), ("backward_fetch", (KEY, 0, 100)),
    ("fetch_range", (LOW, HIGH, 50, 150)), ("backward_fetch_range", (LOW, None, 0, 100)), ("fetch_all", (100, 200)),
    ("backward_fetch_all", (0, 100)), ("all", ()), ("backward_all", ()),
]  # fmt: skip
SESSIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("fetch", (KEY,)), ("fetch", ("none",)), ("backward_fetch", (KEY,)), ("fetch_range", (LOW, HIGH)), ("fetch_range", ()),
    ("backward_fetch_range", (LOW, HIGH)), ("fetch_session", (KEY, 5, 57)), ("fetch_session", (KEY, 5, 58)),
    ("find_sessions", (KEY, 57, 5)), ("find_sessions", (KEY, 58, 5)),
    ("backward_find_sessions", (KEY, 0, 100)), ("find_sessions_range", (LOW, HIGH, 70, 10)),
    ("backward_find_sessions_range", (None, None, 70, 10)),
]  # fmt: skip
VERSIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("get", (KEY,)), ("get", (KEY, 1500)), ("get", (KEY, 10)), ("versions", (KEY, 0, 5000)), ("versions", (KEY, 0, 5000, False)),
    ("range", (LOW, HIGH, 1500)), ("range", (LOW,)), ("all", ()),
]  # fmt: skip
CASES = {
    ("plain", TYPES.key_value_store): KEY_VALUE,
    ("stamped", TYPES.key_value_store): KEY_VALUE,
    ("stamped", TYPES.timestamped_key_value_store): KEY_VALUE,
    ("windows", TYPES.window_store): WINDOWS,
    ("sessions", TYPES.session_store): SESSIONS,
    ("versions", TYPES.versioned_key_value_store): VERSIONS,
    ("stamped-h", TYPES.timestamped_key_value_store): KEY_VALUE,
    ("stamped-h", TYPES.timestamped_key_value_store_with_headers): KEY_VALUE,
    ("windows-h", TYPES.timestamped_window_store_with_headers): WINDOWS,
    ("sessions-h", TYPES.session_store_with_headers): SESSIONS,
}


class Both:
    """The same rows by two servers (`remote`), and in the files of one host (`local`)."""

    def __init__(self, state: Any, client: ks.queries.QueryClient) -> None:
        self.local = QueryableState(state.local)
        self.client = client
        self.remote = RemoteState(RemoteStores(state.local, lambda read: read(client)))


@pytest.fixture
def hosts(state: Callable[..., Any]) -> Iterator[Hosts]:
    made = Hosts(state(*STORES))
    yield made
    made.web.close()
    for server in made.servers.values():
        server.stop()


@pytest.fixture
def both(hosts: Hosts) -> Iterator[Both]:
    server = hosts.servers["a"]
    with ks.queries.connect(server.url, token=server.tokens.view) as client:
        yield Both(hosts.state, client)


def read_all(found: Any) -> Any:
    if not isinstance(found, Iterator):
        return found
    return list(found)


@pytest.mark.parametrize(("store", "kind"), CASES, ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_each_read_of_a_typed_handle_is_that_of_one_host(both: Both, store: str, kind: Any) -> None:
    here, there = both.local.store(store, kind()), both.remote.store(store, kind())
    seen = []
    for name, arguments in CASES[store, kind]:
        expected, found = (read_all(getattr(handle, name)(*arguments)) for handle in (here, there))
        assert found == expected, (name, arguments)
        seen.append(expected)
    assert any(isinstance(each, list) and len(each) > 15 for each in seen)


def test_rows_come_in_pages_and_the_key_of_the_next_is_known(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    page_of = serving_client.page_of
    monkeypatch.setattr(serving_client, "page_of", lambda of, read, **more: asked.append(read) or page_of(of, read, **more))
    store = both.remote.store("windows", TYPES.window_store())
    monkeypatch.setattr("kstreams_repl.serving.remote.remote_stores.PAGE_ROWS", 50)
    with store.all() as rows:
        first = rows.peek_next_key()
        assert first == next(rows)[0] and len(asked) == 1
        assert len(list(rows)) == 179
    assert len(asked) > 3


@pytest.mark.parametrize(
    ("store", "query"),
    [
        ("plain", ks.queries.KeyQuery.with_key(KEY)),
        ("stamped", ks.queries.KeyQuery.with_key(KEY)),
        ("stamped", ks.queries.TimestampedKeyQuery.with_key(KEY)),
        ("plain", ks.queries.TimestampedKeyQuery.with_key(KEY)),
        ("plain", ks.queries.RangeQuery.with_range(LOW, HIGH).with_descending_keys()),
        ("stamped", ks.queries.TimestampedRangeQuery.with_range(LOW, HIGH)),
        ("windows", ks.queries.WindowKeyQuery.with_key_and_window_start_range(KEY, 0, 100)),
        ("windows", ks.queries.WindowRangeQuery.with_window_start_range(50, 150)),
        ("sessions", ks.queries.WindowRangeQuery.with_key(KEY)),
        ("sessions", ks.queries.WindowRangeQuery.with_window_start_range(50, 150)),
        ("versions", ks.queries.VersionedKeyQuery.with_key(KEY).as_of(1500)),
        ("versions", ks.queries.MultiVersionedKeyQuery.with_key(KEY)),
        ("versions", ks.queries.VersionedRangeQuery.with_range(LOW, HIGH).as_of(1500)),
        ("versions", ks.queries.KeyQuery.with_key(KEY)),
        ("plain", ks.queries.KeysQuery.with_keys([*KEYS[:9], "none"])),
        ("stamped-h", ks.queries.TimestampedKeyWithHeadersQuery.with_key(KEY)),
        ("stamped-h", ks.queries.TimestampedKeyWithHeadersQuery.with_key("none")),
        ("stamped", ks.queries.TimestampedKeyWithHeadersQuery.with_key(KEY)),
        ("stamped-h", ks.queries.TimestampedRangeWithHeadersQuery.with_range(LOW, HIGH)),
        ("windows-h", ks.queries.TimestampedWindowKeyWithHeadersQuery.with_key_and_window_start_range(KEY, 0, 100)),
        ("windows-h", ks.queries.TimestampedWindowRangeWithHeadersQuery.with_window_start_range(50, 150)),
        ("sessions-h", ks.queries.TimestampedWindowRangeWithHeadersQuery.with_key(KEY)),
    ],
    ids=repr,
)
def test_each_query_is_answered_by_partition_with_its_position(both: Both, store: str, query: Any) -> None:
    request = ks.queries.StateQueryRequest.in_store(store).with_query(query)
    with both.local.query(request) as here, both.remote.query(request.require_active()) as there:
        assert set(there.partition_results) == {0, 1}
        for partition, expected in here.partition_results.items():
            found = there.partition_results[partition]
            assert found.failure_reason == expected.failure_reason, found.failure_message
            if expected.is_success:
                assert read_all(found.result) == read_all(expected.result)
                assert found.position == expected.position


class Largest(ks.queries.Query):
    def run(self, store: Any) -> Any:
        return max(value for _, value in store.all())


def test_a_query_and_a_type_of_the_users_own_read_the_parts(both: Both) -> None:
    request = ks.queries.StateQueryRequest.in_store("plain").with_query(Largest())
    with both.local.query(request) as here, both.remote.query(request) as there:
        expected, found = ({at: one.result for at, one in answers.partition_results.items()} for answers in (here, there))
        assert found == expected and set(found) == {0, 1}

    class Sum:
        def accepts(self, store: Any) -> bool:
            return True

        def create(self, provider: Any, name: str) -> int:
            return sum(value for part in provider.stores(name, self) for _, value in part.all())

    assert both.remote.store("plain", Sum()) == sum(range(60))
    assert both.remote.store(ks.queries.StoreQueryParameters("plain", TYPES.key_value_store(), partition=1)).get(KEY) == (
        7 if partition_for_key(KEY.encode(), 2) == 1 else None
    )


def test_bounds_and_partitions_that_cannot_answer_are_failures(both: Both, hosts: Hosts) -> None:
    request = ks.queries.StateQueryRequest.in_store("plain").with_query(ks.queries.KeyQuery.with_key(KEY))
    bound = request.with_position_bound(ks.queries.PositionBound.at(ks.queries.Position({"in": {0: 10, 1: 21}})))
    with both.remote.query(bound) as answers:
        assert answers.partition_results[0].is_success
        behind = answers.partition_results[1]
        assert behind.failure_reason is ks.queries.FailureReason.NOT_UP_TO_BOUND and behind.position == ks.queries.Position({"in": {1: 20}})
    keys = ks.queries.StateQueryRequest.in_store("plain").with_query(ks.queries.KeysQuery.with_keys(KEYS))
    with both.remote.query(keys.with_position_bound(ks.queries.PositionBound.at(ks.queries.Position({"in": {1: 21}})))) as answers:
        assert answers.partition_results[1].failure_reason is ks.queries.FailureReason.NOT_UP_TO_BOUND
    with both.remote.query(request.with_partitions([1, 7])) as answers:
        assert answers.partition_results[7].failure_reason is ks.queries.FailureReason.DOES_NOT_EXIST
    hosts.servers["b"].stop()
    with both.remote.query(request.require_active()) as answers:
        assert answers.partition_results[0].is_success
        assert answers.partition_results[1].failure_reason is ks.queries.FailureReason.NOT_PRESENT
        assert answers.partition_results[1].failure_reason.retriable


def test_a_standby_copy_answers_requests_and_stale_handles_only(state: Callable[..., Any]) -> None:
    hosts = Hosts(state(*STORES))
    server = hosts.servers["b"]
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 0)
    try:
        hosts.state.write(0, fill(0), offset=9, executor="b")
        hosts.servers["a"].stop()
        with ks.queries.connect(server.url, token=server.tokens.view, timeout=3) as client:
            remote = RemoteState(RemoteStores(hosts.state.local, lambda read: read(client)))
            request = ks.queries.StateQueryRequest.in_store("plain").with_query(ks.queries.KeyQuery.with_key(key)).with_partitions([0])
            assert remote.query(request).partition_results[0].result == KEYS.index(key)
            assert remote.query(request.require_active()).partition_results[0].is_failure
            stale = ks.queries.StoreQueryParameters("plain", TYPES.key_value_store(), stale_stores=True)
            assert remote.store(stale).get(key) == KEYS.index(key)
            with pytest.raises(StateStoreNotAvailableError):
                remote.store("plain", TYPES.key_value_store()).get(key)
    finally:
        hosts.web.close()
        for one in hosts.servers.values():
            one.stop()


def test_what_a_handle_refuses(both: Both) -> None:
    with pytest.raises(UnknownStateStoreError):
        both.remote.store("plane", TYPES.key_value_store())
    with pytest.raises(InvalidStateStoreError, match="does not accept"):
        both.remote.store("plain", TYPES.window_store())
    with pytest.raises(CallError, match="expected the type"):
        both.remote.store("plain")
    with pytest.raises(CallError, match="must be text"):
        both.remote.store("plain", TYPES.key_value_store()).prefix_scan(b"\xff", "bytes")
