"""Rows of stores as another process reads them."""

from __future__ import annotations

import multiprocessing
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel
from kstreams_repl.host.instance.control.journal_channel import JournalChannel
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.repl.inspection import TableData, run_sql
from kstreams_repl.repl.inspection.stores import LogRows, store_table
from kstreams_repl.repl.session.views.counts.record_counts import Counts
from kstreams_repl.repl.session.views.stores import store_reader
from kstreams_repl.repl.session.views.stores.store_reader import count_rows, read_store, read_stores
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from kstreams_repl.repl.session.views.tables.sql_catalog import SessionTables, all_stores
from kstreams_repl.system.errors import InvalidStateStoreError
from kstreams_repl.system.types import RecordBatch, TopicPartition


def write(path: str, rows: list[tuple[bytes, bytes]]) -> None:
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment

    environment = LmdbEnvironment(path)
    engine = environment.engine("counts")
    for key, value in rows:
        engine.put(key, value)
    environment.commit({}, 7)
    environment.close()


def write_when_told(paths: list[str], told: Any) -> None:
    """One instance: two tasks with two stores each, committed one after the other under one id; every value is that id."""
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment

    environments = [LmdbEnvironment(path) for path in paths]
    stores = [[environment.engine(name) for name in ("counts", "sums")] for environment in environments]
    while (number := told.recv()) is not None:
        for environment, engines in zip(environments, stores, strict=True):
            for engine in engines:
                engine.put(b"key", struct.pack(">qq", 1000, number))
            environment.commit({}, number)
        told.send(number)
    for environment in environments:
        environment.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("disturbed", "as_of"), [(0, "0_0: 1, 0_1: 1"), (3, "0_0: 4, 0_1: 4"), (10_000, "0_0: 20, 0_1: 21, not consistent")]
)
def test_stores_of_an_instance_are_read_again_until_no_task_commits_in_between(
    disturbed: int, as_of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process commits after the view of the first task was taken and before that of the second, some times or every time."""
    from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot

    builder = ks.StreamsBuilder()
    grouped = builder.stream("in", key_serde="string", value_serde="long").group_by_key()
    grouped.count(store="counts")
    grouped.reduce(lambda total, value: total + value, store="sums")
    topology = builder.build()
    paths = [tmp_path / "app" / "tasks" / name for name in ("0_0", "0_1")]
    for path in paths:
        path.mkdir(parents=True)
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    context = multiprocessing.get_context("spawn")
    told, theirs = context.Pipe()
    writer = context.Process(target=write_when_told, args=([str(path) for path in paths], theirs))
    writer.start()

    def commit(number: int) -> None:
        told.send(number)
        assert told.poll(60) and told.recv() == number

    real, views = LmdbSnapshot.transaction, {"first": 0, "open": 0}

    @contextmanager
    def transaction(snapshot: LmdbSnapshot) -> Iterator[Any]:
        with real(snapshot) as view:
            views["open"] += 1
            try:
                if snapshot.path.endswith("0_0") and views["open"] == 1 and views["first"] < disturbed:
                    views["first"] += 1
                    commit(1 + views["first"])
                yield view
            finally:
                views["open"] -= 1

    try:
        commit(1)
        monkeypatch.setattr(LmdbSnapshot, "transaction", transaction)
        builders = [topology.store("counts"), topology.store("sums")]
        found = read_stores(None, config, topology, builders, limit=None)  # type: ignore[arg-type]
        commits, comma, moment = as_of.partition(", not")
        assert {name: rows.commits for name, rows in found.items()} == {name: f"{name}: commits {commits}" for name in ("counts", "sums")}
        for rows in found.values():
            told_at, _, _ = rows.as_of.removeprefix("as of ").partition(", ")
            assert told_at.endswith(" UTC")
            assert abs(datetime.fromisoformat(told_at.replace(" UTC", "+00:00")).timestamp() - time.time()) < 300
            assert rows.as_of.endswith(f"{comma}{moment}")
        for rows in found.values():
            for part, said in zip(rows.parts, as_of.split(", "), strict=False):
                assert struct.unpack(">qq", part.values[0])[1] == int(said.split(": ")[1])
    finally:
        told.send(None)
        writer.join()


def test_a_query_reads_all_its_stores_together(tmp_path: Path) -> None:
    from kstreams_repl.repl.inspection import Limits
    from kstreams_repl.repl.session.views.tables import sql_catalog

    builder = ks.StreamsBuilder()
    grouped = builder.stream("in", key_serde="string", value_serde="long").group_by_key()
    grouped.count(store="counts")
    grouped.reduce(lambda total, value: total + value, store="sums")
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    app: Any = SimpleNamespace(name="app", as_of="", topology=builder.build(), config=config, counts=Counts())
    client: Any = SimpleNamespace(admin=None)
    path = tmp_path / "app" / "tasks" / "0_0"
    path.mkdir(parents=True)
    environment = LmdbEnvironment(path)
    source = sql_catalog.SessionTables(client, {"app": app}, {}, {})
    source.expect([("", "counts"), ("app", "sums")])
    try:
        for number in (1, 2):  # the second commit comes between the two tables
            for name in ("counts", "sums"):
                environment.engine(name).put(b"key", struct.pack(">qq", 1000, number))
            environment.commit({}, number)
            table = source.table("", "counts" if number == 1 else "sums", Limits())
            assert isinstance(table, TableData)
            assert table.columns["value"].to_pylist() == [1] and table.commits.endswith("commits 0_0: 1")
    finally:
        environment.close()


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("key = 'k7'", 101), ("key IN ('k7', 'k1999', 'none')", 102), ("key = 'none'", 100), ("key = 'k7' AND value.n > 3", 101),
        ("key = 'k7' OR key = 'k8'", 2000), ("key > 'k7'", 2000), ("key = 'k7' AND rare = 1", 2000),
    ],
)  # fmt: skip
def test_a_key_of_a_store_is_looked_up(condition: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kstreams_repl.repl.inspection import query, run_sql
    from kstreams_repl.repl.session.views.stores import store_reader
    from kstreams_repl.repl.session.views.tables import sql_catalog

    builder = ks.StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="json")
    stream.group_by_key().reduce(lambda total, value: value, store="latest")
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    app: Any = SimpleNamespace(name="app", as_of="", topology=builder.build(), config=config, counts=Counts())
    client: Any = SimpleNamespace(admin=SimpleNamespace(topics=dict))
    read: list[int] = []
    real = store_reader._read_view
    monkeypatch.setattr(store_reader, "_read_view", lambda *given: read.append(len((rows := real(*given)).keys)) or rows)
    path = tmp_path / "app" / "tasks" / "0_0"
    path.mkdir(parents=True)
    environment = LmdbEnvironment(path)
    try:
        for number in range(2000):
            value = orjson.dumps({"n": number, **({"rare": 1} if number == 1500 else {})})
            environment.engine("latest").put(b"k%d" % number, struct.pack(">q", 1000) + value)
        environment.commit({}, 1)
        text = f"SELECT key, value FROM latest WHERE {condition} ORDER BY ALL"
        found = run_sql(text, sql_catalog.SessionTables(client, {"app": app}, {}, {}))
        assert read[-1] <= most and ("looked up in 1 task" in found.bounds[0]) == (most < 2000)
        monkeypatch.setattr(query, "bounds_of", lambda *given: {})
        whole = run_sql(text, sql_catalog.SessionTables(client, {"app": app}, {}, {}))
        assert read[-1] == 2000 and [(key, value["n"]) for key, value in found] == [(key, value["n"]) for key, value in whole]
    finally:
        environment.close()


@pytest.fixture
def topology() -> ks.Topology:
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string").group_by_key().count(store="counts")
    return builder.build()


@pytest.mark.parametrize(
    "keys",
    [[b"a", b"b"], [b"", b"a"], [b"x" * 600, b"x" * 600 + b"y", b"a"], []],
    ids=["plain", "with an empty key", "long keys", "none"],
)
def test_all_rows_come_out_in_order_whatever_the_keys(keys: list[bytes], topology: ks.Topology, tmp_path: Path) -> None:
    task = tmp_path / "app" / "tasks" / "0_3"
    task.mkdir(parents=True)
    rows = [(key, struct.pack(">qq", 1000, number)) for number, key in enumerate(keys)]
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(str(task), rows))
    writer.start()
    writer.join()
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    builder = topology.store("counts")
    if not keys:
        assert count_rows(config, topology, builder) in (0, None)
        return
    found = read_store(None, config, topology, builder, limit=None)  # type: ignore[arg-type]
    assert [(part.partition, list(zip(part.keys, part.values, strict=True))) for part in found.parts] == [(3, sorted(rows))]
    assert found.commits.endswith("commits 0_3: 7")
    cut = read_store(None, config, topology, builder, limit=1)  # type: ignore[arg-type]
    assert len(cut.parts[0].keys) == 1 and not cut.parts[0].complete


def test_rows_and_keys_of_a_global_store_are_those_of_its_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances hold it in memory. It was looked for on disk, where nothing is: a query had no rows and every key was None."""
    builder = ks.StreamsBuilder()
    builder.global_table("airlines", key_serde="string", value_serde="string", store="names")
    stale = tmp_path / "app" / "tasks" / "0_0"
    stale.mkdir(parents=True)
    batch = RecordBatch([b"UA", b"AA", b"AA"], [b"United", b"American", None], [1000, 2000, 3000], [0, 1, 2])
    app = reading(builder.build(), tmp_path, "airlines", batch, monkeypatch)
    [store] = all_stores(app.topology)
    assert StoreView(app, store).get("UA") == "United" and StoreView(app, store).get("AA") is None
    rows = read_store(app.client.admin, app.config, app.topology, store, limit=None)
    assert rows.as_of == "from topic airlines"
    assert [(part.keys, part.values) for part in rows.parts] == [([b"UA"], [struct.pack(">q", 1000) + b"United"])]


def test_a_global_store_that_its_processor_fills_says_that_it_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic has other rows than it."""
    store = ks.StoreBuilder("names", ks.StoreKind.KEY_VALUE, key_serde="string", value_serde="string", logging=False)
    topology = ks.Topology().add_global_store(store, "read", "airlines", "keep", ks.Processor)
    batch = RecordBatch([b"UA"], [b"United"], [1000], [0])
    app = reading(topology, tmp_path, "airlines", batch, monkeypatch)
    with pytest.raises(InvalidStateStoreError, match="cannot be read: its processor writes them"):
        StoreView(app, all_stores(app.topology)[0]).get("UA")


def reading(topology: ks.Topology, folder: Path, topic: str, batch: RecordBatch, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An application of which nothing runs here, with one topic."""
    ranges = (OffsetRange(TopicPartition(topic, 0), 0, len(batch)),)

    def ranges_of(admin: Any, asked: str, until_ms: int | None) -> Any:
        assert asked == topic
        return ranges

    monkeypatch.setattr(store_reader, "ranges_of", ranges_of)
    monkeypatch.setattr(store_reader, "read_ranges", lambda settings, ranges: [(ranges[0].partition, batch)])
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(folder)})
    client = SimpleNamespace(admin=SimpleNamespace(settings=None))
    return SimpleNamespace(name="app", as_of="", topology=topology, config=config, client=client)


@pytest.mark.parametrize("persistent", [True, False], ids=["of other hosts", "in memory"])
def test_a_key_without_local_state_is_read_from_the_changelog(
    persistent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = ks.Topology().add_source("in", "in")
    topology.add_processor("keep", ks.Processor, "in").add_state_store(
        ks.StoreBuilder("kept", ks.StoreKind.KEY_VALUE, key_serde="json", value_serde="json", persistent=persistent), "keep"
    )
    batch = RecordBatch([b'{"a":1}', b'"b"', b'"b"'], [b'{"n":1}', b"2", None], [1, 2, 3], [0, 1, 2])
    ranges = (OffsetRange(TopicPartition("app-kept-changelog", 0), 0, 3),)
    monkeypatch.setattr(store_reader, "ranges_of", lambda admin, topic, until_ms: ranges)
    monkeypatch.setattr(store_reader, "read_ranges", lambda settings, ranges: [(ranges[0].partition, batch)])
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    client = SimpleNamespace(admin=SimpleNamespace(settings=None))
    app: Any = SimpleNamespace(name="app", as_of="", topology=topology, config=config, client=client)
    view = StoreView(app, topology.store("kept"))
    assert view.get({"a": 1}) == {"n": 1} and view.get("b") is None


@pytest.mark.parametrize("kind", [ks.StoreKind.LRU, ks.StoreKind.VERSIONED])
def test_a_key_of_any_key_value_store_is_read(kind: ks.StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = ks.Topology().add_source("in", "in")
    builder = ks.StoreBuilder("kept", kind, key_serde="string", value_serde="json", retention_ms=1000)
    topology.add_processor("keep", ks.Processor, "in").add_state_store(builder, "keep")
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)})
    client = SimpleNamespace(admin=SimpleNamespace(settings=None))
    app: Any = SimpleNamespace(name="app", as_of="", topology=topology, config=config, client=client)
    batch = RecordBatch([b"a", b"b", b"b"], [b"1", b"2", None], [10, 20, 30], [0, 1, 2])
    ranges = (OffsetRange(TopicPartition("app-kept-changelog", 0), 0, 3),)
    monkeypatch.setattr(store_reader, "ranges_of", lambda admin, topic, until_ms: ranges)
    monkeypatch.setattr(store_reader, "read_ranges", lambda settings, ranges: [(ranges[0].partition, batch)])
    view = StoreView(app, topology.store("kept"))
    assert (view.get("a"), view.get("b")) == (1, None)


def test_the_rows_of_an_lru_store_are_read_by_its_serdes() -> None:
    """SQL showed their bytes."""
    builder = ks.StoreBuilder("kept", ks.StoreKind.LRU, key_serde="string", value_serde="long", max_entries=10)
    log = LogRows(builder, 0)
    log.add(RecordBatch([b"a", b"b", b"b"], [struct.pack(">q", 1), struct.pack(">q", 2), None], [10, 20, 30], [0, 1, 2]))
    table = store_table(builder, [log.rows()], key_serde=ks.serdes.string, value_serde=ks.serdes.long)
    assert {name: column.to_pylist() for name, column in table.columns.items()} == {"key": ["a"], "value": [1], "partition": [0]}


def test_an_older_version_that_is_logged_later_is_not_the_latest() -> None:
    builder = ks.StoreBuilder("kept", ks.StoreKind.VERSIONED, retention_ms=1000)
    log = LogRows(builder, 0)
    log.add(RecordBatch([b"a", b"a", b"b"], [b"new", b"old", b"gone"], [30, 20, 10], [0, 1, 2]))
    log.add(RecordBatch([b"b", b"b"], [None, b"older"], [40, 35], [3, 4]))
    rows = log.rows()
    assert (list(rows.keys), [value[8:] for value in rows.values]) == ([b"a"], [b"new"])


@pytest.mark.parametrize("moved", [True, False], ids=["on a cluster by now", "here again"])
def test_rows_that_an_application_left_here_are_not_those_it_has_on_a_cluster(
    moved: bool, topology: ks.Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were shown for ever, as of the last commit before it moved."""
    control = tmp_path / "app" / "control"
    (tmp_path / "app" / "tasks" / "0_0").mkdir(parents=True)
    write(str(tmp_path / "app" / "tasks" / "0_0"), [(b"a", struct.pack(">qq", 1000, 1))])
    batch = RecordBatch([b"a"], [struct.pack(">q", 5)], [2000], [0])
    app = reading(topology, tmp_path, "app-counts-changelog", batch, monkeypatch)
    JournalChannel(control, None, "app").signal(1, Signal.RUN)  # type: ignore[arg-type]
    if not moved:
        FileChannel(control).signal(2, Signal.RUN)
    store = topology.store("counts")
    rows = read_store(app.client.admin, app.config, topology, store, limit=None)
    assert rows.as_of == "from topic app-counts-changelog" if moved else rows.commits.endswith("commits 0_0: 7")
    assert StoreView(app, store).get("a") == (5 if moved else 1)
    assert count_rows(app.config, topology, store) == (None if moved else 1)


def test_a_wrong_name_is_answered_without_reading_the_results_in_variables() -> None:
    """A result that its bound had cut short warned in a cell that did not use it, when names were looked up for "did you mean"."""
    around = {"cut": run_sql("SELECT 1 AS n", SimpleNamespace(expect=lambda tables: None)), "number": 1}  # type: ignore[arg-type]
    around["cut"].cuts = ("only the last 100 records were read",)  # type: ignore[attr-defined]
    client: Any = SimpleNamespace(admin=SimpleNamespace(topics=dict))
    assert list(SessionTables(client, {}, {}, around).names()) == ["cut", "metrics"]
