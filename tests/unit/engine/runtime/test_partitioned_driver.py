"""The test driver with several partitions (KIP-1238): tasks, partitions of records, and time are those of a deployment."""

from __future__ import annotations

from typing import Any, Literal

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.system.errors import TopologyError, UnknownTopicError

TEXT = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}
KEYS = [f"key-{number}" for number in range(40)]


@pytest.mark.parametrize("mode", ["exact", "deployed"])
def test_records_go_through_a_repartition_topic_to_the_task_of_their_key(mode: Literal["exact", "deployed"]) -> None:
    builder = ks.StreamsBuilder()
    words = builder.stream("words").group_by(lambda key, value: value).count(store="counts")
    words.to_stream().to("counted", value_serde="long")
    with ks.testing.TopologyTestDriver(builder, TEXT, partitions={"words": 3, "counted": 2}, start_ms=0, mode=mode) as driver:
        given = driver.create_input_topic("words", "string", "string")
        for number, key in enumerate(KEYS):
            given.pipe_input(key, f"word-{number % 20}")
        for record in driver.output("test-counts-repartition"):
            assert record.partition == partition_for_key(record.key or b"", 3)
        for partition in range(3):
            counts = dict(driver.state_store("counts", partition=partition).all())
            assert all(partition_for_key(word.encode(), 3) == partition for word in counts) and counts
        assert {record.partition for record in driver.output("test-counts-changelog")} == {0, 1, 2}
        of_one = driver.create_output_topic("counted", "string", "long", partition=1)
        assert {partition_for_key(key.encode(), 2) for key, _ in of_one.read_key_values()} == {1}
        assert {record.partition for record in driver.output("counted")} == {0}  # what was not read
        assert driver.node_counts["KSTREAM-SOURCE-0000000000"].taken == len(KEYS)


def test_each_task_has_its_own_stream_time() -> None:
    """One task for the whole topology drops a record as late that is not late in its own partition."""
    builder = ks.StreamsBuilder()
    windows = builder.stream("in").group_by_key().windowed_by(ks.TimeWindows.of_size_with_no_grace(10))
    windows.count(store="counts")
    late: dict[str, int] = {}
    for name, partitions in (("one task", None), ("tasks", 2)):
        driver = ks.testing.TopologyTestDriver(builder, TEXT, partitions=partitions, start_ms=0)
        given = driver.create_input_topic("in", "string", "string")
        given.pipe_input("a", "x", 100, **({"partition": 0} if partitions else {}))
        given.pipe_input("b", "x", 5, **({"partition": 1} if partitions else {}))
        late[name] = driver.dropped
        driver.close()
    assert late == {"one task": 1, "tasks": 0}


def test_topics_of_a_join_must_have_as_many_partitions() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("orders").join(builder.table("customers"), lambda order, customer: f"{order} {customer}").to("out")
    with pytest.raises(TopologyError, match=r"orders.*customers|customers.*orders"):
        ks.testing.TopologyTestDriver(builder, TEXT, partitions={"orders": 3, "customers": 2})
    with ks.testing.TopologyTestDriver(builder, TEXT, partitions=3, start_ms=0) as driver:
        customers, orders = (driver.create_input_topic(topic, "string", "string") for topic in ("customers", "orders"))
        for key in KEYS:
            customers.pipe_input(key, f"of {key}")
        for key in KEYS:
            orders.pipe_input(key, "order")
        assert driver.create_output_topic("out", "string", "string").read_values() == [f"order of {key}" for key in KEYS]


def test_a_record_in_a_partition_of_its_own_does_not_meet_its_key() -> None:
    """The mistake that a driver with one partition cannot show: a producer with another partitioner."""
    builder = ks.StreamsBuilder()
    builder.stream("orders").join(builder.table("customers"), lambda order, customer: customer).to("out")
    with ks.testing.TopologyTestDriver(builder, TEXT, partitions=2, start_ms=0) as driver:
        right = partition_for_key(b"a", 2)
        driver.create_input_topic("customers", "string", "string").pipe_input("a", "ann")
        orders = driver.create_input_topic("orders", "string", "string")
        orders.pipe_input("a", "1", partition=1 - right)
        assert driver.create_output_topic("out", "string", "string").is_empty()
        orders.pipe_input("a", "1", partition=right)
        assert driver.create_output_topic("out", "string", "string").read_values() == ["ann"]


def test_a_global_table_is_the_same_for_all_tasks_and_records_without_a_key_take_turns() -> None:
    builder = ks.StreamsBuilder()
    prices = builder.global_table("prices", store="prices")
    builder.stream("in").join(prices, lambda value, price: price, key=lambda key, value: value).to("out")
    with ks.testing.TopologyTestDriver(builder, TEXT, partitions=3, start_ms=0) as driver:
        driver.create_input_topic("prices", "string", "string").pipe_key_value_list([("x", "1"), ("y", "2")])
        driver.create_input_topic("in", "string", "string").pipe_value_list(["x", "y", "x"])
        assert sorted(record.partition for record in driver.output("out")) == [0, 1, 2]
        assert sorted(driver.create_output_topic("out", "string", "string").read_values()) == ["1", "1", "2"]
        assert driver.state_store("prices", partition=2).get("x").value == "1"


def test_punctuations_run_in_each_task_and_metrics_name_it() -> None:
    class Ticks:
        def init(self, context: Any) -> None:
            self.context = context
            context.schedule(10, ks.PunctuationType.WALL_CLOCK_TIME, self.tick)

        def process(self, record: Any) -> None: ...

        def tick(self, now: int) -> None:
            self.context.forward(ks.Record(str(self.context.task_id), str(now), now))

        def close(self) -> None: ...

    builder = ks.StreamsBuilder()
    builder.stream("in").process(Ticks).to("out")
    with ks.testing.TopologyTestDriver(builder, TEXT, partitions=3, start_ms=0) as driver:
        driver.advance_wall_clock_time(10)
        assert [key for key, _ in driver.create_output_topic("out", "string", "string").read_key_values()] == ["0_0", "0_1", "0_2"]
        totals = [metric for metric in driver.metrics() if metric.name == "dropped-records-total"]
        assert [metric.tags["task-id"] for metric in totals] == ["0_0", "0_1", "0_2"]


def test_records_that_wait_for_another_try_are_those_of_all_tasks() -> None:
    builder = ks.StreamsBuilder()
    numbers = builder.stream("in").repartition(name="by-key").map_values_async(int, name="parse", on_error="retry", retry_backoff="1s")
    numbers.to("out", value_serde="long")
    with ks.testing.TopologyTestDriver(builder, TEXT, partitions=3, start_ms=0) as driver:
        given = driver.create_input_topic("in", "string", "string")
        for key in KEYS[:6]:
            given.pipe_input(key, "not a number")
        waiting = driver.retries("parse")
        assert sorted(record.partition for record in waiting.records) == sorted(partition_for_key(key.encode(), 3) for key in KEYS[:6])
        assert driver.retries("parse").drop().after == 0


def test_partitions_that_do_not_exist_are_refused() -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in").to("out")
    with ks.testing.TopologyTestDriver(builder, TEXT, partitions={"in": 2}, start_ms=0) as driver:
        with pytest.raises(UnknownTopicError, match=r"'in', partition 2"):
            driver.create_input_topic("in", "string", "string").pipe_input("a", "1", partition=2)
        with pytest.raises(ks.KStreamsError, match="no store 's' in partition 1"):
            driver.state_store("s", partition=1)
    with pytest.raises(ValueError, match="1 partition or more"):
        ks.testing.TopologyTestDriver(builder, TEXT, partitions={"in": 0})
