"""Taps put on while a task runs: they see what taps compiled in would have seen, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.processor import Processor, Record
from kstreams_repl.engine.runtime.compiler.tap_points import TapPoints, sends_changes
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.testing import TopologyTestDriver

CACHE = {"statestore.cache.max.bytes": 1_000_000}


def newest(value: Any, changes: bool) -> Any:
    return value[0] if changes else value


class Seen:
    """What one node gave, as (key, value, timestamp)."""

    def __init__(self, serdes_of_rows: tuple[Any, Any] | None, changes: bool) -> None:
        self.rows_read = serdes_of_rows
        self.changes = changes
        self.got: list[tuple[str, Any, int]] = []

    def record(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
        self.got.append((str(key), newest(value, self.changes), timestamp))

    def rows(self, keys: Any, values: Any, timestamps: Any, headers: Any) -> None:
        assert self.rows_read is not None
        read_key, read_value = (serde.deserialize for serde in self.rows_read)
        for key, value, timestamp in zip(keys, values, timestamps, strict=True):
            self.got.append((str(read_key(key)), None if value is None else read_value(value), timestamp))


def words(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key_serde=serdes.string, value_serde=serdes.string)


def plain() -> Topology:
    builder = StreamsBuilder()
    words(builder).filter(lambda k, v: v != "x").map_values(str.upper).to("out", key_serde="string", value_serde="string")
    return builder.build()


def branching() -> Topology:
    builder = StreamsBuilder()
    source = words(builder)
    source.filter(lambda k, v: v > "m").merge(source.filter_not(lambda k, v: v > "m")).map_values(len).to(
        "out", key_serde="string", value_serde="json"
    )
    source.peek(lambda k, v: None).to("copy", key_serde="string", value_serde="string")
    return builder.build()


def merging_into_a_sink() -> Topology:
    builder = StreamsBuilder()
    source = words(builder)
    source.map_values(str.lower).merge(source.map_values(str.title)).to("out", key_serde="string", value_serde="string")
    return builder.build()


def counting() -> Topology:
    builder = StreamsBuilder()
    table = words(builder).group_by_key(key_serde="string", value_serde="string").count(store="counts")
    table.to_stream().to("out", key_serde="string", value_serde="long")
    return builder.build()


def windows() -> Topology:
    builder = StreamsBuilder()
    grouped = words(builder).group_by_key(key_serde="string", value_serde="string")
    grouped.windowed_by(TimeWindows.of_size(10)).count(store="windows").to_stream().to(
        "out", key_serde=serdes.time_windowed(serdes.string, 10), value_serde="long"
    )
    return builder.build()


def table_filter() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("in", key_serde="string", value_serde="string", store="rows")
    table.filter(lambda k, v: v != "x").map_values(str.upper).to_stream().to("out", key_serde="string", value_serde="string")
    return builder.build()


class Splitter(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record, "short" if len(record.value) < 3 else "long")


def processors() -> Topology:
    class Pass(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record)

    topology = Topology().add_source("from-in", "in", key_serde=serdes.string, value_serde=serdes.string)
    topology.add_processor("split", Splitter, "from-in")
    topology.add_processor("short", Pass, "split").add_processor("long", Pass, "split")
    return topology.add_sink("to-out", "out", "short", "long", key_serde=serdes.string, value_serde=serdes.string)


TOPOLOGIES = [plain, branching, merging_into_a_sink, counting, windows, table_filter, processors]
RECORDS = [(f"k{i % 3}", word, i * 4) for i, word in enumerate(["to", "x", "Nobler", "zeal", "be", "x", "question", "or"])]


def feed(driver: TopologyTestDriver, records: Any) -> None:
    for key, value, timestamp in records:
        driver.pipe_bytes("in", key.encode(), value.encode(), timestamp, [])


def points_of(driver: TopologyTestDriver) -> TapPoints:
    assert driver._task is not None
    return driver._task.services.points


def output(driver: TopologyTestDriver) -> dict[str, Any]:
    return {topic: list(rows) for topic, rows in driver._outputs.items()}


@pytest.mark.parametrize("make", TOPOLOGIES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("config", [{}, CACHE], ids=["uncached", "cached"])
def test_a_tap_put_on_while_running_sees_what_a_compiled_one_sees(make: Callable[[], Topology], config: dict[str, Any]) -> None:
    topology = make()
    expected: dict[str, list[Any]] = {name: [] for name in topology.nodes}

    def compiled(name: str) -> Any:
        changes = sends_changes(topology.nodes[name])
        return lambda key, value, timestamp, headers: expected[name].append((str(key), newest(value, changes), timestamp))

    with TopologyTestDriver(topology, config, start_ms=0, tap=compiled) as driver:
        feed(driver, RECORDS[:4])
        for seen in expected.values():
            seen.clear()
        feed(driver, RECORDS[4:])
    with TopologyTestDriver(topology, config, start_ms=0) as driver:
        feed(driver, RECORDS[:4])
        assert driver._task is not None
        taps = {name: Seen(driver._task.services.row_serdes.get(name), sends_changes(node)) for name, node in topology.nodes.items()}
        for name, seen in taps.items():
            assert points_of(driver).of(name), name
            for point in points_of(driver).of(name):
                point.attach(seen)
        feed(driver, RECORDS[4:])
        assert {name: seen.got for name, seen in taps.items()} == expected


@pytest.mark.parametrize("make", TOPOLOGIES, ids=lambda make: make.__name__)
def test_output_is_the_same_with_a_tap_put_on_and_taken_off(make: Callable[[], Topology]) -> None:
    topology = make()
    with TopologyTestDriver(topology, CACHE, start_ms=0) as driver:
        feed(driver, RECORDS)
        expected = output(driver)
    with TopologyTestDriver(topology, CACHE, start_ms=0) as driver:
        feed(driver, RECORDS[:2])
        seen = Seen((serdes.bytes_, serdes.bytes_), False)
        for name in topology.nodes:
            for point in points_of(driver).of(name):
                point.attach(seen)
        feed(driver, RECORDS[2:5])
        count = len(seen.got)
        assert count
        for name in topology.nodes:
            for point in points_of(driver).of(name):
                point.detach(seen)
        feed(driver, RECORDS[5:])
        assert len(seen.got) == count
        assert output(driver) == expected


def test_an_observer_that_raises_is_taken_off_and_disturbs_nothing() -> None:
    class Broken(Seen):
        def record(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
            super().record(key, value, timestamp, headers)
            raise RuntimeError("no")

    with TopologyTestDriver(plain(), start_ms=0) as driver:
        seen = Broken(None, False)
        (point,) = points_of(driver).of("KSTREAM-FILTER-0000000001")
        point.attach(seen)
        feed(driver, RECORDS)
        assert len(seen.got) == 1
        assert len(output(driver)["out"]) == 6


def test_two_taps_on_one_node_come_and_go_by_themselves() -> None:
    with TopologyTestDriver(plain(), start_ms=0) as driver:
        one, two = Seen(None, False), Seen(None, False)
        (point,) = points_of(driver).of("KSTREAM-FILTER-0000000001")
        point.attach(one)
        point.attach(two)
        feed(driver, RECORDS[:1])
        point.detach(one)
        feed(driver, RECORDS[2:3])
        assert (len(one.got), len(two.got)) == (1, 2)
