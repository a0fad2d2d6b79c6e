"""R22, the engine's part: sizes and shapes. Long keys on LMDB, megabytes, empty things, many partitions, wide and deep topologies.

Stores on LMDB must give what stores in memory give, in the same order, after commits and restarts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import SessionWindows, StreamsBuilder, TimeWindows
from kstreams_repl.engine.runtime.nodes.handlers import ErrorContext, Response
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.tasks.record_collector import KafkaRecordCollector
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.host.kafka.internal_topics import check_internal_topic
from kstreams_repl.host.spark.planning.task_assignment import assign_tasks
from kstreams_repl.system.errors import DeployError, ProductionError, TopologyError, UnknownTopicError
from kstreams_repl.system.types import TaskId, TopicPartition
from kstreams_repl.test_driver.driver import TopologyTestDriver
from tests.faults.host import Host, Row
from tests.unit.engine.runtime.rig import Rig

SETTINGS = {"default.key.serde": serdes.bytes, "default.value.serde": serdes.json, "statestore.cache.max.bytes": 0}
MEGABYTE = 1 << 20
SIZES = [1, 2, 50, 500, 505, 509, 510, 511, 512, 513, 519, 520, 600, 1_100, MEGABYTE]


def long_keys() -> list[bytes]:
    """Keys around LMDB's limit of 511 bytes that share long beginnings, so that many fall under the same first 511 bytes."""
    keys = (
        {bytes([97]) * size for size in SIZES}
        | {b"a" * (size - 1) + b"b" for size in SIZES}
        | {b"\xff" * size for size in (510, 511, 512)}
    )
    keys |= {b"a" * 511 + bytes([i]) for i in range(20)} | {b"a" * 520 + bytes([i, j]) for i in range(4) for j in range(4)}
    return sorted(keys)


def key_value(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().count(store="s")


def windowed(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10, grace=1_000)).count(store="s")


def sessions(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(5, grace=1_000)).count(store="s")


def topology_of(shape: Callable[[StreamsBuilder], None]) -> Topology:
    builder = StreamsBuilder()
    shape(builder)
    return builder.build()


def shuffled_rows(count: int = 400) -> list[Row]:
    rng = random.Random(22)
    keys = long_keys()
    return [(rng.choice(keys), b"1", rng.randrange(60), []) for _ in range(count)]


def rows_on_disk(topology: Topology, directory: Path) -> list[tuple[Any, Any]]:
    """All rows of store `s` as a new task on the committed environment reads them."""
    environment = LmdbEnvironment(directory / "0_0", map_bytes=1 << 30)
    try:
        return list(Rig(topology, SETTINGS, environment=environment).task.stores["s"].all())
    finally:
        environment.close()


# ---- keys over LMDB's limit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [key_value, windowed, sessions], ids=lambda shape: shape.__name__)
def test_long_keys_on_lmdb_give_what_memory_gives_in_the_same_order(
    shape: Callable[[StreamsBuilder], None], tmp_path: Path
) -> None:
    rows = shuffled_rows()
    Host(topology_of(shape), SETTINGS, tmp_path, rows, batch=90).run()
    with TopologyTestDriver(topology_of(shape), SETTINGS) as driver:
        for key, value, timestamp, headers in rows:
            driver.pipe_bytes("in", key, value, timestamp, headers)
        expected = list(driver.state_store("s").all())
    assert rows_on_disk(topology_of(shape), tmp_path) == expected
    assert len(expected) >= len({row[0] for row in rows})


def test_rows_with_long_keys_come_in_byte_order_and_are_counted_right(tmp_path: Path) -> None:
    rows = shuffled_rows()
    Host(topology_of(key_value), SETTINGS, tmp_path, rows, batch=64).run()
    expected = Counter(row[0] for row in rows)
    assert [(key, row.value) for key, row in rows_on_disk(topology_of(key_value), tmp_path)] == sorted(expected.items())


def test_ranges_and_prefixes_of_long_keys_are_exact(tmp_path: Path) -> None:
    keys = long_keys()
    Host(topology_of(key_value), SETTINGS, tmp_path, [(key, b"1", 0, []) for key in keys]).run()
    environment = LmdbEnvironment(tmp_path / "0_0", map_bytes=1 << 30)
    try:
        store = Rig(topology_of(key_value), SETTINGS, environment=environment).task.stores["s"]
        for low, high in (
            (b"a" * 510, b"a" * 512),
            (b"a" * 511, b"a" * 511 + b"\x05"),
            (b"a" * 600, b"b"),
            (b"a" * 520, b"a" * 520 + b"\x02"),
        ):
            assert [key for key, _ in store.range(low, high)] == [key for key in keys if low <= key <= high]
        prefix = b"a" * 520
        assert [key for key, _ in store.prefix_scan(prefix, serdes.bytes.serialize)] == [
            key for key in keys if key.startswith(prefix)
        ]
    finally:
        environment.close()


def test_long_keys_can_be_deleted_and_come_back(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.table("in", store="s")
    keys = long_keys()
    put: list[Row] = [(key, b"1", 0, []) for key in keys]
    deleted: list[Row] = [(key, None, 1, []) for key in keys[::2]]
    again: list[Row] = [(key, b"2", 2, []) for key in keys[::4]]
    Host(builder.build(), SETTINGS, tmp_path, [*put, *deleted, *again], batch=17).run()
    expected = dict.fromkeys(keys, 1)
    for key in keys[::2]:
        del expected[key]
    expected |= dict.fromkeys(keys[::4], 2)
    assert [(key, row.value) for key, row in rows_on_disk(builder.build(), tmp_path)] == sorted(expected.items())


# ---- large and empty -------------------------------------------------------------------------------------------------------------------


def test_a_megabyte_of_key_and_value_passes_through_stores_changelogs_and_sinks_unchanged(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    table = builder.table("in", store="s", value_serde=serdes.bytes)
    table.to_stream().to("out", value_serde=serdes.bytes)
    rng = random.Random(1)
    key, value = rng.randbytes(MEGABYTE), rng.randbytes(MEGABYTE + 1)
    host = Host(
        builder.build(),
        SETTINGS | {"repl.changelog.suppression": False},
        tmp_path,
        [(key, value, 7, [("h", rng.randbytes(MEGABYTE))])],
    )
    host.run()
    assert [(sent.topic, sent.key, sent.value, sent.timestamp) for sent in host.committed] == [
        ("app-s-changelog", key, value, 7),
        ("out", key, value, 7),
    ]
    assert rows_on_disk(builder.build(), tmp_path)[0][0] == key


def test_an_empty_key_is_a_key_and_an_empty_value_is_a_value(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.table("in", store="s", value_serde=serdes.bytes).to_stream().to("out", value_serde=serdes.bytes)
    rows: list[Row] = [(b"", b"", 0, []), (b"a", b"x", 1, []), (None, b"dropped", 2, []), (b"", b"y", 3, [])]
    host = Host(builder.build(), SETTINGS, tmp_path, rows, batch=2)
    host.run()
    assert [(sent.key, sent.value) for sent in host.sent_to("out")] == [(b"", b""), (b"a", b"x"), (b"", b"y")]
    assert [(key, row.value) for key, row in rows_on_disk(builder.build(), tmp_path)] == [(b"", b"y"), (b"a", b"x")]
    assert sum(host.dropped.values()) == 1


def test_a_record_with_ten_thousand_headers_keeps_them_in_order() -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda key, value: True).to("out")
    headers = [(f"h{i % 7}", None if i % 5 == 0 else str(i).encode()) for i in range(10_000)]
    with TopologyTestDriver(builder.build(), SETTINGS) as driver:
        driver.pipe_bytes("in", b"k", b"1", 0, headers)
        assert driver.output("out")[0].headers == headers


def test_batches_of_no_one_and_many_records_are_the_same_to_a_task() -> None:
    def outputs(sizes: list[int]) -> tuple[list[Any], int]:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().count().to_stream().to("out", value_serde=serdes.long)
        rig, number = Rig(builder.build(), SETTINGS), 0
        for size in sizes:
            rig.pipe("in", *((f"k{(number + i) % 11}".encode(), 1, number + i) for i in range(size)))
            number += size
            rig.run()
        return rig.outbox.to("out"), number

    assert outputs([0, 1, 0, 2, 19_997, 0]) == outputs([20_000])


# ---- wide and deep ---------------------------------------------------------------------------------------------------------------------


def test_a_chain_of_two_hundred_operators_runs() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    for _ in range(200):
        stream = stream.map_values(lambda value: value + 1)
    stream.to("out")
    rig = Rig(builder.build(), SETTINGS)
    rig.pipe("in", (b"a", 0, 0)).run()
    assert rig.outbox.to("out") == [(b"a", b"200", 0)]


def test_a_chain_longer_than_python_can_call_is_refused_and_through_breaks_it() -> None:
    def chain(*, broken: bool) -> StreamsBuilder:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        for number in range(1_200):
            stream = stream.through(f"part-{number}") if broken and number % 300 == 299 else stream.map_values(lambda value: value + 1)
        stream.to("out")
        return builder

    with pytest.raises(TopologyError, match="recursion limit"):
        chain(broken=False).build()
    with TopologyTestDriver(chain(broken=True).build(), SETTINGS) as driver:
        driver.pipe_bytes("in", b"a", b"0", 0)
        assert driver.output("out")[0].value == b"1196"


def test_a_thousand_children_get_a_record_in_the_order_they_were_added() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    seen: list[int] = []
    for number in range(1_000):
        stream.foreach(lambda key, value, number=number: seen.append(number))  # type: ignore[misc]
    Rig(builder.build(), SETTINGS).pipe("in", (b"a", 0, 0)).run()
    assert seen == list(range(1_000))


# ---- partitions -----------------------------------------------------------------------------------------------------------------------


def joined() -> Topology:
    builder = StreamsBuilder()
    table = builder.table("users", store="users")
    builder.stream("clicks").select_key(lambda key, value: value).join(table, lambda click, user: user).group_by_key().count(
        store="counts"
    )
    return builder.build()


def test_five_hundred_partitions_make_five_hundred_tasks_spread_evenly() -> None:
    plan = resolve_partitions(joined(), "app", {"users": 500, "clicks": 500})
    by_sub = Counter(task.subtopology for task in plan.tasks)
    assert set(by_sub.values()) == {500}
    assert {topic.partitions for topic in (*plan.repartition_topics, *plan.changelog_topics)} == {500}
    slots = assign_tasks(list(plan.tasks), 16)
    assert sorted(task for slot in slots for task in slot) == sorted(plan.tasks)
    for sub in by_sub:
        sizes = [sum(task.subtopology == sub for task in slot) for slot in slots]
        assert max(sizes) - min(sizes) <= 1


def test_a_task_stays_where_it_was_when_five_hundred_are_spread_again() -> None:
    tasks = [TaskId(0, partition) for partition in range(500)]
    first = assign_tasks(tasks, 16)
    previous = {task: slot for slot, mine in enumerate(first) for task in mine}
    assert assign_tasks(tasks, 16, previous) == first
    more = assign_tasks(tasks, 20, previous)
    assert sum(previous[task] == slot for slot, mine in enumerate(more) for task in mine) >= 400


def test_one_task_takes_five_hundred_partitions_in_the_order_of_their_heads() -> None:
    seen: list[int] = []
    builder = StreamsBuilder()
    builder.stream([f"t{i}" for i in range(500)]).foreach(lambda key, value: seen.append(value))
    rig = Rig(builder.build(), SETTINGS)
    rng = random.Random(5)
    times = rng.sample(range(10_000), 500)
    for number, at in enumerate(times):
        rig.pipe(f"t{number}", (b"k", at, at))
    rig.run()
    assert seen == sorted(times)


def test_a_topic_that_is_not_on_the_cluster_is_refused_with_the_name_that_may_be_meant() -> None:
    with pytest.raises(UnknownTopicError, match="did you mean 'cliks'") as failure:
        resolve_partitions(joined(), "app", {"users": 4, "cliks": 4})
    assert failure.value.topic == "clicks"


def test_a_record_larger_than_the_producer_may_send_is_told_with_its_topic_and_a_way_out() -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 100_000, "log_level": 0})
    collector = KafkaRecordCollector(producer, count=lambda topic: 1)
    with pytest.raises(ProductionError, match="out") as failure:
        collector.sender("out")(b"k", bytes(MEGABYTE), 1, [])
    assert failure.value.topic == "out"
    assert failure.value.hint


def test_a_record_that_is_too_large_is_counted_and_left_out_when_the_handler_says_so() -> None:
    from confluent_kafka import Producer

    class Site:
        """Says continue and keeps what it is asked."""

        def __init__(self) -> None:
            self.asked: list[Exception] = []
            self.given_up: list[Exception] = []

        def context(self) -> ErrorContext:
            return ErrorContext("sink", "0_0", "in", 0, 3, 7)

        def decide(self, context: ErrorContext, error: Exception) -> Response:
            self.asked.append(error)
            return Response.CONTINUE

        def give_up(self, context: ErrorContext, error: Exception) -> None:
            self.given_up.append(error)

    producer = Producer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 100_000, "log_level": 0})
    site = Site()
    collector = KafkaRecordCollector(producer, count=lambda topic: 1)
    collector.sender("out", site)(b"k", bytes(MEGABYTE), 1, [], None)
    assert collector.errors.dropped == 1
    assert [type(error) for error in site.asked] == [ProductionError]
    assert site.given_up == site.asked


def test_topics_of_unequal_partitions_cannot_be_joined_and_are_told_with_their_counts() -> None:
    builder = StreamsBuilder()
    builder.stream("clicks").join(builder.table("users"), lambda click, user: user).to("out")
    with pytest.raises(TopologyError, match="clicks has 4, users has 6") as failure:
        resolve_partitions(builder.build(), "app", {"users": 6, "clicks": 4})
    assert "repartition()" in str(failure.value)


def test_a_partition_added_live_leaves_the_groups_that_were_there_and_is_refused_by_a_changelog_of_the_old_size() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts")
    before = resolve_partitions(builder.build(), "app", {"in": 4})
    after = resolve_partitions(builder.build(), "app", {"in": 5})
    assert {task: after.tasks[task] for task in before.tasks} == before.tasks
    assert after.tasks[TaskId(0, 4)] == (TopicPartition("in", 4),)
    [changelog] = after.changelog_topics
    with pytest.raises(DeployError, match="has 4 partitions but the topology needs 5") as failure:
        check_internal_topic(NewTopicSpec(changelog.name, changelog.partitions, {}), 4, {})
    assert "Hint:" in str(failure.value)


def test_a_record_cache_stays_within_its_bound_while_new_keys_keep_coming() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="s")
    rig = Rig(builder.build(), SETTINGS | {"statestore.cache.max.bytes": 100_000})
    sizes = []
    for first in range(0, 20_000, 500):
        rig.pipe("in", *((f"key-{first + i}".encode(), 1, first + i) for i in range(500)))
        while rig.run(100):
            sizes.append(rig.task.cache.size)
    assert 50_000 < max(sizes) <= 100_000
    rig.commit()
    assert rig.task.cache.size <= 100_000
    assert sum(1 for _ in rig.task.stores["s"].all()) == 20_000
