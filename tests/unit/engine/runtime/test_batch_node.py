"""Batch nodes in a task: when batches are cut, in which order results leave, who decides about errors; loops equal entries."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.runtime.batches import batch_node
from kstreams_repl.engine.runtime.batches.batch_mixing import Mixing, mixing_of
from kstreams_repl.engine.runtime.queues.columnar_queue import FusedQueue
from kstreams_repl.engine.serdes import json
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.system.errors import SerializationError, StreamsProcessingError
from kstreams_repl.system.types import TopicPartition
from tests.unit.engine.runtime.rig import Rig

COLUMNS = {"n": int}
STRING_JSON: dict[str, Any] = {"key_serde": "string", "value_serde": "json"}
NEVER = 1 << 40


def numbers(count: int) -> list[tuple[str, Any, int]]:
    return [(f"k{at % 7}", {"n": at}, at) for at in range(count)]


class Sizes:
    """A mapper that keeps the sizes of its batches."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, batch: Any) -> Any:
        self.seen.append(batch.num_rows)
        return batch


def rig_of(build: Callable[[Any, Any], None], *, loop_threshold: int = 32, **config: Any) -> Rig:
    builder = ks.StreamsBuilder()
    build(builder, builder.stream("in", **STRING_JSON))
    return Rig(builder.build(), config, loop_threshold=loop_threshold)


def values(rig: Rig, topic: str = "out") -> list[Any]:
    return [json.deserialize(value) for _, value, _ in rig.outbox.to(topic)]


# ---- loops and entries -------------------------------------------------------------------------------------------------------------


def by_sql(stream: Any) -> Any:
    query = "SELECT n, n * 2 AS twice, key AS k, epoch_ms(timestamp) AS at, this.offset FROM this WHERE n % 3 <> 0"
    return stream.sql(query, columns=COLUMNS)


def by_value(stream: Any) -> Any:
    return stream.sql("SELECT value FROM this WHERE (value->>'n')::INT % 3 <> 0")


def by_batches(stream: Any) -> Any:
    def doubled(batch: Any) -> Any:
        kept = batch.filter(pa.array([n is None or n % 2 == 0 for n in batch["n"].to_pylist()]))
        return kept.append_column("text", kept["n"].cast("string")) if hasattr(kept, "append_column") else kept

    return stream.map_batches(doubled, columns=COLUMNS)


def by_groups(stream: Any) -> Any:
    query = "SELECT count(*) AS n, sum(n) AS total, avg(n) AS mean FROM this WHERE n % 3 <> 0 GROUP BY key"
    return stream.sql(query, columns=COLUMNS, store="totals").to_stream()


@pytest.mark.parametrize("way", [by_sql, by_value, by_batches, by_groups])
@pytest.mark.parametrize("behind", ["topic", "functions", "count"])
def test_loops_equal_entries(way: Callable[[Any], Any], behind: str) -> None:
    def build(builder: Any, stream: Any) -> None:
        found = way(stream)
        if behind == "functions":
            found = found.filter(lambda key, value: value is None or value.get("n") != 4).map_values(lambda value: [value])
        if behind == "count":
            windowed = found.group_by_key(**STRING_JSON).windowed_by(ks.TimeWindows.of_size(timedelta(milliseconds=50)))
            found = windowed.count(store="counts").to_stream().select_key(lambda key, value: f"{key.key}{key.start}")
        found.to("out", **STRING_JSON)

    chance = random.Random(5)
    rows: list[tuple[Any, ...]] = []
    for at in range(900):
        value = None if at % 40 == 7 else {"n": chance.randrange(50), "more": "\u00fc\n"}
        key, headers = None if at % 50 == 3 else f"k\u00fc{at % 5}", [("h", b"1")] if at % 9 == 0 else None
        rows.append((key, value, at - 30 * (at % 60 == 9) + 50, headers))
    seen = []
    for threshold in (NEVER, 1):
        rig = rig_of(build, loop_threshold=threshold)
        for start in (0, 300, 600):
            rig.pipe("in", *rows[start : start + 300]).run()
        plan = rig.commit()
        seen.append((rig.outbox.sent, rig.task.counts.read(), rig.task.dropped, plan))
    assert len(seen[0][0]) >= (20 if way is by_groups else 100)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("size", [20, 300_000])
def test_json_is_read_in_blocks_and_a_value_may_be_longer_than_one(size: int) -> None:
    def build(builder: Any, stream: Any) -> None:
        stream.sql("SELECT n, length(text) AS size FROM this", columns={"n": int, "text": str}).to("out", **STRING_JSON)

    rig = rig_of(build, loop_threshold=1)
    count = 12_000_000 // size if size > 1000 else 16_000
    rig.pipe("in", *((f"k{at % 7}", {"n": at, "text": "\u00fc" * (size if at % 5 == 3 else 20)}, at) for at in range(count))).run()
    assert values(rig) == [{"n": at, "size": size if at % 5 == 3 else 20} for at in range(count)]


def test_a_source_gives_its_columns_to_a_batch_node() -> None:
    sizes = Sizes()
    rig = rig_of(lambda builder, stream: stream.map_batches(sizes, columns=COLUMNS).to("out", **STRING_JSON))
    (queue,) = rig.task.group.queues.values()
    assert isinstance(queue, FusedQueue)
    most = batch_node.BATCH_RECORDS
    rig.pipe("in", *numbers(most + 3_000)).run()
    assert sizes.seen == [most, 3_000]
    assert [value["n"] for value in values(rig)] == list(range(most + 3_000))


def test_behind_another_node_a_batch_is_what_the_task_was_given() -> None:
    sizes = Sizes()
    rig = rig_of(lambda builder, stream: stream.filter(lambda k, v: True).map_batches(sizes, columns=COLUMNS).to("out", **STRING_JSON))
    rig.pipe("in", *numbers(500)).run(200)
    assert (sizes.seen, len(values(rig))) == ([200], 200)
    rig.run()
    assert (sizes.seen, len(values(rig))) == ([200, 300], 500)


def test_batches_have_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_node, "BATCH_RECORDS", 64)
    sizes = Sizes()
    rig = rig_of(lambda builder, stream: stream.filter(lambda k, v: True).map_batches(sizes, columns=COLUMNS).to("out", **STRING_JSON))
    rig.pipe("in", *numbers(150)).run()
    assert sizes.seen == [64, 64, 22]


# ---- order -------------------------------------------------------------------------------------------------------------------------


def test_a_join_s_other_side_is_processed_between_the_batches_it_separates() -> None:
    sizes = Sizes()

    def build(builder: Any, stream: Any) -> None:
        table = builder.table("table", store="table", **STRING_JSON)
        stream.map_batches(sizes, columns=COLUMNS).join(table, lambda value, row: [value["n"], row]).to("out", **STRING_JSON)

    for threshold in (NEVER, 1):
        sizes.seen.clear()
        rig = rig_of(build, loop_threshold=threshold)
        rig.pipe("table", ("a", "first", 0), ("a", "second", 50), ("a", "third", 70))
        rig.pipe("in", *(("a", {"n": at}, at) for at in range(10, 100, 10))).run()
        assert values(rig) == [[at, "first" if at < 50 else "second" if at < 70 else "third"] for at in range(10, 100, 10)]
        assert sizes.seen == [4, 2, 3] or sizes.seen == [5, 2, 2], "equal times: either side may come first"


def test_a_record_that_also_goes_another_way_does_not_wait() -> None:
    def build(builder: Any, stream: Any) -> None:
        stream.map_batches(lambda batch: batch, columns=COLUMNS).merge(stream.map_values(lambda v: {"n": -v["n"]})).to("out", **STRING_JSON)

    rig = rig_of(build)
    rig.pipe("in", *numbers(4)[1:]).run()
    assert [value["n"] for value in values(rig)] == [1, -1, 2, -2, 3, -3]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda b, s: s.map_batches(len, name="x").to("out"), Mixing.NOTHING),
        (lambda b, s: (s.map_batches(len, name="x").to("out"), s.to("copy")), Mixing.NOTHING),
        (lambda b, s: (s.map_batches(len, name="x").to("out"), s.to("out")), Mixing.RECORDS),
        (lambda b, s: s.map_batches(len, name="x").merge(b.stream("other")).to("out"), Mixing.QUEUES),
        (lambda b, s: s.merge(b.stream("other")).map_batches(len, name="x").to("out"), Mixing.NOTHING),
        (lambda b, s: s.map_values(len).map_batches(len, name="x").merge(s.map_values(len)).to("out"), Mixing.RECORDS),
        (lambda b, s: s.map_batches(len).map_batches(len, name="x").to("out"), Mixing.NOTHING),
    ],
)
def test_whether_records_may_wait(build: Any, expected: Mixing) -> None:
    builder = ks.StreamsBuilder()
    build(builder, builder.stream("in"))
    topology = builder.build()
    assert mixing_of("x", topology.nodes) is expected


def test_a_store_that_both_sides_use_is_mixing() -> None:
    class Writes(ks.Processor):
        def process(self, record: Any) -> None: ...

    builder = ks.StreamsBuilder()
    builder.add_state_store(ks.Stores.key_value_store_builder(ks.Stores.in_memory_key_value_store("s"), "string", "json"))
    stream = builder.stream("in")
    stream.map_batches(len, name="x").process(Writes, stores=["s"])
    stream.process(Writes, stores=["s"])
    assert mixing_of("x", builder.build().nodes) is Mixing.RECORDS


def test_what_is_behind_a_batch_sees_the_stream_time_and_the_context_of_each_record() -> None:
    seen: list[Any] = []

    class Looks(ks.Processor):
        def process(self, record: Any) -> None:
            at = self.context.record_metadata()
            seen.append((record.value["n"], self.context.current_stream_time_ms(), at.offset, record.timestamp))

    for threshold in (NEVER, 1):
        seen.clear()
        rig = rig_of(lambda b, s: s.map_batches(lambda batch: batch, columns=COLUMNS).process(Looks), loop_threshold=threshold)
        rig.pipe("in", *(("a", {"n": at}, time) for at, time in enumerate((5, 9, 3, 12)))).run()
        assert seen == [(0, 5, 0, 5), (1, 9, 1, 9), (2, 9, 2, 3), (3, 12, 3, 12)]
        assert rig.task.services.clock.now == 12


def test_what_punctuations_and_caches_forward_leaves_before_the_commit() -> None:
    sizes = Sizes()

    def build(builder: Any, stream: Any) -> None:
        counts = stream.group_by_key(**STRING_JSON).count(store="counts")
        counts.to_stream().map_values(lambda n: {"n": n}).map_batches(sizes, columns=COLUMNS).to("out", **STRING_JSON)

    rig = rig_of(build, **{"statestore.cache.max.bytes": 1_000_000})
    rig.pipe("in", *numbers(21)).run()
    assert (sizes.seen, values(rig)) == ([], [])
    rig.commit()
    assert (sizes.seen, values(rig)) == ([7], [{"n": 3}] * 7)


def test_functions_on_threads_before_and_behind_a_batch_node_keep_the_order() -> None:
    def build(builder: Any, stream: Any) -> None:
        doubled = stream.map_values(lambda value: {"n": value["n"] * 2})
        doubled.sql("SELECT n FROM this", columns=COLUMNS).map_values(lambda value: value["n"]).to("out", **STRING_JSON)

    rig = rig_of(build, **{"num.stream.threads": 2, "num.threads.per.task": 2})
    rig.pipe("in", *numbers(100)).run()
    assert values(rig) == list(range(0, 200, 2))


# ---- errors ------------------------------------------------------------------------------------------------------------------------


def fails(batch: Any) -> Any:
    if 77 in batch["n"].to_pylist():
        raise ValueError("seventy-seven")
    return batch


@pytest.mark.parametrize("threshold", [NEVER, 1])
def test_a_stack_shows_the_node_that_runs(threshold: int) -> None:
    seen: list[Any] = []

    def looks(batch: Any) -> Any:
        seen.append(rig.task.node_at(sys._getframe()))
        return batch

    def build(builder: Any, stream: Any) -> None:
        first = stream.map_batches(looks, columns=COLUMNS, name="first")
        first.map_batches(looks, columns=COLUMNS, name="second").to("out", **STRING_JSON)

    rig = rig_of(build, loop_threshold=threshold)
    rig.pipe("in", *numbers(40)).run()
    assert seen == ["first", "second"]


@pytest.mark.parametrize("threshold", [NEVER, 1])
def test_an_error_names_node_record_and_line_and_nothing_behind_it_leaves(threshold: int) -> None:
    rig = rig_of(lambda b, s: s.map_batches(fails, columns=COLUMNS, name="risky").to("out", **STRING_JSON), loop_threshold=threshold)
    with pytest.raises(StreamsProcessingError, match="ValueError: seventy-seven") as caught:
        rig.pipe("in", *numbers(200)).run()
    assert (caught.value.node, caught.value.fields["offset"]) == ("risky", 77)
    assert "raise ValueError" in str(caught.value.fields["user_line"])
    assert [value["n"] for value in values(rig)] == list(range(77))


def test_the_exception_handler_decides_about_each_record() -> None:
    config = {"processing.exception.handler": "continue", "errors.dead.letter.queue.topic.name": "dead"}
    rig = rig_of(lambda b, s: s.map_batches(fails, columns=COLUMNS).to("out", **STRING_JSON), **config)
    rig.pipe("in", *numbers(100), ("k", {"n": "x"}, 100)).run()
    assert [value["n"] for value in values(rig)] == [at for at in range(100) if at != 77]
    assert [value for _, value, _ in rig.outbox.to("dead")] == [b'{"n":77}', b'{"n":"x"}']
    assert rig.task.dropped == {"processing": 2}


@pytest.mark.parametrize("threshold", [NEVER, 1])
def test_an_error_behind_the_node_is_not_taken_for_one_of_its_own(threshold: int) -> None:
    def breaks(value: Any) -> Any:
        if value["n"] == 5:
            raise KeyError("behind")
        return value

    sizes = Sizes()
    rig = rig_of(
        lambda b, s: s.map_batches(sizes, columns=COLUMNS).map_values(breaks, name="behind").to("out", **STRING_JSON),
        loop_threshold=threshold,
    )
    with pytest.raises(StreamsProcessingError, match="behind") as caught:
        rig.pipe("in", *numbers(100)).run()
    assert (caught.value.node, caught.value.fields["offset"]) == ("behind", 5)
    assert sizes.seen == [100], "the batch was not tried again"


@pytest.mark.parametrize("handler", ["fail", "continue"])
def test_a_value_that_is_no_json_goes_to_the_deserialization_handler(handler: str) -> None:
    rows: list[tuple[Any, ...]] = [*numbers(100)]
    rows[40], rows[41], rows[60] = ("k", b'{"n":1}{"n":2}', 40), ("k", b"  ", 41), ("k", b'{"n":1,', 60)
    config = {"deserialization.exception.handler": handler}
    rig = rig_of(lambda b, s: s.sql("SELECT n FROM this", columns=COLUMNS).to("out", **STRING_JSON), loop_threshold=1, **config)
    rig.pipe("in", *rows)
    if handler == "fail":
        with pytest.raises(SerializationError, match="in-0 offset 40"):
            rig.run()
        assert len(values(rig)) == 40
    else:
        rig.run()
        assert [value["n"] for value in values(rig)] == [at for at in range(100) if at not in (40, 41, 60)]
        assert rig.task.dropped == {"deserialization": 3}


@pytest.mark.parametrize("text", [b'{\n "n": 5\n}', b' {"n":5}', b'{"n":5}\r\n', b'{"n":5,"n":5}', b'{"n":5, "x":"\xff"}'])
def test_json_may_be_written_in_any_way(text: bytes) -> None:
    rig = rig_of(lambda b, s: s.sql("SELECT n FROM this", columns=COLUMNS).to("out", **STRING_JSON), loop_threshold=1)
    rig.pipe("in", ("a", {"n": 4}, 0), ("b", text, 1), ("c", {"n": 6}, 2)).run()
    assert [value["n"] for value in values(rig)] == [4, 5, 6]


@pytest.mark.parametrize("threshold", [NEVER, 1])
def test_json_s_null_is_a_deletion(threshold: int) -> None:
    rig = rig_of(lambda b, s: s.sql("SELECT n FROM this", columns=COLUMNS).to("out", **STRING_JSON), loop_threshold=threshold)
    rig.pipe("in", ("a", {"n": 4}, 0), ("b", b"null", 1), ("c", b" null", 2)).run()
    assert [value for _, value, _ in rig.outbox.to("out")] == [b'{"n":4}', None, None]


def test_an_interrupt_passes_through() -> None:
    def interrupted(batch: Any) -> Any:
        raise KeyboardInterrupt

    for threshold in (NEVER, 1):
        rig = rig_of(lambda b, s: s.map_batches(interrupted, columns=COLUMNS).to("out", **STRING_JSON), loop_threshold=threshold)
        with pytest.raises(KeyboardInterrupt):
            rig.pipe("in", *numbers(50)).run()


# ---- taps and counts ---------------------------------------------------------------------------------------------------------------


def test_a_tapped_node_shows_its_records_and_gives_its_columns_again_afterwards() -> None:
    seen: list[Any] = []

    class Observer:
        def record(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
            seen.append((key, value["n"], timestamp))

        def rows(self, keys: Any, values: Any, timestamps: Any, headers: Any) -> None:
            seen.append("rows")

    rig = rig_of(lambda b, s: s.sql("SELECT n FROM this", columns=COLUMNS, name="q").to("out", **STRING_JSON), loop_threshold=1)
    observer = Observer()
    for point in rig.task.services.points.of("q"):
        point.attach(observer)
    rig.pipe("in", *numbers(3)).run()
    assert seen == [("k0", 0, 0), ("k1", 1, 1), ("k2", 2, 2)]
    for point in rig.task.services.points.of("q"):
        point.detach(observer)
    rig.pipe("in", *numbers(3)).run()
    assert len(seen) == 3
    assert len(values(rig)) == 6


def test_a_commit_covers_what_was_processed() -> None:
    rig = rig_of(lambda b, s: s.sql("SELECT n FROM this", columns=COLUMNS, name="q").to("out", **STRING_JSON))
    rig.pipe("in", *numbers(500)).run(300)
    assert rig.commit().offsets == {TopicPartition("in", 0): 300}
    assert len(values(rig)) == 300
    source = next(node.name for node in rig.task.spec.subtopology.nodes if isinstance(node, SourceNode))
    counts = rig.task.counts.read()
    assert (counts[source].given, counts["q"].taken, counts["q"].given) == (300, 300, 300)


def test_a_task_that_is_traced_gives_each_record_alone() -> None:
    from kstreams_repl.engine.config import StreamsConfig
    from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
    from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
    from kstreams_repl.system.types import RecordBatch, TaskId
    from tests.unit.engine.runtime.rig import DEFAULTS, Outbox

    class Silent:
        def at(self, *place: Any) -> None: ...

    sizes = Sizes()
    builder = ks.StreamsBuilder()
    builder.stream("in", **STRING_JSON).map_batches(sizes, columns=COLUMNS).to("out", **STRING_JSON)
    (sub,) = builder.build().subtopologies()
    source, at = next(node.name for node in sub.nodes if isinstance(node, SourceNode)), TopicPartition("in", 0)
    spec = TaskSpec("app", sub, TaskId(0, 0), {at: source}, StreamsConfig(DEFAULTS))
    trace: Any = Silent()
    task = StreamTask(spec, environment=MemoryEnvironment(), collector=Outbox(), wall_clock=lambda: 0, trace=trace)
    task.initialize()
    task.set_lag(at, 0)
    task.add_records(at, RecordBatch([b"a"] * 3, [b'{"n":1}'] * 3, [1, 2, 3], [0, 1, 2]))
    task.process(10)
    assert sizes.seen == [1, 1, 1]
