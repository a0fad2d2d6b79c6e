"""Loops over columns do what the entries of the nodes do, record by record, and tell what they told."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.dsl import timestamps
from kstreams_repl.engine.dsl.timestamps import (
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wall_clock_timestamp,
)
from kstreams_repl.engine.runtime.compiler.loop_codegen import Way, node_in_loop
from kstreams_repl.engine.runtime.nodes.collector import Direct
from kstreams_repl.engine.runtime.queues.columnar_queue import LOOP_THRESHOLD, FusedQueue
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.failures.crash_location import crash_of_stack
from kstreams_repl.host.instance.tasks.record_collector import KafkaRecordCollector
from kstreams_repl.system.errors import KStreamsError, SerializationError, StreamsProcessingError
from kstreams_repl.system.types import RecordBatch
from tests.unit.engine.runtime.loop_topologies import (
    STRING,
    aggregate_lengths,
    count,
    count_read_by_others,
    fields_of_objects,
    hopping,
    hopping_summaries,
    json_values,
    numbers,
    of_numbers,
    reduce_to_longest,
    rekeyed,
    rekeyed_between_filters,
    rekeyed_new_objects,
    rekeyed_objects,
    source,
    stateless,
    summaries,
    through_an_entry,
    total,
    windows,
    windows_of_numbers,
)
from tests.unit.engine.runtime.rig import Outbox, Rig

CACHE = {"statestore.cache.max.bytes": 1_000_000}
Row = tuple[Any, ...]


def rows(count: int = 700, seed: int = 5) -> list[Row]:
    """Keys that are missing or not ASCII or not even UTF-8, tombstones, times that jump back, some headers."""
    pick = random.Random(seed)
    made: list[Row] = []
    for at in range(count):
        key = pick.choice([b"a", b"b", b"drop", b"\xc3\xa9", b"\xff\xfe", None, *(b"k%d" % number for number in range(30))])
        value = pick.choice([b"x", b"yy", b"zzz", "\u00fc".encode(), b"w%d" % pick.randrange(50)])
        headers = [("h", b"%d" % at)] if pick.random() < 0.05 else None
        made.append((key, value if pick.random() > 0.05 else None, at + pick.randrange(-60, 20) + 100, headers))
    return made


def put(rig: Rig, given: list[Row]) -> None:
    """Rows as they are, None too."""
    first = rig._offsets.get("in", 0)
    rig._offsets["in"] = first + len(given)
    put_into(rig.task, given, first)


def put_into(task: StreamTask, given: list[Row], first: int = 5_000) -> None:
    (at,) = [at for at in task.group.queues if at.topic == "in"]
    keys, values, timestamps, headers = (list(column) for column in zip(*given, strict=True))
    offsets = list(range(first, first + len(given)))
    task.add_records(at, RecordBatch(keys, values, timestamps, offsets, headers if any(headers) else None))


def queue_of(rig: Rig) -> Any:
    return next(queue for at, queue in rig.task.group.queues.items() if at.topic == "in")


def outcome(
    make: Callable[[], Topology],
    given: list[Row],
    config: dict[str, Any] | None = None,
    piece: int = 150,
    threshold: int = LOOP_THRESHOLD,
) -> Any:
    """All that can be seen of a run with a commit now and then: output, drops, what the commits say, the stores."""
    rig = Rig(make(), CACHE | (config or {}), partitions=3, loop_threshold=threshold)
    plans = []
    for start in range(0, len(given), piece):
        put(rig, given[start : start + piece])
        while rig.run(60):
            pass
        plans.append(rig.commit())
    stores = {name: list(store.all()) for name, store in rig.task.stores.items()}
    return rig.outbox.sent, rig.task.dropped, plans, stores


def by_entries(*arguments: Any, **options: Any) -> Any:
    """The same without loops."""
    return outcome(*arguments, **options, threshold=1 << 60)


TOPOLOGIES = [
    stateless, count, count_read_by_others, reduce_to_longest, total, windows, hopping, aggregate_lengths, rekeyed,
    rekeyed_between_filters, through_an_entry, hopping_summaries, summaries,
]  # fmt: skip


@pytest.mark.parametrize("make", TOPOLOGIES)
@pytest.mark.parametrize("least", [1, 32])
def test_a_loop_gives_what_the_entries_give(
    make: Callable[[], Topology], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = rows()
    expected = by_entries(make, given)
    in_loops = counted(monkeypatch)
    assert outcome(make, given, threshold=least) == expected
    assert sum(in_loops) > (len(given) * 9 // 10 if least == 1 else 200)


@pytest.mark.parametrize("make", [count, count_read_by_others, reduce_to_longest, total])
def test_a_loop_gives_the_same_where_the_cache_forgets_most_rows(
    make: Callable[[], Topology], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = rows()
    expected = by_entries(make, given, piece=40)
    monkeypatch.setitem(WriteBackCache.__init__.__kwdefaults__, "capacity", 2)
    assert outcome(make, given, piece=40) == expected == by_entries(make, given, piece=40)


PREDEFINED = [
    fail_on_invalid_timestamp, log_and_skip_on_invalid_timestamp, use_partition_time_on_invalid_timestamp, wall_clock_timestamp,
]  # fmt: skip


class Clock:
    """A wall clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 1_000

    def now(self, zone: object) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)


@pytest.mark.parametrize("extractor", PREDEFINED)
@pytest.mark.parametrize("make", [windows, rekeyed])
def test_a_loop_uses_the_timestamps_of_predefined_extractors(
    make: Callable[[], Topology], extractor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timestamps, "datetime", Clock())
    some_negative = extractor is not fail_on_invalid_timestamp
    given = [
        (key, value, -7 if some_negative and index in (3, 300, 301) else timestamp, headers)
        for index, (key, value, timestamp, headers) in enumerate(rows())
    ]
    config = {"default.timestamp.extractor": extractor}
    expected = by_entries(make, given, config)
    in_loops = counted(monkeypatch)
    assert outcome(make, given, config) == expected
    assert sum(in_loops) > 200


def test_a_loop_takes_each_piece_at_its_own_wall_clock_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(timestamps, "datetime", clock)
    rig = Rig(stateless(), {"default.timestamp.extractor": wall_clock_timestamp})
    times = []
    for _ in range(3):
        put(rig, [(b"k", b"v", -1, None)] * 200)  # the head is read now
        clock.seconds += 1
        while rig.run(500):
            pass
        times += [timestamp for *_, timestamp in rig.outbox.to("out")[len(times) :]]
    assert times == [at for second in (1000, 1001, 1002) for at in [second * 1000] + [(second + 1) * 1000] * 199]


def test_an_extractor_that_wraps_a_predefined_one_is_asked_for_each_record() -> None:
    @functools.wraps(use_partition_time_on_invalid_timestamp)
    def later(record: Any, partition_time: int) -> int:
        return use_partition_time_on_invalid_timestamp(record, partition_time) + 1_000

    rig = Rig(stateless(), {"default.timestamp.extractor": later})
    put(rig, [(b"k", b"v", 5, None)] * 200)
    while rig.run(500):
        pass
    assert [timestamp for *_, timestamp in rig.outbox.to("out")] == [1_005] * 200


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records loops ran, loop by loop."""
    ran: list[int] = []
    run = FusedQueue._run_chunk

    def counting(*arguments: Any, **options: Any) -> int:
        ran.append(run(*arguments, **options))
        return ran[-1]

    monkeypatch.setattr(FusedQueue, "_run_chunk", counting)
    return ran


@pytest.mark.parametrize("make", TOPOLOGIES)
def test_sources_of_these_topologies_have_a_loop(make: Callable[[], Topology]) -> None:
    assert isinstance(queue_of(Rig(make(), CACHE)), FusedQueue)


def test_a_count_reads_neither_keys_nor_values() -> None:
    fused = queue_of(Rig(count(), CACHE))._fused
    assert (fused.keys, fused.values) == (Way.SKIP, Way.SKIP)
    assert len(fused.nodes) == 1


def test_a_small_cache_is_flushed_as_often_within_a_loop() -> None:
    """The budget is looked at every 1,024 writes, here within one run of records."""
    given = [(b"k%d" % (at % 700), b"v", at, None) for at in range(5_000)]
    small = {"statestore.cache.max.bytes": 20_000}
    sent, *rest = outcome(count, given, small, 5_000)
    others, *_ = by_entries(count, given, small, 5_000)
    newest = {key: value for topic, key, value, *_ in sent if topic == "out"}
    assert newest == {key: value for topic, key, value, *_ in others if topic == "out"}
    assert len([row for row in sent if row[0] == "out"]) > 700, "it was flushed before the commit"
    assert rest[-1]["counts"]


def test_poison_in_a_column_is_met_in_its_turn() -> None:
    given = [(b"k", serdes.long.serialize(at) if at % 97 else b"poison", at, None) for at in range(1, 600)]
    config = {"deserialization.exception.handler": "continue"}
    assert outcome(numbers, given, config) == by_entries(numbers, given, config)


def test_poison_that_is_read_one_by_one_is_met_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [(b"k%d" % (at % 9), b"%d" % (at % 7) if at % 97 else b"poison", at, None) for at in range(1, 600)]
    config = {"deserialization.exception.handler": "continue"}
    expected = by_entries(json_values, given, config)
    in_loops = counted(monkeypatch)
    assert outcome(json_values, given, config) == expected
    assert expected[1]["deserialization"] == 6
    assert sum(in_loops) > 400


def objects(count: int = 500, seed: int = 3) -> list[Row]:
    """JSON as it is written again: objects that lack fields or have more, other values, tombstones."""
    pick = random.Random(seed)
    more = ['"x":{"y":[1,2.5]}', '"big":123456789012345678901234567890', '"text":"\u00fc"', '"none":null']
    made: list[Row] = []
    for at in range(count):
        fields = [f'"n":{pick.randrange(6)}', f'"t":"{pick.choice("abc")}"', *more]
        text = "{" + ",".join(field for field in fields if pick.random() < 0.6) + "}"
        made.append((b"k%d" % pick.randrange(9), None if pick.random() < 0.02 else text.encode(), at, None))
    return made


ODD_OBJECTS = [b"{", b'{"n":1,"t":', b'{"n":1,"x":"\xff"}', b'{"n":[1],"t":{"a":2}}', b'{"x":"\\ud800"}', b'{"x":NaN}']


@pytest.mark.parametrize("odd", [None, *ODD_OBJECTS])
def test_a_loop_that_reads_some_fields_gives_what_the_entries_give(odd: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    given = objects()
    if odd is not None:
        given[211] = (b"k", odd, 211, None)
    config = {"deserialization.exception.handler": "continue"}
    expected = by_entries(fields_of_objects, given, config)
    in_loops = counted(monkeypatch)
    assert outcome(fields_of_objects, given, config) == expected
    assert sum(in_loops) > 200


@pytest.mark.parametrize("make", [of_numbers, windows_of_numbers])
@pytest.mark.parametrize("odd", [b"\x00" * 8, None, b"short"])
def test_keys_of_a_fixed_size_are_in_the_store_as_they_were_read(
    make: Callable[[], Topology], odd: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [((index % 9 - 4).to_bytes(8, "big", signed=True), *row[1:]) for index, row in enumerate(objects())]
    given[211] = (odd, *given[211][1:])
    config = {"deserialization.exception.handler": "continue"}
    expected = by_entries(make, given, config)
    in_loops = counted(monkeypatch)
    assert outcome(make, given, config) == expected
    assert sum(in_loops) > 200
    assert not any("entry" in name for name in queue_of(Rig(make(), CACHE))._fused.run.__code__.co_freevars)


@pytest.mark.parametrize("odd", [None, b"3", b"null", b'{"t":[1]}', b'{"t":"a","x":"\xff"}', b"{"])
def test_objects_that_only_change_their_key_go_on_as_they_were_read(odd: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of whole values takes over at a value that is none of them."""
    given = objects()
    given[7] = (b"k", b'{ "t": "a", "n": 1.50 }', 7, None)
    if odd == b"3":  # the function fails, as with whole values
        with pytest.raises(StreamsProcessingError, match="'int' object has no attribute 'get'"):
            sent_on([*given[:211], (b"k", odd, 211, None)])
        return
    if odd is not None:
        given[211] = (b"k", odd, 211, None)
    expected = sent_on(given, threshold=1 << 60)
    in_loops = counted(monkeypatch)
    sent = sent_on(given)
    assert sum(in_loops) > 200
    assert [read_back(one) for one in sent] == [read_back(one) for one in expected]
    assert b'{ "t": "a", "n": 1.50 }' in [value for _, _, value, *_ in sent]


class DirectOutbox(Outbox):
    """As the collector of a deployed task, whose sinks call the client."""

    def direct(self, topic: str, site: Any = None) -> Direct:
        def produce(topic: str, value: Any, key: Any, partition: int, _: None, __: None, at: int, headers: Any = ()) -> None:
            self.sent.append((topic, key, value, at, list(headers), partition))

        return Direct(produce, pytest.fail, earliest=1, copies=True)


def test_a_value_that_was_replaced_does_not_go_on_as_it_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given = objects()
    in_loops = counted(monkeypatch)
    expected = sent_on(given, threshold=1 << 60, make=rekeyed_new_objects)
    assert sent_on(given, make=rekeyed_new_objects) == expected
    assert sum(in_loops) > 200
    assert {value for _, _, value, *_ in expected} == {b'{"n":%d}' % number for number in range(6)} | {b'{"n":null}'}


def sent_on(given: list[Row], threshold: int = LOOP_THRESHOLD, make: Callable[[], Topology] = rekeyed_objects) -> list[Any]:
    config = CACHE | {"deserialization.exception.handler": "continue"}
    outbox = DirectOutbox(3)
    topology = make()
    rig = Rig(topology, config, loop_threshold=threshold, outbox=outbox, internal=frozenset(topology.internal_topics))
    put(rig, given)
    while rig.run(60):
        pass
    return outbox.sent


def read_back(sent: Any) -> Any:
    topic, key, value, *rest = sent
    return topic, key, serdes.json.deserialize(value), *rest


@pytest.mark.parametrize("last", [b"3", None, b"1e999", b"123456789012345678901234567890", b'"a', b"1,2", b"NaN", b"[1", b""])
def test_a_column_of_json_is_what_its_values_are_one_by_one(last: bytes | None) -> None:
    column = [b'{"a":1}', b"2", last, b'"x"']

    def read(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except SerializationError as error:
            return type(error)

    many = serdes.json.deserialize_many
    assert many is not None
    assert read(lambda: many(column)) == read(lambda: [serdes.json.deserialize(data) for data in column])


def test_each_record_is_read_once() -> None:
    read: list[bytes] = []
    noting = serdes.Serde(str.encode, lambda data: read.append(data) or data.decode(), name="noting")
    builder = StreamsBuilder()
    source(builder, noting, noting).map_values(str).to("out", key_serde=STRING, value_serde=STRING)
    rig = Rig(builder.build())
    put(rig, [(b"k%d" % at, b"v%d" % at, at, None) for at in range(500)])
    while rig.run(170):
        pass
    assert read == [data for at in range(500) for data in (b"k%d" % at, b"v%d" % at)]


def test_poison_without_a_handler_stops_after_the_records_before_it() -> None:
    rig = Rig(numbers())
    put(rig, [(b"k", serdes.long.serialize(at) if at != 200 else b"poison", at, None) for at in range(300)])
    with pytest.raises(KStreamsError, match="offset 200"):
        while rig.run(60):
            pass
    assert len(rig.outbox.sent) == 200


def test_negative_timestamps_are_met_in_their_turn() -> None:
    rig = Rig(stateless())
    put(rig, [(b"k", b"v", at if at != 100 else -5, None) for at in range(200)])
    with pytest.raises(StreamsProcessingError, match="offset 100 has the negative timestamp"):
        while rig.run(500):
            pass
    assert len(rig.outbox.sent) == 100


def failing(value: str) -> str:
    if value == "bad":
        raise RuntimeError("this one")
    return value


def failing_chain(name: str = "fails") -> Topology:
    builder = StreamsBuilder()
    source(builder).filter(lambda key, value: True).map_values(failing, name=name).to("out", key_serde=STRING, value_serde=STRING)
    return builder.build()


def test_an_error_tells_node_record_and_the_users_line() -> None:
    rig = Rig(failing_chain())
    put(rig, [(b"k", b"bad" if at == 77 else b"good", at, None) for at in range(100)])
    with pytest.raises(StreamsProcessingError) as raised:
        rig.run()
    assert raised.value.fields["offset"] == 77
    assert raised.value.fields["node"] == "fails"
    assert 'raise RuntimeError("this one")' in str(raised.value.fields["user_line"])
    record = rig.task.services.record
    assert (record.timestamp, record.raw_key, record.raw_value) == (77, b"k", b"bad")


def test_while_user_code_runs_the_watchdog_sees_its_record() -> None:
    seen: list[int] = []
    builder = StreamsBuilder()
    source(builder).map_values(lambda value: seen.append(rig.task.services.record.offset) or value).to(
        "out", key_serde=STRING, value_serde=STRING
    )
    rig = Rig(builder.build())
    put(rig, [(b"k", b"v", at, None) for at in range(300)])
    while rig.run(500):
        pass
    assert seen == list(range(300))


def test_a_stack_tells_the_node_of_a_loop() -> None:
    """A process that died in one leaves the names of files and lines."""
    rig = Rig(failing_chain())
    put(rig, [(b"k", b"bad", at, None) for at in range(100)])
    with pytest.raises(StreamsProcessingError) as raised:
        rig.run()
    trace, frames = raised.value.__cause__.__traceback__, []  # type: ignore[union-attr]
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.insert(0, f'  File "{code.co_filename}", line {trace.tb_lineno} in {code.co_name}')
        trace = trace.tb_next
    death = crash_of_stack("\n".join(["Fatal Python error: Segmentation fault", "", *frames]), {"fails"})
    assert (death.node, death.file) == ("fails", __file__)
    assert node_in_loop(__file__, 3) is None


class Seen:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def record(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
        self.values.append(value)

    def rows(self, *columns: Any) -> None:
        raise AssertionError("no rows here")


def test_nodes_that_are_looked_into_are_seen_record_by_record() -> None:
    rig = Rig(failing_chain())
    points, seen = rig.task.services.points.of("fails"), Seen()

    def pass_through(value: bytes) -> None:
        put(rig, [(b"k", value, 1, None)] * 100)
        while rig.run():
            pass

    pass_through(b"before")
    for point in points:
        point.attach(seen)
    pass_through(b"while")
    for point in points:
        point.detach(seen)
    pass_through(b"after")
    assert seen.values == ["while"] * 100
    assert [value for _, value, _ in rig.outbox.to("out")] == [b"before"] * 100 + [b"while"] * 100 + [b"after"] * 100


def test_several_inputs_are_taken_in_the_order_of_their_times() -> None:
    builder = StreamsBuilder()
    names = builder.table("table", key_serde=STRING, value_serde=STRING)
    joined = builder.stream("left", key_serde=STRING, value_serde=STRING).join(names, lambda left, right: f"{left}{right}")
    joined.to("joined", key_serde=STRING, value_serde=STRING)
    rig = Rig(builder.build())
    rig.pipe("table", *(("k", str(at).encode(), 1_000 * at) for at in range(5)))
    rig.pipe("left", *(("k", b"v", at * 10) for at in range(450)))
    while rig.run(50):
        pass
    expected = [f"v{at * 10 // 1_000}".encode() for at in range(450)]
    assert [value for _, value, _ in rig.outbox.to("joined")] == expected


class Client:
    """A producer whose buffer is full now and then, and which refuses what is too large."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.places: list[int] = []
        self.full = False
        self.calls = 0

    def produce(
        self, topic: str, value: Any, key: Any, place: int, callback: Any, other: Any, timestamp: int, headers: Any = None
    ) -> None:
        self.calls += 1
        if self.calls % 50 == 0:
            raise BufferError("queue full")
        if value == b"k=TOO LARGE":
            raise ValueError("too large")
        self.sent.append((topic, key, value, timestamp, headers))
        self.places.append(place)

    def poll(self, seconds: float) -> None:
        """Room."""


def sent_by(make: Callable[[], Topology], given: list[Row]) -> tuple[Client, StreamTask]:
    """A task whose sink calls a client itself."""
    client = Client()
    rig = Rig(make(), CACHE)
    collector = KafkaRecordCollector(client, count=lambda topic: 3, track=True)
    spec: TaskSpec = rig.task.spec
    rig.task = StreamTask(spec, environment=MemoryEnvironment(), collector=collector, wall_clock=lambda: 0)
    rig.task.initialize()
    put(rig, given)
    while rig.run(500):
        pass
    return client, rig.task


def test_a_loop_that_calls_the_client_itself_sends_the_same() -> None:
    given = [(key, value, timestamp - 100, headers) for key, value, timestamp, headers in rows()]
    given = [(*row[:2], max(row[2], 0), row[3]) for row in given]
    client, task = sent_by(stateless, given)
    assert any(timestamp == 0 for _, _, timestamp, _ in given)
    sent, *_ = by_entries(stateless, given)
    assert client.sent == [(topic, key, value, at or 1, headers or None) for topic, key, value, at, headers, _ in sent]
    (queue,) = task.group.queues.values()
    assert len(queue._fused.nodes) == 5  # type: ignore[attr-defined]


def test_a_sink_below_a_change_of_key_runs_in_the_loop() -> None:
    given = [(key, value, max(timestamp, 1), headers) for key, value, timestamp, headers in rows()]
    client, task = sent_by(rekeyed_between_filters, given)
    sent, *_ = by_entries(rekeyed_between_filters, given)
    assert client.sent == [(topic, key, value, at, headers or None) for topic, key, value, at, headers, _ in sent]
    (queue,) = task.group.queues.values()
    assert not any(name.startswith("entry") for name in queue._fused.run.__code__.co_freevars)  # type: ignore[attr-defined]


def test_a_record_that_the_client_does_not_take_is_told_with_its_source() -> None:
    given = [(b"k", b"too large" if at == 60 else b"v", at, None) for at in range(100)]
    with pytest.raises(KStreamsError, match="offset 60"):
        sent_by(stateless, given)
