"""The catalogue of stores: queries without the application's topology give the same answers, and say what they do not know."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import kstreams_repl as ks
from kstreams_repl.host.instance.store_catalogue import catalogue_path, read_catalogue, write_catalogue
from kstreams_repl.serving.local.queryable_state import QueryableState, open_state
from kstreams_repl.system.errors import ConfigError, StateStoreNotAvailableError, StreamsNotStartedError, UnknownStateStoreError
from kstreams_repl.system.types import Windowed
from tests.queried import APPLICATION
from tests.unit.serving.serving import Journal, Server

POINT = ks.serdes.Serde(lambda pair: b"%d,%d" % pair, lambda data: tuple(map(int, data.split(b","))), name="string")
"""A serde of a user's, with the name of another one."""
KEY_VALUE = ks.queries.QueryableStoreTypes.key_value_store()


@pytest.fixture
def written(state: Callable[..., Any], tmp_path: Path) -> Any:
    made = state(
        ks.Stores.persistent_key_value_store("plain"),
        ks.StoreBuilder("lists", ks.StoreKind.KEY_VALUE, value_serde=ks.serdes.list_of("long")),
        ks.StoreBuilder("points", ks.StoreKind.KEY_VALUE, value_serde=POINT),
        ks.Stores.persistent_window_store("windows", 10_000, 10),
        ks.Stores.persistent_versioned_key_value_store("versions", 1_000_000),
        ks.Stores.in_memory_key_value_store("memory"),
    )

    def fill(stores: Any) -> None:
        stores["plain"].put("a", 1)
        stores["lists"].put("a", [1, None, 3])
        stores["points"].put("a", (4, 5))
        stores["windows"].put("a", 7, 20)
        stores["versions"].put("a", 8, 1000)

    made.write(0, fill, offset=12)
    write_catalogue(made.root, APPLICATION, made.topology, made.config)
    return made


@pytest.fixture
def opened(written: Any) -> Iterator[QueryableState]:
    with open_state(APPLICATION, written.root) as state:
        yield state


def test_reads_without_the_topology_are_those_with_it(written: Any, opened: QueryableState) -> None:
    for state in (written.queries, opened):
        assert state.store("plain", KEY_VALUE).get("a") == 1
        assert state.store("lists", KEY_VALUE).get("a") == [1, None, 3]
        with state.store("windows", ks.queries.QueryableStoreTypes.window_store()).all() as rows:
            assert list(rows) == [(Windowed("a", 20, 30), 7)]
        assert state.store("versions", ks.queries.QueryableStoreTypes.versioned_key_value_store()).get("a").value == 8
        request = ks.queries.StateQueryRequest.in_store("plain").with_query(ks.queries.KeyQuery.with_key("a"))
        answer = state.query(request).only_partition_result
        assert answer.result == 1 and answer.position.offsets == {"in": {0: 11}}
        with pytest.raises(UnknownStateStoreError, match="no store 'plane'"):
            state.store("plane", KEY_VALUE)
        with pytest.raises(StateStoreNotAvailableError, match="kept in memory"):
            state.store("memory", KEY_VALUE)


def test_a_serde_without_a_name_is_read_as_bytes_with_a_note(written: Any, opened: QueryableState) -> None:
    assert written.queries.store("points", KEY_VALUE).get("a") == (4, 5) and not written.queries.notes
    assert opened.store("points", KEY_VALUE).get("a") == b"4,5"
    assert opened.notes == ["points: the serde of the value has no name that can be looked up: bytes"]


def test_a_missing_or_damaged_catalogue_is_a_typed_error(written: Any, tmp_path: Path) -> None:
    with pytest.raises(StreamsNotStartedError, match="no catalogue"):
        open_state("other", written.root)
    path = catalogue_path(written.root, APPLICATION)
    whole = json.loads(path.read_text())
    for damaged in ({}, {**whole, "parts": [{"id": 0}]}, {**whole, "parts": [{**whole["parts"][0], "stores": [{"name": "x"}]}]}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(ConfigError, match="cannot be read"):
            open_state(APPLICATION, written.root)


def test_the_catalogue_has_the_real_names_of_topics_and_the_global_stores(tmp_path: Path) -> None:
    builder = ks.StreamsBuilder()
    builder.global_table("codes", key_serde="string", value_serde="string", store="names")
    words = builder.stream("words", key_serde="string", value_serde="string")
    words.group_by(lambda key, value: value, name="by-word", key_serde="string", value_serde="string").count(store="counts")
    topology, config = builder.build(), ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    write_catalogue(tmp_path, "app", topology, config)
    catalogue, _ = read_catalogue(tmp_path, "app")
    parts = {part.id: part for part in catalogue.subtopologies()}
    assert set(parts) == {part.id for part in topology.subtopologies()}
    counts = next(part for part in parts.values() if "counts" in [store.name for store in part.stores])
    assert counts.source_topics == ("app-by-word-repartition",) and set(catalogue.stores) == {"counts"}
    shared = catalogue.global_stores()
    assert shared is not None and [store.name for store in shared.stores] == ["names"]


def test_stores_in_memory_and_global_stores_are_a_typed_error_over_http(written: Any) -> None:
    server = Server(written, Journal().assign({"0": ("0_0",)}).claim(0, "driver").serve("driver", 1))
    try:
        with TestClient(server.app, base_url="http://127.0.0.1:8081", headers=server.headers) as web:
            for answer in (
                web.get("/state/stores/memory/a"),
                web.get("/state/range/memory"),
                web.get("/state/count/memory"),
                web.get("/state/stores/memory/a", params={"stale": "true"}),
                web.post("/state/stores/memory", json={"keys": ["a"]}),
            ):
                assert answer.status_code == 409, answer.text
                error = answer.json()
                assert error["error"] == "StateStoreNotAvailableError" and error["retriable"] is False
                assert "kept in memory" in error["message"] and "/sql" in error["hint"]
    finally:
        server.stop()
