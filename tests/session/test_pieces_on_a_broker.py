"""Topics and stores in pieces: every piece by itself, together what `session.sql` shows; on a real broker, without Spark."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.repl.inspection import store_table
from kstreams_repl.repl.inspection.scan_partitions import Pieces, planned
from kstreams_repl.repl.inspection.stores import LogRows
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.views.tables import spark_frames

pytestmark = pytest.mark.kafka


@pytest.fixture
def session(broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ks.Session]:
    """Where Spark would make a frame, the pieces come back, as a worker gets them."""

    def frame_of(spark: Any, read: Any, pieces: int, schema: pa.Schema) -> Any:
        plan: Pieces = pickle.loads(pickle.dumps(read.__self__))
        return [pa.Table.from_batches(list(plan.read(number)), schema=schema) for number in range(pieces)]

    monkeypatch.setattr("kstreams_repl.host.spark.dataframe_reader.frame_of", frame_of)
    monkeypatch.setattr(ks.Session, "spark", None)
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


@pytest.fixture
def topic(session: ks.Session) -> str:
    name = f"p{uuid.uuid4().hex[:8]}"
    values = [{"n": n, "at": {"city": "Ulm"}, "parts": [n, 1], "note": None if n % 3 else "x"} for n in range(500)]
    session.produce(name, [(f"k{n % 9}", value, 1000 + n) for n, value in enumerate(values)], partitions=3)
    return name


def rows(table: pa.Table) -> list[Any]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.slow
def test_the_pieces_of_a_topic_are_what_sql_shows(session: ks.Session, topic: str) -> None:
    seen = session.sql(f"SELECT * FROM {topic}").arrow()
    pieces = session.spark_frame(topic, piece=100)
    assert len(pieces) >= 5 and all(part.num_rows <= 100 for part in pieces)
    assert {part.schema.names == seen.schema.names for part in pieces} == {True}
    assert rows(pa.concat_tables(pieces)) == rows(seen)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "sql"),
    [({"topic_limit": 90}, {"topic_limit": 90}), ({"start": 1100, "end": 1300}, {"start": 1100, "end": 1300})],
)
@pytest.mark.filterwarnings("ignore:.*only the last 90 of 500 records")
def test_bounds_are_those_of_sql(session: ks.Session, topic: str, given: dict[str, Any], sql: dict[str, Any]) -> None:
    assert rows(pa.concat_tables(session.spark_frame(topic, **given))) == rows(session.sql(f"SELECT * FROM {topic}", **sql).arrow())


@pytest.mark.slow
def test_offsets_bound_each_partition(session: ks.Session, topic: str) -> None:
    (one,) = session.spark_frame(topic, offsets={1: (10, 25)})
    assert one.column("offset").to_pylist() == list(range(10, 25)) and set(one.column("partition").to_pylist()) == {1}
    for each in session.spark_frame(topic, offsets=[10, 15]):  # a list was no bound at all
        assert each.column("offset").to_pylist() == list(range(10, 15))


@pytest.mark.slow
def test_what_the_sample_does_not_know_is_null_and_nothing_fails(
    session: ks.Session, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_frames, "SAMPLE", 12)
    odd = [("k1", {"n": "text", "more": 1}), ("k1", [1, 2]), ("k1", None)]
    more = [("k1", {"n": n, "at": {"city": "Ulm"}, "parts": [n, 1], "note": "y"}) for n in range(40)]
    session.produce(topic, [*odd, *more])
    found = pa.concat_tables(session.spark_frame(topic))
    assert found.num_rows == 543
    assert found.column("n").null_count == 3 and "more" not in found.column_names


@pytest.mark.slow
def test_an_empty_topic_has_columns_and_no_pieces(session: ks.Session) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    session.create_topic(name)
    assert session.spark_frame(name) == []


def test_unknown_names_and_bounds_of_stores_are_told(session: ks.Session, topic: str) -> None:
    with pytest.raises(ks.KStreamsError, match="no topic or store") as unknown:
        session.spark_frame(topic + "s")
    assert topic in str(unknown.value.hint)
    with pytest.raises(ks.KStreamsError, match="name of a topic or store, or a store, got a int"):
        session.spark_frame(3)


@pytest.mark.parametrize("kind", [StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW])
def test_the_pieces_of_a_store_are_the_last_record_of_each_key(session: ks.Session, kind: StoreKind) -> None:
    window = kind is StoreKind.TIMESTAMPED_WINDOW
    builder = StoreBuilder("s", kind, retention_ms=300, window_size_ms=100) if window else StoreBuilder("s", kind)
    name = f"p{uuid.uuid4().hex[:8]}"
    suffix = [start.to_bytes(8, "big") + bytes(4) for start in range(0, 1000, 100)] if window else [b""]
    records = [(b"k%d" % (n % 7) + suffix[n % len(suffix)], None if n % 5 == 0 else n.to_bytes(8, "big"), 1000 + n) for n in range(200)]
    session.produce(name, records, key_serde="bytes", value_serde="bytes", partitions=2)
    ranges = ranges_of(session.admin, name)
    batches = list(read_ranges(session.settings, ranges))
    plan = planned(session.settings, ranges, batches, key_serde=serdes.string, value_serde=serdes.long, store=builder)
    found = pa.concat_tables([pa.Table.from_batches(list(plan.read(number)), schema=plan.schema) for number in range(2)])
    last = {key: value for key, value, _ in records}
    expected = sum(value is not None for value in last.values())
    if window:
        live = {key for key, value in last.items() if value is not None and int.from_bytes(key[-12:-4], "big") > 900 - 300}
        expected = len(live)
    assert found.num_rows == expected > 0
    logs = {item.partition.partition: LogRows(builder, item.partition.partition) for item in ranges}
    for at, batch in batches:
        logs[at.partition].add(batch)
    whole = store_table(builder, [log.rows() for log in logs.values()], key_serde=serdes.string, value_serde=serdes.long)
    assert rows(found) == rows(pa.table(whole.columns))


def test_ranges_are_cut_without_gap_or_overlap() -> None:
    from kstreams_repl.system.types import TopicPartition

    at = TopicPartition("t", 0)
    cut = list(spark_frames._cut([OffsetRange(at, 3, 10), OffsetRange(at, 5, 5)], 3))
    assert [(item.start, item.end) for item in cut] == [(3, 6), (6, 9), (9, 10)]
