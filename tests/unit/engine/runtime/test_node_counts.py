"""Every node counts its own records, in every kind of loop: closures, written-out loops, rows that leave a cache in columns."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.commit.committed_counts import committed_counts, written_counts
from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, decode, encode
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
from kstreams_repl.engine.runtime.queues.columnar_queue import FusedQueue
from kstreams_repl.test_driver.driver import TopologyTestDriver
from tests.unit.engine.runtime.rig import Rig

TEXT = {"key_serde": "string", "value_serde": "string"}


def numbers(rig: Rig) -> dict[str, tuple[int, int]]:
    return {name: (count.taken, count.given) for name, count in rig.task.counts.read().items()}


def rows(many: int) -> list[tuple[str, bytes, int]]:
    return [(f"k{number % 10}", str(number).encode(), number) for number in range(many)]


def straight() -> ks.Topology:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", name="read", **TEXT).map_values(str, name="same")
    stream.filter(lambda key, value: int(value) % 4 == 0, name="fourth").filter_not(lambda key, value: value == "0", name="more").to(
        "out", name="write", **TEXT
    )
    return builder.build()


@pytest.mark.parametrize("batch", [300, 7], ids=["loop", "single records"])
def test_a_written_out_loop_counts_as_single_records_do(batch: int) -> None:
    rig, many = Rig(straight()), rows(300)
    assert any(isinstance(queue, FusedQueue) for queue in rig.task.group.queues.values())
    for start in range(0, 300, batch):
        rig.pipe("in", *many[start : start + batch]).run()
    assert numbers(rig) == {"read": (300, 300), "same": (300, 300), "fourth": (300, 75), "more": (75, 74), "write": (74, 74)}
    assert len(rig.outbox.sent) == 74


@pytest.mark.parametrize("nodes", [*range(1, 12)])
def test_counters_of_a_loop_are_told_apart_however_many_nodes_it_has(nodes: int) -> None:
    """The counter of one node had the name that another node's function or counter had in the generated loop."""
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", name="read", **TEXT)
    for number in range(nodes):
        if number % 3 == 1:
            stream = stream.select_key(lambda key, value: key, name=f"key{number}")
        else:
            stream = stream.filter(lambda key, value, least=number: int(value) >= least, name=f"least{number}")
    stream.to("out", name="write", **TEXT)
    rig = Rig(builder.build(), loop_threshold=1)
    rig.pipe("in", *rows(300)).run()
    given = {name: count for name, (_, count) in numbers(rig).items()}
    least = 0
    for number in range(nodes):
        least = least if number % 3 == 1 else number
        assert given[f"key{number}" if number % 3 == 1 else f"least{number}"] == 300 - least
    assert given["write"] == 300 - least == len(rig.outbox.sent)


@pytest.mark.parametrize("metered", [False, True], ids=["INFO", "handler"])
def test_nodes_that_give_more_or_less_than_they_take(metered: bool) -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", name="read", **TEXT)
    parts = stream.flat_map_values(lambda value: value.split(","), name="parts")
    branches = parts.split(name="by-").branch(lambda key, value: value == "a", name="a").default_branch(name="rest")
    branches["by-a"].merge(stream, name="both").to("out", name="write", **TEXT)
    branches["by-rest"].select_key(lambda key, value: value, name="rekey").foreach(lambda key, value: None, name="end")
    rig = Rig(builder.build(), {"processing.exception.handler": "continue"} if metered else {})
    rig.pipe("in", ("k", b"a,b,c", 1), ("k", b"a", 2), ("k", b"", 3)).run()
    counted = numbers(rig)
    assert counted["read"] == (3, 3) and counted["parts"] == (3, 5)
    (split,) = (name for name in counted if name.startswith("by-") and name not in ("by-a", "by-rest"))
    assert counted[split] == (5, 5) and counted["by-a"] == (2, 2) and counted["by-rest"] == (3, 3)
    assert counted["both"] == (5, 5) and counted["write"] == (5, 5)
    assert counted["rekey"] == (3, 3) and counted["end"] == (3, 0)


def test_dropped_records_are_their_node_s_with_the_reason() -> None:
    builder = ks.StreamsBuilder()
    stream = builder.stream("in", name="read", key_serde="string", value_serde="json")
    stream.map_values(lambda value: 1 // value, name="divide").group_by_key().count(store="counts", name="count")
    config = {"processing.exception.handler": "continue", "deserialization.exception.handler": "continue"}
    rig = Rig(builder.build(), config)
    rig.pipe("in", ("k", b"{", 1), ("k", b"0", 2), ("k", b"1", 3), ("k", b"{", 4)).run()
    counted = rig.task.counts.read()
    assert counted["read"] == NodeCount(4, 2, {"deserialization": 2})
    assert counted["divide"] == NodeCount(2, 1, {"processing": 1})
    assert counted["count"].taken == 1
    assert rig.task.dropped == {"deserialization": 2, "processing": 1}


@pytest.mark.parametrize("cache", [0, 10_000_000], ids=["uncached", "cached"])
def test_rows_that_leave_a_cache_in_columns_are_counted(cache: int) -> None:
    builder = ks.StreamsBuilder()
    counts = builder.stream("in", name="read", **TEXT).group_by_key().count(store="counts", name="count")
    counts.to_stream(name="rows").to("out", name="write", key_serde="string", value_serde="long")
    rig = Rig(builder.build(), {"statestore.cache.max.bytes": cache})
    rig.pipe("in", *rows(300)).run()
    rig.task.prepare_commit()
    sent = len(rig.outbox.to("out"))
    assert sent == (10 if cache else 300)
    assert numbers(rig) == {"read": (300, 300), "count": (300, sent), "rows": (sent, sent), "write": (sent, sent)}


def test_two_sources_of_one_sub_topology_count_their_own_topics() -> None:
    builder = ks.StreamsBuilder()
    customers = builder.table("customers", name="customers", **TEXT)
    orders = builder.stream("orders", name="orders", **TEXT)
    orders.join(customers, lambda order, customer: order + customer, name="rich").to("out", name="write", **TEXT)
    rig = Rig(builder.build())
    rig.pipe("customers", ("k1", b"c", 1), ("k2", b"c", 1))
    rig.pipe("orders", *[(f"k{number % 4}", b"o", 10 + number) for number in range(200)]).run()
    counted = numbers(rig)
    sources = sorted(taken for name, (taken, _) in counted.items() if "SOURCE" in name or name in ("orders", "customers"))
    assert counted["orders"] == (200, 200) and counted["rich"] == (200, 100) and counted["write"] == (100, 100)
    assert sources.count(2) >= 1 and 202 not in sources


def test_what_a_processor_forwards_to_one_child_is_that_child_s() -> None:
    class Route(ks.Processor):
        def process(self, record: Any) -> None:
            if record.value == "both":
                self.context.forward(record)
            elif record.value != "none":
                self.context.forward(record, record.value)

        def init(self, context: Any) -> None:
            self.context = context

    topology = ks.Topology().add_source("read", "in", key_serde="string", value_serde="string")
    topology.add_processor("route", Route, "read").add_sink("left", "l", "route", **TEXT).add_sink("right", "r", "route", **TEXT)
    rig = Rig(topology)
    rig.pipe("in", *[("k", value, 1) for value in (b"left", b"left", b"right", b"both", b"none")]).run()
    assert numbers(rig) == {"read": (5, 5), "route": (5, 4), "left": (3, 3), "right": (2, 2)}


def test_counts_come_back_from_the_offset_metadata_and_go_on() -> None:
    rig = Rig(straight())
    rig.pipe("in", *rows(300)).run()
    told = decode(encode(5, {COMMIT_ID: 7}, written_counts(rig.task.counts.read())))
    assert told.commit_id == 7
    after = Rig(straight())
    after.task.counts.begin(committed_counts(told.counts, after.task.counts.read()))
    assert numbers(after) == numbers(rig)
    after.pipe("in", *rows(40)).run()
    assert numbers(after)["read"] == (340, 340) and numbers(after)["fourth"] == (340, 85)


def test_what_does_not_read_as_counts_is_none() -> None:
    written = written_counts({"a": NodeCount(2**40, 3, {"late": 4})})
    assert committed_counts(written, ["a"]) == {"a": NodeCount(2**40, 3, {"late": 4})}
    assert committed_counts(b"", ["a"]) == committed_counts(b"\x09" + written[1:], ["a"]) == {}
    assert all(committed_counts(written[:cut], ["a"]) == {} for cut in range(2, len(written)))


def test_a_driver_with_taps_counts_too() -> None:
    """As a sample is run for `Session.values`."""
    seen: list[str] = []
    with TopologyTestDriver(straight(), tap=lambda name: lambda *record: seen.append(name)) as driver:
        topic = driver.create_input_topic("in", "string", "string")
        for number in range(8):
            topic.pipe_input("k", str(number), number)
        counted = driver.node_counts
    assert (counted["fourth"].taken, counted["fourth"].given, counted["more"].given) == (8, 2, 1)
    assert seen.count("fourth") == 2
