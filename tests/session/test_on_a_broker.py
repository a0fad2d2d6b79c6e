"""A session on a real broker: topics, looking, sampling, SQL."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest
from confluent_kafka import KafkaException

import kstreams_repl as ks
from kstreams_repl.host.instance.control.control_files import write_whole
from kstreams_repl.host.instance.control.file_channel import LEASE
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.journal.journal import JournalControl, ensure_journal
from kstreams_repl.host.journal.journal_records import DesiredState
from kstreams_repl.host.kafka.clients import ClientSettings, make_transactional_producer
from kstreams_repl.repl.session.application.checks.copartitioning import CopartitionCheck
from kstreams_repl.repl.session.application.starting.journal_lookup import journal_of
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import (
    InvalidNameError,
    KStreamsError,
    PartialResultWarning,
    ProductionError,
    SerializationError,
    StreamsProcessingError,
    TopologyError,
    UnknownTopicError,
)
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = (
            "-1"  # timestamps of tests are of 1970; a cluster's default would delete such records
        )
        yield session


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def test_produced_records_are_read_back(session: ks.Session, name: str) -> None:
    assert session.produce(name, [("a", {"n": 1}, 1000), ("b", {"n": 2}, 2000)]) == 2
    records = session.read(name)
    assert [(r.key, r.value, r.timestamp) for r in records] == [("a", {"n": 1}, 1000), ("b", {"n": 2}, 2000)]


def test_the_last_records_are_read_by_time_over_partitions(session: ks.Session, name: str) -> None:
    session.produce(name, [(f"k{i}", i, 1000 + i) for i in range(100)])
    assert [r.value for r in session.read(name, 3)] == [97, 98, 99]
    assert [r.value for r in session.read(name, 2, start="earliest")] == [0, 1]
    assert "3 of 100 records" in repr(session.read(name, 3))


def test_reading_begins_at_a_datetime(session: ks.Session, name: str) -> None:
    """It began at the beginning, as if nothing had been said."""
    session.produce(name, [("k", day, f"2013-01-{day:02}") for day in range(1, 10)])
    start = datetime(2013, 1, 7, 19, tzinfo=timezone(-timedelta(hours=5)))
    assert [record.value for record in session.read(name, start=start)] == [8, 9]
    assert [record.value for record in session.read(name, start=date(2013, 1, 9))] == [9]
    assert [record.value for record in session.read(name, start=numpy.int64(0), n=2)] == [1, 2]


def test_headers_and_nulls_are_kept(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", None, 1000, [("trace", b"1")])], value_serde="string")
    record = session.read(name)[0]
    assert (record.value, record.headers) == (None, [("trace", b"1")])


def test_a_dataframe_is_produced_with_key_and_time(session: ks.Session, name: str) -> None:
    frame = pandas.DataFrame({"carrier": ["UA"], "at": ["2013-01-01T00:00:00"], "delay": [5]})
    session.produce(name, frame, key="carrier", timestamp="at")
    record = session.read(name)[0]
    assert (record.key, record.value["delay"], record.timestamp) == ("UA", 5, 1356998400000)


def test_what_a_serde_cannot_write_is_told_with_its_place(session: ks.Session, name: str) -> None:
    with pytest.raises(SerializationError, match="record 1 for topic"):
        session.produce(name, ["fine", {"not": "text"}])
    assert len(session.read(name)) == 1


def test_an_empty_topic_says_how_to_fill_it(session: ks.Session, name: str) -> None:
    session.create_topic(name)
    assert f"0 records on {name}; produce with session.produce('{name}', [...])" in repr(session.values(name))


def test_an_unknown_topic_comes_with_the_nearest_name(session: ks.Session, name: str) -> None:
    session.create_topic(name + "-flights")
    with pytest.raises(UnknownTopicError) as caught:
        session.read(name + "-flihgts")
    assert name + "-flights" in (caught.value.hint or "")


@pytest.mark.parametrize("bad", ["../../x", "a b", "x\0", "", "ü", "a" * 250])
def test_hostile_topic_names_are_refused(session: ks.Session, bad: str) -> None:
    with pytest.raises(InvalidNameError):
        session.create_topic(bad)


def test_a_recording_is_what_lies_between_its_bounds(session: ks.Session, name: str) -> None:
    session.produce(name, [(f"k{i}", f"v{i}", 1000 + i, [("n", b"\x01")]) for i in range(100)], partitions=2)
    whole = session.record(name, n=1000)
    assert len(whole) == 100 and [r.timestamp for r in whole] == list(range(1000, 1100))
    assert (whole[0].key, whole[0].value, whole[0].headers) == (b"k0", b"v0", [("n", b"\x01")])
    assert [r.timestamp for r in session.record(name, n=3)] == [1097, 1098, 1099]
    part = session.record(name, offsets={1: (2, 5)})
    assert [(r.partition, r.offset) for r in part] == [(1, 2), (1, 3), (1, 4)]
    assert len(session.record(name, timeout=0.1)) == 0
    with pytest.raises(KStreamsError, match="takes one of n, timeout and offsets"):
        session.record(name, n=1, timeout=1)


def words(name: str) -> tuple[ks.StreamsBuilder, ks.KStream]:
    builder = ks.StreamsBuilder()
    long = builder.stream(name, key_serde="string", value_serde="string").filter(lambda key, word: len(word) > 3, name="long")
    long.group_by_key().count(store="counts").to_stream(name="counted")
    return builder, long


def test_values_shows_the_values_between_two_nodes(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", word, 1000 + i) for i, word in enumerate(["to", "be", "question", "nobler"])])
    builder, long = words(name)
    assert [r.value for r in session.values(long)] == ["question", "nobler"]
    assert [r.value for r in session.values("counted", topology=builder)] == [1, 2]
    assert "2 values from a sample of 4 records, all there are" in repr(session.values(long))


def test_values_grows_its_sample_until_enough_came_out(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", "question" if i < 5 else "be", 1000 + i) for i in range(3000)], partitions=1)
    _, long = words(name)
    assert len(session.values(long, n=5, timeout=30)) == 5


def test_values_at_a_builder_shows_every_node(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", "question", 1000)])
    builder, _ = words(name)
    table = session.values(builder)
    assert {row[0]: row[1] for row in table.rows}["long"] == 1  # type: ignore[union-attr]


def test_values_joins_with_tables_whose_rows_are_older(session: ks.Session, name: str) -> None:
    session.produce(f"{name}-names", [("UA", "United", 1)])
    session.produce(name, [("UA", "flight", 2000)])
    builder = ks.StreamsBuilder()
    table = builder.table(f"{name}-names", key_serde="string", value_serde="string")
    joined = builder.stream(name, key_serde="string", value_serde="string").join(
        table, lambda flight, airline: f"{flight} of {airline}"
    )
    assert [r.value for r in session.values(joined)] == ["flight of United"]


def test_values_takes_values_before_they_are_changed_in_place(session: ks.Session, name: str) -> None:
    def spoil(value: dict[str, int]) -> dict[str, int]:
        value["n"] = 99
        return value

    session.produce(name, [("a", {"n": 1}, 1000)])
    builder = ks.StreamsBuilder()
    stream = builder.stream(name, key_serde="string", value_serde="json").filter(lambda key, value: True, name="before")
    stream.map_values(spoil, name="after")
    assert session.values("before", topology=builder)[0].value == {"n": 1}  # type: ignore[index, union-attr]
    assert session.values("after", topology=builder)[0].value == {"n": 99}  # type: ignore[index, union-attr]


def test_an_error_in_a_sample_names_the_line(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", "x", 1000)])
    builder = ks.StreamsBuilder()
    broken = builder.stream(name, value_serde="string").map_values(lambda word: 1 / 0, name="broken")
    with pytest.raises(StreamsProcessingError, match="1 / 0"):
        session.values(broken)


def test_values_at_an_unknown_node_comes_with_the_nearest_name(session: ks.Session, name: str) -> None:
    session.produce(name, ["x"])
    builder, _ = words(name)
    with pytest.raises(TopologyError) as caught:
        session.values("countd", topology=builder)
    assert "counted" in (caught.value.hint or "")


def test_sql_reads_topics_bounded_and_says_so(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", {"n": i}, 1000 + i) for i in range(100)], partitions=1)
    result = session.sql(f'SELECT count(*), min(n) FROM "{name}"', topic_limit=10)
    with pytest.warns(PartialResultWarning, match="only the last 10 of 100 records were read; topic_limit=None reads all"):
        assert result.fetchall() == [(10, 90)]
    assert f"topic {name}: the last 10 of 100 offsets of 1 partition" in repr(result)
    assert session.sql(f'SELECT count(*) FROM "{name}"', topic_limit=None).fetchall() == [(100,)]
    assert session.sql(f'SELECT count(*) FROM "{name}"', start=1050).fetchall() == [(50,)]


def test_a_topics_schema_has_columns_types_and_examples(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", {"n": i, "leg": {"from": "EWR"}}, 1000 + i) for i in range(300)], partitions=1)
    assert session.schema(name).rows[:3] == (
        ("key", "VARCHAR", "a"),
        ("n", "BIGINT", "299"),
        ("leg", 'STRUCT("from" VARCHAR)', '{"from": "EWR"}'),
    )
    assert session.schema(name).note == "from the last 200 records"
    session.create_topic(f"{name}-empty")
    assert "not known yet" in session.schema(f"{name}-empty").note
    with pytest.raises(UnknownTopicError):
        session.schema("nope")


def test_sql_finds_the_callers_dataframes(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", {"n": 1}, 1000)])
    labels = pandas.DataFrame({"n": [1], "label": ["one"]})
    assert session.sql(f'SELECT label FROM "{name}" JOIN labels USING (n)').fetchall() == [("one",)]
    assert session.sql(f'SELECT label FROM "{name}" JOIN other USING (n)', other=labels).fetchall() == [("one",)]


def test_a_topic_goes_before_a_dataframe_of_the_same_name(session: ks.Session) -> None:
    topic = f"t{uuid.uuid4().hex[:8]}"
    session.produce(topic, [("a", {"n": 1}, 1000)])
    namespace = {topic: pandas.DataFrame({"n": [2]}), "session": session}
    exec(
        f"found = session.sql('SELECT n FROM {topic}').fetchall(); frame = session.sql('SELECT n FROM frames.{topic}').fetchall()",
        namespace,
    )
    assert (namespace["found"], namespace["frame"]) == ([(1,)], [(2,)])


def test_a_plan_shows_topics_and_tasks_and_makes_nothing(session: ks.Session, name: str) -> None:
    session.create_topic(name, partitions=3)
    builder, _ = words(name)
    rows = session.plan(builder, "plan-app").rows
    assert ("topic", "plan-app-counts-changelog", 3, "to be created") in rows
    assert any(row[0] == "sub-topology" and row[2] == 3 for row in rows)
    assert not any(topic.startswith("plan-app") for topic in session.admin.topics())


def test_a_wrong_topology_is_told_before_anything_starts(session: ks.Session) -> None:
    builder = ks.StreamsBuilder()
    builder.stream("no-such-topic").to("nowhere")
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        session.deploy(builder, "never")
    assert session.applications == {}


@pytest.mark.parametrize("bad", ["../x", "a/b", "", ".", "a b"])
def test_hostile_application_names_reach_no_file(session: ks.Session, bad: str, tmp_path: Path, name: str) -> None:
    session.create_topic(name)
    builder, _ = words(name)
    with pytest.raises((InvalidNameError, KStreamsError)):
        session.deploy(builder, bad)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_cleanup_shows_first(session: ks.Session, name: str) -> None:
    session.admin.create_topic(f"{name}-x-changelog", 1)
    session.admin.create_topic(f"{name}-other-app-x-changelog", 1)
    found = session.cleanup(name, dry_run=True)
    assert f"{name}-x-changelog" in found.topics and not found.applied
    assert f"{name}-x-changelog" in session.admin.topics()
    session.cleanup(name)
    assert f"{name}-x-changelog" not in session.admin.topics()


def test_attaching_to_what_never_was_says_so(session: ks.Session, name: str) -> None:
    with pytest.raises(KStreamsError, match="there is no application"):
        session.attach(name)


def test_a_kernel_that_was_killed_while_it_wrote_the_journal_stands_in_nobodys_way(session: ks.Session, name: str) -> None:
    """Its open transaction is given up at once, not when the broker's time for it is over."""
    ensure_journal(session.admin, name)
    control = JournalControl(session.settings, name)
    control.write(DesiredState(3, "running", 2, 1))
    killed = subprocess.run([sys.executable, "-c", "print(__import__('os').getpid())"], capture_output=True, text=True).stdout
    folder = control_directory(session.client.state_root, name)
    folder.mkdir(parents=True)
    write_whole(folder / LEASE, {"generation": 3, "signal": "running", "pid": int(killed)})
    control._producer.begin_transaction()
    control._producer.produce(f"{name}-journal", key=b"control/desired", value=b"{}", partition=0)
    control._producer.flush(10)
    state = journal_of(session.client, name)
    assert (state.generation, state.ignored) == (3, 0)
    with pytest.raises(KafkaException, match="fenced"):
        control._producer.commit_transaction(10)


def test_records_between_markers_and_gaps_are_counted_as_records(session: ks.Session, name: str) -> None:
    """Every transaction ends with a marker, which took the place of a record: of the last 10 there were 5."""
    session.create_topic(name, partitions=1)
    producer = make_transactional_producer(session.settings, transactional_id=name, transaction_timeout_ms=10_000)
    producer.init_transactions(10)
    for number in range(40):
        producer.begin_transaction()
        producer.produce(name, key=b"k", value=str(number).encode(), timestamp=1000 + number)
        producer.commit_transaction(10)
    session.admin.settled_end_offsets([TopicPartition(name, 0)])  # a commit is acknowledged before its marker is there
    last, first = session.read(name, 10, value_serde="json"), session.read(name, 10, start="earliest", value_serde="json")
    assert [record.value for record in last] == list(range(30, 40))
    assert [record.value for record in first] == list(range(10))
    assert len(session.read(name, 40)) == 40 and "all 40 records" in session.read(name, None).note
    assert [record.offset for record in session.record(name, n=10)] == [2 * number for number in range(30, 40)]


def test_headers_may_be_a_dict(session: ks.Session, name: str) -> None:
    session.produce(name, [("a", "x", 1000, {"trace": b"1"})])
    assert session.read(name)[0].headers == [("trace", b"1")]


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([("a", "x", 1000, [("trace", 1)])], "record 0 for topic .* cannot be sent"),
        ([("a", "x", 1000, ["trace"])], "record 0 for topic .* cannot be sent"),
        ([("a", "x", 10**30)], "record 0 for topic .* has the timestamp 1000.* the 0 records before it are written"),
        (5, "expected an iterable of records or a dataframe, got a int"),
    ],
    ids=["a header that is a number", "a header without a value", "a time of 30 digits", "no collection"],
)
def test_what_cannot_be_sent_is_an_error_of_ours(session: ks.Session, name: str, records: Any, said: str) -> None:
    with pytest.raises(KStreamsError, match=said):
        session.produce(name, records)


@pytest.mark.parametrize("moment", ["1960-01-01", "1969-12-31T23:59:59.999", "1969-12-31T23:59:59.997", "0001-01-01"])
def test_a_time_before_1970_is_the_beginning(session: ks.Session, name: str, moment: str) -> None:
    """-1 ms is the end for a broker, -3 ms the latest time, and most others are refused."""
    session.produce(name, [("a", 1, 1000), ("a", 2, 3000), ("a", 3, 2000)], partitions=1)
    assert [record.value for record in session.read(name, start=moment)] == [1, 3, 2]
    assert session.sql(f'SELECT count(*) FROM "{name}"', start=moment).fetchall() == [(3,)]
    assert session.sql(f'SELECT count(*) FROM "{name}"', end=moment).fetchall() == [(0,)]


def test_a_timestamp_far_ahead_is_told_with_how_many_records_are_written(session: ks.Session, name: str) -> None:
    import time

    now = int(time.time() * 1000)
    records = [("a", n, now) for n in range(7)]
    with pytest.raises(ProductionError, match=r"record 7 for topic .* at most 1 h ahead.*the 7 records before it are written") as caught:
        session.produce(name, [*records, ("a", 8, now + 2 * 3_600_000), ("a", 9, now)])
    assert caught.value.written == 7 and len(session.read(name, None)) == 7
    with pytest.raises(ProductionError, match="year 9999") as caught:
        session.produce(name, [("a", 1, now * 1_000_000)])
    assert "not micro- or nanoseconds" in caught.value.hint
    free = f"{name}-free"
    session.create_topic(free, configs={"message.timestamp.after.max.ms": str(2**62)})
    assert session.produce(free, [("a", 1, now + 2 * 3_600_000)]) == 1


def by_another_hash(session: ks.Session, topic: str, keys: list[str]) -> None:
    """As librdkafka's producers do unless they are told."""
    from confluent_kafka import Producer

    session.create_topic(topic, partitions=4)
    producer = Producer({"bootstrap.servers": session.bootstrap_servers, "partitioner": "consistent_random"})
    for key in keys:
        producer.produce(topic, key=key.encode(), value=b'{"n": 1}')
    producer.flush(20)


def test_keys_that_lie_elsewhere_than_a_join_looks_for_them_are_told(session: ks.Session, name: str) -> None:
    orders, customers, others = f"{name}-orders", f"{name}-customers", f"{name}-others"
    keys = [f"customer-{n}" for n in range(60)]
    session.produce(orders, [(key, {"customer": key}) for key in keys])
    by_another_hash(session, customers, keys)
    by_another_hash(session, others, keys)

    def told(left: str, right: str, how: str = "stream", **config: Any) -> list[str]:
        builder = ks.StreamsBuilder()
        table = builder.table(right, key_serde="string", value_serde="json")
        if how == "stream":
            builder.stream(left, key_serde="string", value_serde="json").join(table, lambda a, b: a).to("out")
        elif how == "foreign key":
            mine = builder.table(left, key_serde="string", value_serde="json")
            mine.join(table, lambda a, b: a, foreign_key=lambda value: value["customer"]).to_stream().to("out")
        look = CopartitionCheck(session.admin, builder.build(), **config)
        look.patience = 20  # the machine's, not the look's
        return look.wait()

    found = told(orders, customers)
    assert len(found) == 1 and re.search(rf"(\d+) of 60 keys of '{customers}' do not lie", found[0]) and "repartition()" in found[0]
    assert 30 <= int(re.findall(r"(\d+) of 60", found[0])[0]) <= 58
    assert len(told(orders, customers, "foreign key")) == 1, "the repartition topics of a foreign-key join are murmur2's"
    assert told(customers, others) == [], "another partitioner, the same for both"
    assert told(orders, orders + "-none") == [] and told(orders, customers, wanted=False) == []
