"""Reads through query servers: every kind of store, pages, positions, two hosts with one hop, standby copies, errors of a dead owner."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import LEASE
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.serving.server.answers import ARROW
from kstreams_repl.system.types import AggregationWithHeaders, ValueTimestampHeaders, Windowed
from tests.unit.serving.serving import Journal, Server

KEYS = [f"key-{number:03}" for number in range(60)]
STORES = (
    ks.Stores.persistent_key_value_store("plain"),
    ks.Stores.persistent_timestamped_key_value_store("stamped"),
    ks.Stores.persistent_window_store("windows", 10_000_000, 10),
    ks.Stores.persistent_session_store("sessions", 10_000_000),
    ks.Stores.persistent_versioned_key_value_store("versions", 1_000_000),
    ks.Stores.persistent_timestamped_key_value_store_with_headers("stamped-h"),
    ks.Stores.persistent_timestamped_window_store_with_headers("windows-h", 10_000_000, 10),
    ks.Stores.persistent_session_store_with_headers("sessions-h", 10_000_000),
)


def fill(partition: int) -> Callable[[Any], None]:
    def put(stores: Any) -> None:
        for number, key in enumerate(KEYS):
            if partition_for_key(key.encode(), 2) == partition:
                stores["plain"].put(key, number)
                stores["stamped"].put(key, (number, 1000 + number))
                for start in (0, 100, 200):
                    stores["windows"].put(key, number + start, start)
                stores["sessions"].put(Windowed(key, 5, 50 + number), number)
                headers = [("number", b"%d" % number), ("raw", b"\xff")] if number % 2 else []
                stores["stamped-h"].put(key, ValueTimestampHeaders(number, 1000 + number, headers))
                stores["windows-h"].put(key, ValueTimestampHeaders(number, 7, headers), 100)
                stores["sessions-h"].put(Windowed(key, 5, 50 + number), AggregationWithHeaders(number, headers))
                stores["versions"].put(key, number, 1000)
                stores["versions"].put(key, number + 1, 2000)

    return put


class Hosts:
    """Hosts ``a`` (partition 0) and ``b`` (partition 1, and a standby copy of partition 0)."""

    def __init__(self, state: Any) -> None:
        state.write(0, fill(0), offset=11, executor="a")
        state.write(1, fill(1), offset=21, executor="b")
        self.web = httpx.Client(trust_env=False, timeout=20)
        self.state = state
        self.journal = Journal().assign({"0": ("0_0",), "1": ("0_1",)}, standbys={"1": ("0_0",)}).claim(0, "a").claim(1, "b")
        self.servers = {place: Server(state, self.journal, place, ends=40).start() for place in "ab"}
        for place, server in self.servers.items():
            self.journal.serve(place, server.port)

    def get(self, place: str, path: str, **options: Any) -> httpx.Response:
        server = self.servers[place]
        headers = {**server.headers, **options.pop("headers", {})}
        return self.web.get(server.url + path, headers=headers, **options)

    def rows(self, place: str, path: str, **params: Any) -> list[dict[str, Any]]:
        found = []
        while True:
            answer = self.get(place, path, params=params)
            assert answer.status_code == 200, answer.text
            found += answer.json()["rows"]
            if answer.json()["next"] is None:
                return found
            params["page"] = answer.json()["next"]


@pytest.fixture
def hosts(state: Callable[..., Any]) -> Iterator[Hosts]:
    made = Hosts(state(*STORES))
    yield made
    made.web.close()
    for server in made.servers.values():
        server.stop()


def test_every_key_of_every_store_is_answered_by_either_server(hosts: Hosts) -> None:
    for place in "ab":
        for number, key in enumerate(KEYS):
            one = hosts.get(place, f"/state/stores/plain/{key}").json()
            partition = partition_for_key(key.encode(), 2)
            assert (one["value"], one["found"], one["partitions"], one["stale"]) == (number, True, [partition], False)
            assert one["position"] == {"in": {str(partition): (10, 20)[partition]}}
        number, key = 7, KEYS[7]
        assert hosts.rows(place, f"/state/stores/stamped/{key}") == [{"key": key, "value": number, "timestamp": 1007}]
        assert [row["window_start"] for row in hosts.rows(place, f"/state/windows/windows/{key}")] == [0, 100, 200]
        back = hosts.rows(place, f"/state/windows/windows/{key}", reverse="true", to=100, **{"from": 1})
        assert back == [{"key": key, "window_start": 100, "window_end": 110, "value": number + 100}]
        assert hosts.rows(place, f"/state/sessions/sessions/{key}") == [{"key": key, "window_start": 5, "window_end": 57, "value": number}]
        assert hosts.get(place, f"/state/stores/versions/{key}").json()["value"] == number + 1
        assert hosts.get(place, f"/state/stores/versions/{key}", params={"as_of": 1500}).json()["value"] == number
        assert [row["value"] for row in hosts.rows(place, f"/state/versions/versions/{key}")] == [number, number + 1]
        assert hosts.get(place, "/state/stores/plain/none").json()["found"] is False
        for store, count in (("plain", 60), ("stamped", 60), ("windows", 180), ("sessions", 60), ("versions", 60)):
            assert hosts.get(place, f"/state/count/{store}").json()["count"] == count
    for place, server in hosts.servers.items():
        assert server.router.hops > 0 and f"\nkstreams_query_hops_total {server.router.hops:.1f}\n" in hosts.get(place, "/metrics").text


def test_headers_are_sent_where_they_are_asked_for_and_kept(hosts: Hosts) -> None:
    row = {"key": KEYS[7], "value": 7, "timestamp": 1007}
    headers = [{"$tuple": ["number", {"$bytes": "Nw=="}]}, {"$tuple": ["raw", {"$bytes": "/w=="}]}]
    for place in "ab":
        assert hosts.rows(place, f"/state/stores/stamped-h/{KEYS[7]}") == [row]
        assert hosts.rows(place, f"/state/stores/stamped-h/{KEYS[7]}", headers="true") == [row | {"headers": headers}]
        server = hosts.servers[place]
        many = {"keys": [KEYS[8], KEYS[7]], "headers": True}
        rows = hosts.web.post(f"{server.url}/state/stores/stamped-h", json=many, headers=server.headers).json()["rows"]
        assert {found["key"]: found["headers"] for found in rows} == {KEYS[8]: [], KEYS[7]: headers}
        answer = hosts.get(place, f"/state/stores/stamped/{KEYS[7]}", params={"headers": "true"})
        assert (answer.status_code, answer.json()["message"]) == (400, "store 'stamped' keeps no headers")


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_pages_have_every_row_once_in_order_of_partitions(hosts: Hosts, limit: int) -> None:
    for place in "ab":
        rows = hosts.rows(place, "/state/range/plain", limit=limit)
        by_partition = [[key for key in KEYS if partition_for_key(key.encode(), 2) == number] for number in (0, 1)]
        assert [row["key"] for row in rows] == by_partition[0] + by_partition[1]
        back = hosts.rows(place, "/state/range/plain", limit=limit, reverse="true", **{"from": "key-010", "to": "key-029"})
        wanted = [[key for key in reversed(keys) if "key-010" <= key <= "key-029"] for keys in by_partition]
        assert [row["key"] for row in back] == wanted[0] + wanted[1]
    assert len(hosts.rows("a", "/state/windows/windows", limit=limit * 10)) == 180
    assert len(hosts.rows("b", "/state/prefix/plain", limit=limit, prefix="key-01")) == 10


def test_many_keys_at_once_and_arrow(hosts: Hosts) -> None:
    server = hosts.servers["a"]
    answer = hosts.web.post(f"{server.url}/state/stores/plain", headers=server.headers, json={"keys": [*KEYS, "none"]}).json()
    assert {row["key"]: row["value"] for row in answer["rows"]} == {key: number for number, key in enumerate(KEYS)}
    assert answer["position"] == {"in": {"0": 10, "1": 20}}
    shown = hosts.get("a", "/state/range/stamped", headers={"Accept": ARROW})
    table = pa.ipc.open_stream(shown.content).read_all()
    assert table.column_names == ["key", "value", "timestamp"] and table.num_rows == 60
    assert json.loads(table.schema.metadata[b"kstreams"])["position"] == {"in": {"0": 10, "1": 20}}


def test_many_keys_of_an_input_with_a_partitioner_of_its_own(hosts: Hosts) -> None:
    at = {key: 1 - partition_for_key(key.encode(), 2) for key in (f"odd-{number}" for number in range(8))}

    def put(stores: Any, here: int) -> None:
        for key in at:
            if at[key] == here:
                stores["plain"].put(key, 7)

    for partition, owner in ((0, "a"), (1, "b")):
        hosts.state.write(partition, lambda stores, here=partition: put(stores, here), offset=30, executor=owner)
    assert set(at.values()) == {0, 1}
    for server in hosts.servers.values():

        def rows(server: Server = server, **content: Any) -> list[str]:
            answer = hosts.web.post(f"{server.url}/state/stores/plain", headers=server.headers, json=content)
            assert answer.status_code == 200, answer.text
            return sorted(row["key"] for row in answer.json()["rows"])

        assert rows(keys=[*at, KEYS[0], "none"]) == [KEYS[0], *at]
        assert rows(keys=[*at, KEYS[0], "none"], partition=0) == sorted(
            [key for key in at if at[key] == 0] + [KEYS[0]] * (partition_for_key(KEYS[0].encode(), 2) == 0)
        )
        wrong = hosts.web.post(f"{server.url}/state/stores/plain", headers=server.headers, json={"keys": ["a"], "partition": 2})
        assert wrong.status_code == 404 and wrong.json()["error"] == "InvalidStateStorePartitionError"


def test_an_answer_names_the_partitions_whose_position_it_does_not_know(state: Callable[..., Any]) -> None:
    made = state(*STORES)
    made.write(0, fill(0), offset=11, executor="a")
    made.write(1, fill(1), offset=0, executor="b")  # taken over: its rows are there, and no commit with an input yet
    journal = Journal().assign({"0": ("0_0",), "1": ("0_1",)}).claim(0, "a").claim(1, "b")
    servers = {place: Server(made, journal, place).start() for place in "ab"}
    try:
        for place, server in servers.items():
            journal.serve(place, server.port)
        with httpx.Client(trust_env=False, timeout=20) as web:
            for server in servers.values():
                by_partition = [server.url + f"/state/range/plain?partition={number}" for number in (0, 1)]
                answers = [web.get(url, headers=server.headers).json() for url in (*by_partition, server.url + "/state/range/plain")]
                answers.append(web.post(server.url + "/state/stores/plain", headers=server.headers, json={"keys": KEYS}).json())
                assert [answer["position_unknown"] for answer in answers] == [[], [1], [1], [1]]
                assert [answer["position"] for answer in answers] == [{"in": {"0": 10}}, {}, {"in": {"0": 10}}, {"in": {"0": 10}}]
    finally:
        for server in servers.values():
            server.stop()


def test_a_position_that_is_not_reached_is_an_error_or_waited_for(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 1)
    reached = {"position": '{"in": {"1": 20}}'}
    beyond = {"position": '{"in": {"1": 21}}', "wait": "0.05"}
    for place in "ab":
        assert hosts.get(place, f"/state/stores/plain/{key}", params=reached).status_code == 200
        answer = hosts.get(place, f"/state/stores/plain/{key}", params=beyond)
        assert answer.status_code == 412 and answer.json()["retriable"] and "NOT_UP_TO_BOUND" in answer.json()["message"], answer.text
        assert answer.json()["fields"]["position"] == '{"in":{"1":20}}'


def test_a_dead_owner_is_a_typed_error_then_the_new_owner_answers(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 0)
    path = f"/state/stores/plain/{key}"
    hosts.servers["a"].stop()
    answer = hosts.get("b", path)
    assert answer.status_code == 503 and answer.headers["Retry-After"] == "1" and answer.json()["retriable"] is True
    assert answer.json()["error"] == "StateStoreNotAvailableError"
    hosts.state.write(0, fill(0), offset=12, executor="b")
    hosts.journal.claim(0, "b", epoch=1)
    assert hosts.get("b", path).json()["position"] == {"in": {"0": 11}}


def test_a_standby_copy_answers_when_staleness_is_allowed_and_says_how_stale(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 0)
    path = f"/state/stores/plain/{key}"
    hosts.state.write(0, fill(0), offset=9, executor="b").close()
    assert hosts.get("b", path, params={"stale": "true"}).json()["stale"] is False  # its owner answers
    hosts.servers["a"].stop()
    assert hosts.get("b", path).status_code == 503
    answer = hosts.get("b", path, params={"stale": "true"}).json()
    assert answer["stale"] is True and answer["lag"] == 40 and answer["value"] == KEYS.index(key)
    assert hosts.get("b", path, params={"stale": "true", "max_lag": 39}).status_code == 503


def test_the_last_commit_of_a_dead_worker_answers_when_staleness_is_allowed(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 1)  # without a standby copy
    path = f"/state/stores/plain/{key}"
    control = control_directory(hosts.state.root, "queried")
    control.mkdir(parents=True)
    (control / LEASE).write_text(json.dumps({"generation": 1, "signal": str(Signal.RUN)}))
    environment = hosts.state.write(1, fill(1), offset=31, executor="b", token="1/1/0/0/x", closes=False)  # no process has the id 0
    for place in "ab":
        answer = hosts.get(place, path)
        assert answer.status_code == 503 and "its worker died" in answer.json()["message"] and answer.json()["retriable"], answer.text
        stale = hosts.get(place, path, params={"stale": "true"}).json()
        assert stale["stale"] is True and stale["value"] == KEYS.index(key) and stale["position"] == {"in": {"1": 30}}, stale
        assert hosts.get(place, path, params={"stale": "true", "max_lag": 39}).status_code == 503  # 40 records behind
        beyond = {"stale": "true", "position": '{"in": {"1": 31}}'}
        assert hosts.get(place, path, params=beyond).status_code == 503
    environment.close()


def test_while_a_task_is_taken_over_its_host_says_so_or_answers_from_its_copy(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 0)
    path = f"/state/stores/plain/{key}"
    hosts.journal.claim(0, "b", epoch=1)  # b has no files of the task yet
    for place in "ab":
        answer = hosts.get(place, path)
        assert answer.status_code == 503 and answer.json()["error"] == "StreamsRebalancingError" and answer.json()["retriable"], answer.text
    hosts.state.write(0, fill(0), offset=-1, executor="b")  # a copy, without a commit of the task
    for place in "ab":
        assert hosts.get(place, path).status_code == 503
        answer = hosts.get(place, path, params={"stale": "true"}).json()
        assert answer["stale"] is True and answer["lag"] == 40 and answer["value"] == KEYS.index(key), answer


def test_a_forwarded_request_makes_no_second_hop(hosts: Hosts) -> None:
    key = next(key for key in KEYS if partition_for_key(key.encode(), 2) == 0)
    before = hosts.servers["b"].router.hops
    answer = hosts.get("b", f"/state/stores/plain/{key}", headers={"KStreams-Hop": "1"})
    assert answer.status_code == 503 and answer.json()["error"] == "StreamsRebalancingError"
    assert hosts.servers["b"].router.hops == before


def test_metadata_names_the_host_of_each_key(hosts: Hosts) -> None:
    ports = {place: server.port for place, server in hosts.servers.items()}
    everything = hosts.get("a", "/metadata").json()
    assert {instance["place"]: instance["port"] for instance in everything["instances"]} == ports
    for key in KEYS[:10]:
        partition = partition_for_key(key.encode(), 2)
        one = hosts.get("b", f"/state/instance/plain/{key}").json()
        assert one["partition"] == partition and one["active"].endswith(f":{ports['ab'[partition]]}")
        assert everything["stores"]["plain"][str(partition)] == one
    assert len(hosts.get("a", "/state/instances/plain").json()["instances"]) == 2
