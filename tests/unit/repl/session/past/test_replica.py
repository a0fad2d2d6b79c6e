"""A replica of a task does, byte by byte, what the deployed engine did."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.repl.session.views.past.replay.replica import TaskReplica
from kstreams_repl.system.types import RecordBatch, TopicPartition
from kstreams_repl.test_driver.virtual_calls import MemoryResultLog
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.repl.session.past.workloads import (
    Feeder,
    batches,
    buffers,
    everything,
    from_the_start,
    random_input,
    rows_of,
    spec_of,
)


@pytest.mark.parametrize(
    ("make", "seed", "count", "settings"),
    [
        (everything, 1, 300, {"statestore.cache.max.bytes": 0}),
        (everything, 2, 1000, {}),
        (everything, 3, 300, {"dsl.store.format": "HEADERS"}),
        (buffers, 4, 300, {"statestore.cache.max.bytes": 0}),
        (buffers, 5, 1000, {}),
        (buffers, 6, 300, {"dsl.store.format": "HEADERS", "default.dsl.store": "in_memory"}),
    ],
)
def test_stepped_records_are_byte_equal_to_the_deployed_engine(
    make: Callable[[], ks.Topology], seed: int, count: int, settings: dict[str, object]
) -> None:
    topology = make()
    spec = spec_of(topology, **settings)
    with (
        TopologyTestDriver(topology, settings, mode="deployed", start_ms=0) as driver,
        TaskReplica(spec, starts=from_the_start(spec)) as replica,
    ):
        feeder, dropped = Feeder(replica), 0
        for number, piped in enumerate(random_input(seed, count)):
            driver.pipe_bytes(*piped)
            feeder.feed(*piped)
            trace = replica.step_record()
            assert trace is not None and trace.error is None, trace
            assert trace.position[:2] == (piped[0], 0)
            sent = {(r.topic, r.key, r.value, r.timestamp) for r in trace.sent}
            expected = {
                (topic, r.key, r.value, r.timestamp) for topic in driver.produced_topic_names() for r in driver._outputs[topic]
            }
            assert sent == expected, f"record {number}: {piped}"
            by_topic: dict[str, list[Any]] = {}
            for r in trace.sent:
                by_topic.setdefault(r.topic, []).append((r.key, r.value, r.timestamp))
            for topic, queue in driver._outputs.items():
                assert [(r.key, r.value, r.timestamp) for r in queue] == by_topic.get(topic, []), f"record {number}, {topic}"
                queue.clear()
            dropped += sum(len(visit.drops) for visit in trace.visits)
        assert dropped == driver.dropped > 0
        task: Any = driver._task
        assert rows_of(replica._environment, replica.spec) == rows_of(task.environment, task.spec)


def test_running_to_a_record_equals_stepping_to_it() -> None:
    spec, rows = spec_of(everything()), sorted(random_input(3, 400), key=lambda row: row[3])
    for number, position in ((0, "orders-0@0"), (1, "orders-0@150"), (2, "names-0@40")):
        target = ks.types.RecordPosition.parse(position)
        with TaskReplica(spec, starts=from_the_start(spec)) as stepped, TaskReplica(spec, starts=from_the_start(spec)) as ran:
            for partition, batch in batches(rows).items():
                stepped.feed(partition, batch)
                ran.feed(partition, batch)
            traces = []
            while not traces or traces[-1].position != target:
                trace = stepped.step_record()
                assert trace is not None
                traces.append(trace)
            assert ran.run_to(target) == len(traces) - 1, number
            trace = ran.step_record()
            assert trace is not None and trace.position == target
            assert trace.sent == traces[-1].sent
            assert rows_of(ran._environment, ran.spec) == rows_of(stepped._environment, stepped.spec)


def test_a_replica_goes_on_from_a_commit_with_its_times_and_its_state(tmp_path: Any) -> None:
    spec, rows = spec_of(everything()), sorted(random_input(4, 300), key=lambda row: row[3])
    target = ks.types.RecordPosition("orders", 0, 100)
    with TaskReplica(spec, starts=from_the_start(spec)) as first:
        for partition, batch in batches(rows).items():
            first.feed(partition, batch)
        first.run_to(target)
        first._environment.copy_to(str(tmp_path / "state"))  # type: ignore[attr-defined]
        starts, expected = first.starts, [first.step_record() for _ in range(50)]
    assert starts[TopicPartition("orders", 0)].offset == 100
    with TaskReplica(spec, starts=starts, state=tmp_path / "state") as second:
        for partition, batch in batches(rows).items():
            second.feed(partition, batch)
        assert second.run_to(target) == 0
        again = [second.step_record() for _ in range(50)]
    assert [trace.sent for trace in again if trace] == [trace.sent for trace in expected if trace]


def test_a_trace_shows_nodes_in_order_with_inputs_outputs_and_rows() -> None:
    spec = spec_of(everything())
    with TaskReplica(spec, starts=from_the_start(spec)) as replica:
        feeder, long = Feeder(replica), ks.serdes.long.serialize
        feeder.feed("names", b"a", b"ann", 1000)
        feeder.feed("orders", b"a", long(3), 1001)
        feeder.feed("orders", b"a", long(7), 1002)
        assert replica.step_record() is not None
        trace = replica.step_record()
        assert trace is not None and str(trace.position) == "orders-0@0"
        visits = {visit.node: visit for visit in trace.visits}
        assert [visit.node for visit in trace.visits][:5] == ["orders", "good", "plus-one", "twice", "to-kept"]
        assert visits["twice"].input == ("a", 4, 1001, []) and visits["twice"].outputs == [("a", 8, 1001, [])]
        assert visits["to-kept"].sent == [("kept", b"a", long(8), 1001, [], 0)]
        assert visits["join"].stores == [("names", "get", "a", ("ann", 1000), ("ann", 1000), True)]
        [get, put] = [access for access in visits["running"].stores if access.store == "running"][:2]
        assert get == ("running", "get", "a", None, None, True) and put == ("running", "put", "a", None, 3, True)
        [counted, flushed] = [visit for visit in trace.visits if visit.node == "count"]
        assert counted.stores[-1] == ("counts", "put", "a", None, (1, 1001), True) and counted.outputs == []
        assert flushed.input is None and flushed.outputs == [("a", (1, None, True), 1001, [])]
        assert visits["running"].outputs == [("a", 3, 1001, [])] and visits["split-odd"].input is not None
        second = replica.step_record()
        assert second is not None
        assert [visit for visit in second.visits if visit.node == "good"][0].outputs == []
        assert "plus-one" not in {visit.node for visit in second.visits}
        assert "▶" in second.table(1).text() and "orders-0@1" in second.table().text()
        assert replica.step_record() is None


def test_a_late_record_is_dropped_with_its_reason() -> None:
    spec = spec_of(everything())
    with TaskReplica(spec, starts=from_the_start(spec)) as replica:
        feeder, one = Feeder(replica), ks.serdes.long.serialize(1)
        feeder.feed("orders", b"a", one, 1000)
        feeder.feed("orders", b"a", one, 100)
        assert replica.step_record() is not None
        trace = replica.step_record()
        assert trace is not None
        assert {visit.node for visit in trace.visits if visit.drops} >= {"windows", "sessions"}


def test_a_record_that_cannot_be_read_fails_in_its_own_step() -> None:
    spec = spec_of(everything())
    with TaskReplica(spec, starts=from_the_start(spec)) as replica:
        feeder = Feeder(replica)
        feeder.feed("orders", b"a", ks.serdes.long.serialize(1), 1000)
        feeder.feed("orders", b"a", b"short", 1001)
        replica.run_to(ks.types.RecordPosition("orders", 0, 0))
        first, second = replica.step_record(), replica.step_record()
        assert first is not None and first.error is None
        assert second is not None and str(second.position) == "orders-0@1"
        assert isinstance(second.error, ks.errors.SerializationError)


def test_a_record_of_a_join_that_cannot_be_read_fails_in_its_own_step_after_the_earlier_ones() -> None:
    spec = spec_of(everything())
    with TaskReplica(spec, starts=from_the_start(spec)) as replica:
        rows: list[Any] = [("names", b"a", b"x", 1), ("orders", b"a", b"short", 2), ("names", b"a", b"y", 3)]
        for partition, batch in batches(rows).items():
            replica.feed(partition, batch)
        assert replica.run_to(ks.types.RecordPosition("orders", 0, 0)) == 1
        trace = replica.step_record()
        assert trace is not None and str(trace.position) == "orders-0@0"
        assert isinstance(trace.error, ks.errors.SerializationError)


def test_a_partition_of_another_task_is_refused() -> None:
    spec = spec_of(everything())
    with TaskReplica(spec, starts=from_the_start(spec)) as replica:
        with pytest.raises(ks.errors.IllegalStateError, match="does not read other-0"):
            replica.feed(TopicPartition("other", 0), RecordBatch([None], [None], [0], [0]))
        assert replica.step_record() is None
        with pytest.raises(ks.errors.IllegalStateError, match="before it steps"):
            replica.run_to(ks.types.RecordPosition("orders", 0, 0))


def test_asynchronous_functions_take_recorded_results_and_are_called_without_one() -> None:
    called: list[int] = []

    async def priced(value: int) -> int:
        called.append(value)
        await asyncio.sleep(0.2)
        return value * 10

    builder = ks.StreamsBuilder()
    orders = builder.stream("orders", key_serde="string", value_serde="long", name="orders")
    orders.map_values_async(priced, name="price", key_serde="string", value_serde="long", durable=True).to(
        "out", key_serde="string", value_serde="long", name="to-out"
    )
    topology, rows = builder.build(), [("orders", b"a", ks.serdes.long.serialize(n), 1000 + n) for n in range(3)]
    spec = spec_of(topology)
    with TopologyTestDriver(topology, mode="deployed", start_ms=0) as driver:
        for row in rows:
            driver.pipe_bytes(*row)
        driver.advance_wall_clock_time(1000)
        host = driver._tasks.all[0].host
        assert host.calls is not None and called == [0, 1, 2]
        log: Any = MemoryResultLog()
        log.rows = {partition: list(rows) for partition, rows in host.calls.log.rows.items()}  # type: ignore[attr-defined]
        assert log.rows
    for results, calls in ((log, []), (None, [2])):
        called.clear()
        with TaskReplica(spec, starts=from_the_start(spec), results=results) as replica:
            for partition, batch in batches(rows).items():
                replica.feed(partition, batch)
            replica.run_to(ks.types.RecordPosition("orders", 0, 2))
            called.clear()
            trace = replica.step_record()
            assert trace is not None
            assert [record.value for record in trace.sent if record.topic == "out"] == [ks.serdes.long.serialize(20)]
            assert called == calls


def test_global_stores_are_read_and_in_memory_stores_are_kept_in_the_copy(tmp_path: Any) -> None:
    builder = ks.StreamsBuilder()
    rates = builder.global_table("rates", key_serde="string", value_serde="long", store="rates")
    orders = builder.stream("orders", key_serde="string", value_serde="long", name="orders")
    priced = orders.join(rates, lambda value, rate: value * rate, key=lambda key, value: key, name="priced")
    priced.group_by_key(key_serde="string", value_serde="long").reduce(
        lambda total, value: total + value, store="totals", name="total", persistent=False
    )
    topology, long = builder.build(), ks.serdes.long.serialize
    spec = spec_of(topology)
    with TopologyTestDriver(topology) as driver:
        driver.pipe_bytes("rates", b"a", long(5), 1)
        rows = [("orders", b"a", long(n), 1000 + n) for n in range(1, 4)]
        with TaskReplica(spec, starts=from_the_start(spec), global_stores=driver.all_state_stores()) as first:
            for partition, batch in batches(rows).items():
                first.feed(partition, batch)
            first.run_to(ks.types.RecordPosition("orders", 0, 2))
            first._environment.copy_to(str(tmp_path / "state"))  # type: ignore[attr-defined]
            starts = first.starts
        with TaskReplica(spec, starts=starts, state=tmp_path / "state", global_stores=driver.all_state_stores()) as second:
            for partition, batch in batches(rows).items():
                second.feed(partition, batch)
            trace = second.step_record()
            assert trace is not None
            [total] = [access for visit in trace.visits for access in visit.stores if access.call == "put"]
            assert (total.before[0], total.after[0]) == (15, 30)


def test_batch_nodes_and_threads_of_a_task_are_traced_record_by_record() -> None:
    threads: set[int] = set()

    def doubled(value: int) -> int:
        threads.add(threading.get_ident())
        return value * 2

    builder = ks.StreamsBuilder()
    orders = builder.stream("orders", key_serde="string", value_serde="json", name="orders")
    twice = orders.map_values(lambda value: {"n": doubled(value["n"])}, name="twice")
    more = twice.sql("SELECT n + 1 AS n FROM this", columns={"n": int}, name="sql")
    more.to("out", key_serde="string", value_serde="json", name="to-out")
    spec = spec_of(builder.build(), num_threads_per_task=4, num_stream_threads=4)
    with TaskReplica(spec, starts=from_the_start(spec)) as replica:
        for partition, batch in batches([("orders", b"a", b'{"n": %d}' % n, 1000 + n) for n in range(20)]).items():
            replica.feed(partition, batch)
        assert replica.run_to(ks.types.RecordPosition("orders", 0, 15)) == 15
        trace = replica.step_record()
        assert trace is not None and trace.sent[-1][1:3] == (b"a", b'{"n":31}')
        assert {visit.node for visit in trace.visits} == {"orders", "twice", "sql", "to-out"}
    assert threads == {threading.get_ident()}
