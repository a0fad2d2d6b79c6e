"""A task as its host sees it: lifecycle, commit, positions, close."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.processor import Processor, Record
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import IllegalStateTransitionError, InvalidStateStoreError, StreamsProcessingError
from kstreams_repl.system.types import TopicPartition
from tests.unit.engine.runtime.rig import Rig, recording


def chain(*names: str, log: list[str]) -> Topology:
    """in -> names, each of which notes init, process and close."""

    def noting(name: str) -> Any:
        class Noting(Processor):
            def init(self, context: Any) -> None:
                super().init(context)
                log.append(f"init {name}")

            def process(self, record: Record) -> None:
                log.append(f"{name}:{record.key}")
                self.context.forward(record)
                log.append(f"/{name}")

            def close(self) -> None:
                log.append(f"close {name}")

        return Noting

    topology = Topology().add_source("from-in", "in")
    parent = "from-in"
    for name in names:
        topology.add_processor(name, noting(name), parent)
        parent = name
    return topology


class Counter(Processor):
    def process(self, record: Record) -> None:
        store = self.context.get_state_store("counts")
        store.put(record.key, (store.get(record.key) or 0) + 1)


def counting(**options: Any) -> Topology:
    builder = StoreBuilder("counts", StoreKind.KEY_VALUE, key_serde=serdes.string, value_serde=serdes.long, **options)
    topology = Topology().add_source("from-in", "in").add_processor("count", Counter, "from-in")
    return topology.add_state_store(builder, "count")


def test_processors_are_initialised_and_closed_in_topology_order() -> None:
    log: list[str] = []
    rig = Rig(chain("a", "b", "c", log=log))
    rig.task.close()
    assert log == ["init a", "init b", "init c", "close a", "close b", "close c"]


def test_forward_is_depth_first() -> None:
    log: list[str] = []
    topology = chain("a", "b", log=log)
    topology.add_processor("second-child", recording(seen := [], "x").nodes["keep"].operator, "a")
    rig = Rig(topology)
    log.clear()
    rig.pipe("in", ("k", 1, 1)).run()
    assert log == ["a:k", "b:k", "/b", "/a"]
    assert len(seen) == 1


def test_a_task_takes_no_more_records_than_it_is_allowed() -> None:
    rig = Rig(recording(seen := [], "in"))
    rig.pipe("in", *((str(i), i, i) for i in range(10)))
    assert (rig.run(3), len(seen), rig.task.buffered) == (3, 3, 7)
    assert (rig.run(3), rig.run(100), rig.run(100)) == (3, 4, 0)


def test_a_commit_plan_has_offsets_partition_times_and_stream_time() -> None:
    rig = Rig(recording([], "L", "R"), {"max.task.idle.ms": -1})
    rig.pipe("L", ("a", 1, 10), ("b", 1, 5)).pipe("R", ("c", 1, 7)).run()
    plan = rig.commit()
    assert plan.offsets == {TopicPartition("L", 0): 2, TopicPartition("R", 0): 1}
    assert plan.partition_times == {TopicPartition("L", 0): 10, TopicPartition("R", 0): 7}
    assert plan.stream_time == 10


def test_a_processor_asks_for_a_commit_and_the_commit_clears_the_wish() -> None:
    class Asks(Processor):
        def process(self, record: Record) -> None:
            self.context.commit()

    rig = Rig(Topology().add_source("from-in", "in").add_processor("asks", Asks, "from-in"))
    assert not rig.task.commit_requested
    rig.pipe("in", ("a", 1, 1)).run()
    assert rig.task.commit_requested
    rig.commit()
    assert not rig.task.commit_requested


def test_stores_write_their_changelog_to_the_tasks_own_partition() -> None:
    rig = Rig(counting(), {"repl.changelog.suppression": False}, partition=3)
    rig.pipe("in", ("a", 1, 11), ("a", 1, 12)).run()
    rig.commit()
    sent = [(topic, key, value, timestamp, partition) for topic, key, value, timestamp, _, partition in rig.outbox.sent]
    assert sent == [
        ("app-counts-changelog", b"a", (1).to_bytes(8, "big"), 11, 3),
        ("app-counts-changelog", b"a", (2).to_bytes(8, "big"), 12, 3),
    ]


def test_changelog_suppression_writes_one_record_per_key_and_commit() -> None:
    rig = Rig(counting(), {"repl.changelog.suppression": True})
    rig.pipe("in", ("a", 1, 11), ("b", 1, 12), ("a", 1, 13)).run()
    rig.commit()
    assert sorted((key, value) for key, value, _ in rig.outbox.to("app-counts-changelog")) == [
        (b"a", (2).to_bytes(8, "big")),
        (b"b", (1).to_bytes(8, "big")),
    ]


def test_a_store_without_logging_writes_no_changelog() -> None:
    rig = Rig(counting(logging=False))
    rig.pipe("in", ("a", 1, 1)).run()
    rig.commit()
    assert rig.outbox.sent == []


def test_a_cached_aggregate_forwards_on_commit_the_last_of_its_updates() -> None:
    from kstreams_repl.engine.dsl import StreamsBuilder

    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out", value_serde=serdes.long)
    rig = Rig(builder.build(), {"statestore.cache.max.bytes": 1_000_000})
    rig.pipe("in", ("a", 1, 1), ("b", 1, 2), ("a", 1, 3)).run()
    assert rig.outbox.to("out") == []
    rig.commit()
    assert rig.outbox.to("out") == [(b"b", (1).to_bytes(8, "big"), 2), (b"a", (2).to_bytes(8, "big"), 3)]


@pytest.mark.parametrize("suppression", [True, False])
def test_a_cached_aggregate_that_emits_always_forwards_every_update_and_logs_the_last_at_the_commit(suppression: bool) -> None:
    from kstreams_repl.engine.dsl import StreamsBuilder

    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts").to_stream().to("out", value_serde=serdes.long)
    always = {"statestore.cache.max.bytes": 1_000_000, "repl.emit.cached": "always", "repl.changelog.suppression": suppression}
    rig = Rig(builder.build(), always)
    rig.pipe("in", ("a", 1, 1), ("b", 1, 2), ("a", 1, 3)).run()
    one, two = ((number).to_bytes(8, "big") for number in (1, 2))
    assert rig.outbox.to("out") == [(b"a", one, 1), (b"b", one, 2), (b"a", two, 3)]
    assert rig.outbox.to("app-counts-changelog") == []
    rig.commit()
    assert sorted(rig.outbox.to("app-counts-changelog")) == [(b"a", two, 3), (b"b", one, 2)]
    assert len(rig.outbox.to("out")) == 3
    rig.pipe("in", ("a", 1, 4)).run()
    assert rig.outbox.to("out")[3:] == [(b"a", (3).to_bytes(8, "big"), 4)]


def test_a_node_reaches_only_the_stores_it_is_connected_to() -> None:
    class Nosy(Processor):
        def init(self, context: Any) -> None:
            context.get_state_store("counts")

    topology = counting().add_processor("nosy", Nosy, "from-in")
    with pytest.raises(InvalidStateStoreError, match="node nosy has no access to store 'counts'"):
        Rig(topology)


def test_a_child_that_is_not_there_is_refused_with_a_hint() -> None:
    class Sends(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record, child="righ")

    topology = Topology().add_source("from-in", "in").add_processor("sends", Sends, "from-in").add_sink("right", "out", "sends")
    rig = Rig(topology)
    with pytest.raises(Exception, match="did you mean 'right'"):
        rig.pipe("in", ("a", 1, 1)).run()


def test_an_error_in_init_names_its_node() -> None:
    class Bad(Processor):
        def init(self, context: Any) -> None:
            raise RuntimeError("not today")

    with pytest.raises(StreamsProcessingError, match="not today") as failure:
        Rig(Topology().add_source("from-in", "in").add_processor("bad", Bad, "from-in"))
    assert failure.value.node == "bad"


def test_an_error_deep_in_the_topology_names_the_innermost_node() -> None:
    from kstreams_repl.engine.dsl import StreamsBuilder

    def divide(value: int) -> float:
        return 1 / value  # the user's line

    builder = StreamsBuilder()
    builder.stream("in").filter(lambda key, value: True, name="keep-all").map_values(divide, name="divide").to("out")
    rig = Rig(builder.build())
    with pytest.raises(StreamsProcessingError, match="# the user's line") as failure:
        rig.pipe("in", ("a", 1, 1), ("b", 0, 2)).run()
    assert (failure.value.node, failure.value.offset) == ("divide", 1)


def test_close_tries_everything_and_raises_the_first_error() -> None:
    closed: list[str] = []

    def closing(name: str, fails: bool) -> Any:
        class Closing(Processor):
            def process(self, record: Record) -> None:
                """Nothing."""

            def close(self) -> None:
                closed.append(name)
                if fails:
                    raise ValueError(name)

        return Closing

    topology = Topology().add_source("from-in", "in")
    for name, fails in (("a", True), ("b", True), ("c", False)):
        topology.add_processor(name, closing(name, fails), "from-in")
    rig = Rig(topology)
    with pytest.raises(StreamsProcessingError, match="ValueError: a\n.*\n  in node a") as caught:
        rig.task.close()
    assert isinstance(caught.value.__cause__, ValueError)
    assert closed == ["a", "b", "c"]
    rig.task.close()


def test_state_is_there_again_in_a_new_task_on_the_same_environment() -> None:
    rig = Rig(counting())
    rig.pipe("in", ("a", 1, 1), ("a", 1, 2)).run()
    rig.commit()
    again = Rig(counting(), environment=rig.environment)
    assert again.task.stores["counts"].get("a") == 2
    assert again.environment.commit_id == 1


def test_a_task_that_failed_takes_processes_and_commits_nothing_more_but_closes() -> None:
    class Boom(Processor):
        def process(self, record: Record) -> None:
            raise LookupError("boom")

    rig = Rig(Topology().add_source("from-in", "in").add_processor("boom", Boom, "from-in"))
    with pytest.raises(StreamsProcessingError):
        rig.pipe("in", ("a", 1, 1)).run()
    for attempt in (rig.run, rig.commit, lambda: rig.pipe("in", ("b", 1, 2))):
        with pytest.raises(IllegalStateTransitionError, match="task 0_0 failed and cannot continue: LookupError: boom") as failure:
            attempt()
        assert isinstance(failure.value.__cause__, StreamsProcessingError)
    rig.task.close()


def flushed(topology: Any, partitions: int = 1) -> list[Any]:
    rig = Rig(topology, {"statestore.cache.max.bytes": 1_000_000, "default.value.serde": serdes.string}, partitions=partitions)
    rig.pipe("in", (b"a", b"x", 1), (b"bb", b"y", 2, [("h", b"1")]), (b"a", b"z", 3)).run()
    rig.commit()
    return [record for record in rig.outbox.sent if record[0] == "out"]


def counted(*, windowed: bool, through: bool) -> Any:
    from datetime import timedelta

    from kstreams_repl.engine.dsl import StreamsBuilder, TimeWindows

    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    table = (grouped.windowed_by(TimeWindows.of_size(timedelta(seconds=1))) if windowed else grouped).count(store="counts")
    stream = table.to_stream()
    if through:
        stream = stream.filter(lambda key, value: True)
    key_serde = serdes.time_windowed(serdes.string, 1000) if windowed else serdes.string
    stream.to("out", key_serde=key_serde, value_serde=serdes.long)
    return builder.build()


@pytest.mark.parametrize("windowed", [False, True])
def test_rows_that_go_straight_to_a_topic_are_those_that_are_forwarded(windowed: bool) -> None:
    straight, forwarded = (flushed(counted(windowed=windowed, through=through), partitions=5) for through in (False, True))
    assert straight == forwarded and len(straight) == 2
    assert straight[0][4] == [("h", b"1")]
