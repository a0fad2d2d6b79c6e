"""Topologies of several operators, and random input for them, for the tests of replicas and debuggers."""

from __future__ import annotations

import random
from typing import Any

import kstreams_repl as ks
from kstreams_repl.engine.commit.offset_metadata import OffsetMetadata
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.host.instance.initialization.start_offsets import StartOffset
from kstreams_repl.repl.session.views.past.replay.replica import TaskReplica
from kstreams_repl.system.types import RecordBatch, TopicPartition
from kstreams_repl.test_driver.driver_tasks import DriverTopics

Piped = tuple[str, bytes | None, bytes | None, int]


class Running(ks.Processor):
    """A sum by key in a plain store; forwards it, and a punctuation forwards the number of keys."""

    def init(self, context: Any) -> None:
        self.context, self.store = context, context.get_state_store("running")
        context.schedule(100, ks.PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Any) -> None:
        if record.key is None:
            return
        total = (self.store.get(record.key) or 0) + record.value
        self.store.put(record.key, total)
        self.context.forward(record.with_value(total))

    def tick(self, now: int) -> None:
        self.context.forward(ks.Record("keys", len(list(self.store.all())), now))


def everything() -> ks.Topology:
    builder = ks.StreamsBuilder()
    orders = builder.stream("orders", key_serde="string", value_serde="long", name="orders")
    names = builder.table("names", key_serde="string", value_serde="string", name="names", store="names")
    good = orders.filter(lambda key, value: value % 7 != 0, name="good").map(lambda key, value: (key, value + 1), name="plus-one")
    kept = good.map_values(lambda value: value * 2, name="twice")
    same = orders.map_values(lambda value: value * 2, name="twice-same")
    kept.to("kept", key_serde="string", value_serde="long", name="to-kept")
    grouped = same.group_by_key(key_serde="string", value_serde="long")
    counted = grouped.count(store="counts", name="count")
    counted.to_stream(name="changes").to("counted", key_serde="string", value_serde="long", name="to-counted")
    grouped.aggregate(lambda: 0, lambda key, value, total: total + value, store="sums", name="sum", value_serde="long")
    windows = grouped.windowed_by(ks.TimeWindows.of_size_and_grace(50, 20)).count(store="windowed", name="windows")
    windows.to_stream(name="window-changes").map(lambda window, n: (f"{window.key}@{window.start}", n), name="plain").to(
        "windows", key_serde="string", value_serde="long", name="to-windows"
    )
    sessions = grouped.windowed_by(ks.SessionWindows.of_inactivity_gap_and_grace(20, 10)).count(store="sessions", name="sessions")
    sessions.to_stream(name="session-changes").map(lambda window, n: (f"{window.key}@{window.start}", n), name="plain-2").to(
        "sessions-out", key_serde="string", value_serde="long", name="to-sessions"
    )
    joined = orders.join(names, lambda value, name: f"{name}:{value}", name="join")
    joined.to("joined", key_serde="string", value_serde="string", name="to-joined")
    upper = names.map_values(str.upper, name="upper", store="upper", value_serde="string")
    upper.join(counted, lambda name, n: f"{name}={n}", name="table-join", store="table-join", value_serde="string").to_stream(
        name="t"
    ).to("table-joined", key_serde="string", value_serde="string", name="to-table-joined")
    clicks = builder.stream("clicks", key_serde="string", value_serde="long", name="clicks")
    orders.left_join(clicks, lambda a, b: f"{a}/{b}", ks.JoinWindows.of_time_difference_and_grace(30, 10), name="pair", key_serde="string",
                     value_serde="long", other_value_serde="long").to(
        "pairs", key_serde="string", value_serde="string", name="to-pairs")  # fmt: skip
    builder.add_state_store(ks.Stores.key_value_store_builder(ks.Stores.persistent_key_value_store("running"), "string", "long"))
    running = orders.process(Running, stores=["running"], name="running")
    branches = running.split(name="split-").branch(lambda key, value: value % 2 == 0, name="even").default_branch(name="odd")
    for name, stream in branches.items():
        stream.to(name.replace("split-", ""), key_serde="string", value_serde="long", name=f"to-{name}")
    return builder.build()


class Recent(ks.Processor):
    """Keeps few keys and duplicates by time; forwards how many there are."""

    def init(self, context: Any) -> None:
        self.context = context
        self.few, self.log = context.get_state_store("few"), context.get_state_store("log")

    def process(self, record: Any) -> None:
        if record.key is None:
            return
        self.few.put(record.key, (self.few.get(record.key) or 0) + 1)
        self.log.put(record.key, record.value, record.timestamp)
        found = list(self.log.fetch(record.key, record.timestamp - 20, record.timestamp + 20))
        self.context.forward(record.with_value(f"{self.few.get(record.key)} {found}"))


def buffers() -> ks.Topology:
    """Operators and stores that hold records back, keep versions, or keep a bounded number of rows."""
    builder = ks.StreamsBuilder()
    orders = builder.stream("orders", key_serde="string", value_serde="long", name="orders")
    clicks = builder.stream("clicks", key_serde="string", value_serde="long", name="clicks")
    names = builder.table("names", key_serde="string", value_serde="string", name="names", store="names", history=1000)
    orders.join(names, lambda value, name: f"{name}:{value}", name="patient", grace=30, key_serde="string", value_serde="long").to(
        "joined", key_serde="string", value_serde="string", name="to-joined"
    )
    grouped = clicks.group_by_key(key_serde="string", value_serde="long")
    windowed = grouped.windowed_by(ks.TimeWindows.of_size(50, grace=20))
    windowed.count(store="held", name="held").suppress(ks.Suppressed.until_window_closes()).to_stream(name="final").map(
        lambda window, n: (f"{window.key}@{window.start}", n), name="plain"
    ).to("final", key_serde="string", value_serde="long", name="to-final")
    windowed.emit_strategy(ks.EmitStrategy.ON_WINDOW_CLOSE).reduce(max, store="closed", name="closed").to_stream(name="out").map(
        lambda window, n: (f"{window.key}@{window.start}", n), name="plain-2"
    ).to("closed-out", key_serde="string", value_serde="long", name="to-closed")
    sliding = ks.SlidingWindows.of_time_difference_and_grace(20, 10)
    grouped.windowed_by(sliding).count(store="sliding", name="sliding")
    orders.outer_join(clicks, lambda a, b: f"{a}/{b}", ks.JoinWindows.of_time_difference_and_grace(30, 10), name="pair", key_serde="string",
                      value_serde="long", other_value_serde="long").to(
        "pairs", key_serde="string", value_serde="string", name="to-pairs")  # fmt: skip
    stores = ks.Stores
    builder.add_state_store(stores.key_value_store_builder(stores.lru_map("few", 5), "string", "long"))
    log = stores.persistent_window_store("log", 500, 1, retain_duplicates=True)
    builder.add_state_store(stores.window_store_builder(log, "string", "long"))
    orders.process(Recent, stores=["few", "log"], name="recent").to("recent", key_serde="string", value_serde="string", name="to-recent")
    return builder.build()


def random_input(seed: int, count: int) -> list[Piped]:
    rng = random.Random(seed)
    long = ks.serdes.long.serialize
    rows: list[Piped] = []
    time = 1000
    for _ in range(count):
        time += rng.randrange(0, 8)
        late = rng.choice((0, 0, 0, 5, 60))
        topic = rng.choice(("orders", "orders", "orders", "clicks", "names"))
        key = None if rng.random() < 0.02 else f"k{rng.randrange(12)}".encode()
        if topic == "names":
            value = None if rng.random() < 0.2 else f"name{rng.randrange(5)}".encode()
        else:
            value = long(rng.randrange(100))
        rows.append((topic, key, value, time - late))
    return rows


def spec_of(topology: ks.Topology, **settings: Any) -> TaskSpec:
    """One task with all nodes, as the test driver in mode "deployed" has it."""
    config = StreamsConfig({"application.id": "test", "repl.outer.join.emit.interval.ms": 0} | {
        name.replace("_", "."): value for name, value in settings.items()
    })  # fmt: skip
    [spec] = DriverTopics(topology, "test", config, None).specs
    return spec


def from_the_start(spec: TaskSpec) -> dict[TopicPartition, StartOffset]:
    return {partition: StartOffset(0, OffsetMetadata()) for partition in spec.partitions}


class Feeder:
    """Gives a replica records one by one, with ascending offsets."""

    def __init__(self, replica: TaskReplica) -> None:
        self.replica = replica
        self.offsets: dict[str, int] = {}

    def feed(self, topic: str, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        offset = self.offsets.get(topic, 0)
        self.offsets[topic] = offset + 1
        self.replica.feed(TopicPartition(topic, 0), RecordBatch([key], [value], [timestamp], [offset]))


def batches(rows: list[Piped]) -> dict[TopicPartition, RecordBatch]:
    """All records by partition."""
    found: dict[TopicPartition, RecordBatch] = {}
    for topic, key, value, timestamp in rows:
        batch = found.setdefault(TopicPartition(topic, 0), RecordBatch([], [], [], []))
        batch.offsets.append(len(batch))
        batch.keys.append(key)
        batch.values.append(value)
        batch.timestamps.append(timestamp)
    return found


def rows_of(environment: Any, spec: TaskSpec) -> dict[str, dict[bytes, bytes]]:
    """All rows of a task's stores; in memory where the description says so."""
    names = {name: store.persistent for store in spec.subtopology.stores for name in (store.name, store.name + ".history")}
    return {name: dict(environment.engine(name, persistent=persistent).range(None, None)) for name, persistent in names.items()}
