"""A sample that gives nothing says where the values ended, and why; a node that takes much and gives nothing is found."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.repl.session import Records
from kstreams_repl.repl.session.views.picture.silent_nodes import silent_nodes
from kstreams_repl.repl.session.views.values import sample_run
from kstreams_repl.system.types import RecordBatch, TopicPartition
from tests.unit.repl.session.small_cluster import SmallCluster, SmallSession

YEAR_2013 = 1_356_998_400_000
JSON = {"key_serde": "string", "value_serde": "json"}
Row = tuple[str, Any, int]


class Topics(SmallSession):
    """A session whose topics hold what the test says."""

    def __init__(self, folder: Path) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.cluster = SmallCluster()
        super().__init__(self.cluster, folder)

    def holds(self, topic: str, rows: Iterable[Row]) -> None:
        self.cluster.create_topics([NewTopicSpec(topic, 1)])
        self.rows[topic] = list(rows)

    def ranges(self, _: Any, topic: str) -> tuple[OffsetRange, ...]:
        return (OffsetRange(TopicPartition(topic, 0), 0, len(self.rows[topic])),)

    def read_ranges(self, _: Any, ranges: Iterable[OffsetRange]) -> Iterable[tuple[TopicPartition, RecordBatch]]:
        for part in ranges:
            rows = self.rows[part.partition.topic][part.start : part.end]
            keys, values = [key.encode() for key, _, _ in rows], [json.dumps(value).encode() for _, value, _ in rows]
            yield part.partition, RecordBatch(keys, values, [at for _, _, at in rows], list(range(part.start, part.end)))


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topics:
    made = Topics(tmp_path)
    monkeypatch.setattr(sample_run, "ranges_of", made.ranges)
    monkeypatch.setattr(sample_run, "read_ranges", made.read_ranges)
    return made


def orders(session: Topics, at: int, number: int = 300) -> None:
    session.holds("orders", [(f"k{index}", {"n": index}, at + index) for index in range(number)])


def join(how: Callable[[Any, Any], Any] | None = None) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    customers = builder.table("customers", name="customers", **JSON)
    stream = builder.stream("orders", name="orders", **JSON)
    (how or (lambda stream, table: stream.join(table, lambda a, b: b, name="rich")))(stream, customers).to("out", name="write", **JSON)
    return builder


def said(session: Topics, builder: ks.StreamsBuilder, node: str) -> str:
    found = session.values(node, topology=builder)
    assert isinstance(found, Records)
    assert repr(found).endswith(found.note), "in the text"
    for line in found.note.splitlines():
        assert line in html.unescape(found._repr_mimebundle_()["text/html"]), "and in the notebook"
    return "\n".join(found.note.splitlines()[1:])


def test_a_join_whose_rows_come_later_tells_both_times(session: Topics) -> None:
    orders(session, 1000)
    session.holds("customers", [(f"k{index}", {}, YEAR_2013 + index) for index in range(400)])
    expected = (
        "join rich: 300 in, 0 out: no row in customers at that time; its first is from 2013-01-01 00:00:00.000, "
        "the last record to join from 1970-01-01 00:00:01.299"
    )
    assert said(session, join(), "rich") == expected
    assert said(session, join(), "write") == expected, "a node below it says where they ended, too"
    assert expected in session.values(join()).note


def test_a_join_over_other_keys_shows_keys_of_both_sides(session: Topics) -> None:
    orders(session, YEAR_2013)
    session.holds("customers", [(f"c{index}", {}, 1000) for index in range(5)])
    told = said(session, join(), "rich")
    expected = "join rich: 300 in, 0 out: 0 of 300 keys are in customers; it has no 'k0' or 'k1', but keys like 'c0'"
    assert told == expected
    assert len(session.values("rich", 0, topology=join())) == 0
    assert expected in session.values(join(), 0).note


CASES = {
    "case": ("K{}", "k{}", "upper and lower case differ: 'K0' is 'k0' there, 'K1' is 'k1' there"),
    "a blank": ("k{} ", "k{}", "blanks differ: 'k0 ' is 'k0' there, 'k1 ' is 'k1' there"),
    "a prefix": ("{}", "customer-{}", "one side's keys have more text: '0' is 'customer-0' there, '1' is 'customer-1' there"),
    "a prefix here": ("c{}", "{}", "one side's keys have more text: 'c0' is '0' there, 'c1' is '1' there"),
    "a suffix": ("k{}-eu", "k{}", "one side's keys have more text: 'k0-eu' is 'k0' there, 'k1-eu' is 'k1' there"),
    "zeros": ("00{}x", "{}x", "leading zeros differ: '000x' is '0x' there, '001x' is '1x' there"),
    "quotes": ('"k{}"', "k{}", "one side's keys are quoted: '\"k0\"' is 'k0' there, '\"k1\"' is 'k1' there"),
    "case and a blank": ("K{} ", "k{}", "types, blanks, case or zeros differ: 'K0 ' is 'k0' there, 'K1 ' is 'k1' there"),
    "nothing in common": ("a{}", "b{}x", "it has no 'a0' or 'a1', but keys like 'b0x'"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_join_that_misses_by_key_names_the_likely_reason_with_two_examples(session: Topics, case: str) -> None:
    """Nothing was said of a join that is the last node, which it is while one looks at it."""
    here, there, reason = CASES[case]
    session.holds("orders", [(here.format(index), {}, 1000) for index in range(300)])
    session.holds("customers", [(there.format(index), {}, 1) for index in range(300)])
    builder = ks.StreamsBuilder()
    customers = builder.table("customers", **JSON)
    builder.stream("orders", **JSON).join(customers, lambda a, b: b, name="rich")
    expected = f"join rich: 300 in, 0 out: 0 of 300 keys are in customers; {reason}"
    assert said(session, builder, "rich") == expected
    assert expected in session.values(builder).note


def test_a_number_as_key_and_its_text(session: Topics) -> None:
    session.holds("orders", [(f"{index}", {}, 1000) for index in range(30)])
    session.holds("customers", [(f"{index}", {}, 1) for index in range(30)])
    builder = ks.StreamsBuilder()
    customers = builder.table("customers", key_serde="json", value_serde="json")
    builder.stream("orders", **JSON).join(customers, lambda a, b: b, name="rich")
    told = said(session, builder, "rich")
    assert told == "join rich: 30 in, 0 out: 0 of 30 keys are in customers; the types differ: '0' is 0 there, '1' is 1 there"


@pytest.mark.parametrize("left", [False, True])
def test_a_join_that_misses_half_of_its_keys_says_so_with_its_values(session: Topics, left: bool) -> None:
    session.holds("orders", [(f"{'k' if index % 2 else 'K'}{index}", {}, 1000) for index in range(300)])
    session.holds("customers", [(f"k{index}", {}, 1) for index in range(300)])
    builder = join(lambda stream, table: (stream.left_join if left else stream.join)(table, lambda a, b: 1, name="rich"))
    found = session.values("rich", n=3, topology=builder)
    assert len(found) == 3
    said_of_it = "150 of 300 keys are in customers; upper and lower case differ: 'K0' is 'k0' there, 'K2' is 'k2' there"
    assert f"join rich: 300 in, {300 if left else 150} out: {said_of_it}" in found.note


def test_joins_of_streams_and_of_tables_and_by_foreign_key(session: Topics) -> None:
    session.holds("orders", [(f"k{index}", {"customer": f"C{index}"}, 1000) for index in range(30)])
    session.holds("customers", [(f"c{index}", {}, 1000) for index in range(30)])
    session.holds("payments", [(f"K{index}", {}, 1000) for index in range(30)])
    builder = ks.StreamsBuilder()
    builder.stream("orders", **JSON).join(
        builder.stream("payments", **JSON), lambda a, b: 1, ks.JoinWindows.of_time_difference(10), name="pair", **SIDES
    )
    told = session.values(builder).note
    assert "30 in, 0 out: 0 of 30 keys are in payments; upper and lower case differ: 'k0' is 'K0' there" in told
    builder = ks.StreamsBuilder()
    tables = [builder.table(topic, name=topic, **JSON) for topic in ("orders", "payments", "customers")]
    tables[0].join(tables[1], lambda a, b: 1, name="both")
    tables[0].join(tables[2], lambda a, b: 1, foreign_key=lambda value: value["customer"], name="of")
    told = session.values(builder).note
    assert "0 of 30 keys are in payments; upper and lower case differ: 'k0' is 'K0' there" in told
    assert "0 of 30 keys are in customers; upper and lower case differ: 'C0' is 'c0' there" in told


def test_event_times_of_an_extractor_decide_which_record_comes_first(session: Topics) -> None:
    """It said that the rows came later, by the broker's times; deployed, all records join."""
    session.holds("orders", [(f"k{index}", {"at": 5000 + index}, 1000 + index) for index in range(300)])
    session.holds("customers", [(f"k{index}", {"at": index}, 90_000 + index) for index in range(300)])
    builder = ks.StreamsBuilder()
    event_time = {"timestamp_extractor": lambda record, partition_time: record.value["at"]}
    customers = builder.table("customers", **JSON, **event_time)
    builder.stream("orders", **JSON, **event_time).join(customers, lambda a, b: b, name="rich")
    found = session.values("rich", n=400, topology=builder)
    assert (len(found), found.note) == (300, "rich: 300 values from a sample of 600 records, all there are")


def test_a_join_with_a_table_that_is_empty(session: Topics) -> None:
    orders(session, 1000)
    session.holds("customers", [])
    assert said(session, join(), "rich") == "join rich: 300 in, 0 out: customers has no records"


def test_a_join_with_a_table_of_which_the_sample_has_a_part(session: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sample left out may hold the rows: it must not say that there are none."""
    monkeypatch.setattr(sample_run, "TABLE_SAMPLE", 100)
    orders(session, YEAR_2013)
    session.holds("customers", [(f"c{index}", {}, 1000) for index in range(101)])
    assert "(the sample has 100 of at most 101 records)" in said(session, join(), "rich")


def test_a_filtered_table_is_not_said_to_lack_rows(session: Topics) -> None:
    orders(session, YEAR_2013)
    session.holds("customers", [(f"k{index}", {}, 1000) for index in range(300)])
    builder = join(lambda stream, table: stream.join(table.filter(lambda k, v: False, name="few"), lambda a, b: b, name="rich"))
    assert said(session, builder, "rich") == (
        "join rich: 300 in, 0 out: customers has rows for its keys, and what is between the table and the join lets none through"
    )


def test_a_global_table_and_records_that_a_join_drops(session: Topics) -> None:
    orders(session, YEAR_2013)
    session.holds("customers", [("c1", {}, 1000)])

    def build(mapped: Callable[[Any, Any], Any]) -> ks.StreamsBuilder:
        builder = ks.StreamsBuilder()
        customers = builder.global_table("customers", **JSON)
        builder.stream("orders", **JSON).join(customers, lambda a, b: b, key=mapped, name="rich").to("out", **JSON)
        return builder

    assert said(session, build(lambda key, value: key), "rich") == (
        "join rich: 300 in, 0 out: 0 of 300 keys are in customers; it has no 'k0' or 'k1', but keys like 'c1'"
    )
    assert said(session, build(lambda key, value: None), "rich") == "join rich: 300 in, 0 out: 300 dropped: null join key or value"


def test_a_filter_a_branch_and_what_is_below_a_repartition(session: Topics) -> None:
    orders(session, 1000)
    builder = ks.StreamsBuilder()
    stream = builder.stream("orders", name="orders", **JSON)
    paid = stream.filter(lambda key, value: value["n"] < 0, name="paid")
    paid.select_key(lambda key, value: "x", name="key").group_by_key(**JSON).count(store="counts", name="count").to_stream(name="counted")
    assert said(session, builder, "paid") == "filter paid: 300 in, 0 out"
    assert said(session, builder, "counted") == "filter paid: 300 in, 0 out"
    few = stream.filter(lambda key, value: value["n"] == 0, name="few")
    few.map_values(lambda value: 1, name="one")
    assert said(session, builder, "one") == "filter few: 300 in, 1 out"
    assert said(session, builder, "orders") == "", "there is nothing to explain"


def test_a_stream_stream_join_one_side_of_which_always_comes_first_is_not_silent(session: Topics) -> None:
    """Its records find none of the other side, which finds them: only one of the two nodes gives."""
    orders(session, 1000)
    session.holds("payments", [(f"k{index}", {}, 100_000 + index) for index in range(300)])

    def build(window_ms: int) -> ks.StreamsBuilder:
        builder = ks.StreamsBuilder()
        left, right = builder.stream("orders", **JSON), builder.stream("payments", **JSON)
        left.join(right, lambda a, b: 1, ks.JoinWindows.of_time_difference(window_ms), name="pair", **SIDES).to("out", **JSON)
        return builder

    assert "out" not in session.values(build(200_000)).note
    told = session.values(build(5)).note
    assert "300 in, 0 out: no record of the other side has the same key within the window" in told


SIDES: dict[str, Any] = {"key_serde": "string", "value_serde": "json", "other_value_serde": "json"}


def test_a_node_that_waits_or_keeps_rows_in_a_cache_is_not_silent() -> None:
    builder = join()
    counted = builder.stream("more", name="more", **JSON).group_by_key(**JSON).count(store="counts", name="count")
    counted.to_stream(name="counted")
    topology = builder.build()
    passed = {name: (100, 0) for name in topology.nodes}
    assert silent_nodes(topology, passed, caches=False) == ["rich"]
    assert silent_nodes(topology, passed) == ["rich", "count"]
    assert silent_nodes(topology, {name: (99, 0) for name in topology.nodes}) == []


def test_a_deployed_application_marks_the_node_in_its_text_too(session: Topics) -> None:
    orders(session, 1000)
    session.holds("customers", [])
    session.cluster.create_topics([NewTopicSpec("out", 1)])
    for topic in ("orders", "customers"):
        rows = [(key.encode(), json.dumps(value).encode(), at) for key, value, at in session.rows[topic]]
        session.cluster.logs[TopicPartition(topic, 0)] = [*rows]
    app: Any = session.deploy(join(), "app", config={"max.task.idle.ms": -1})
    app._core.finish_start()
    app.pause()
    assert "300 records, lag 0, ∅ nothing passes rich" in repr(app)
    text = app._repr_mimebundle_()["text/plain"].splitlines()
    assert "∅ nothing passes rich: 300 in, 0 out" in text
    assert app.picture().marks["node:rich"].state == "silent" and app.picture().marks["node:orders"].state == "paused"
    assert app.tap("rich").note.endswith("customers has no records")
