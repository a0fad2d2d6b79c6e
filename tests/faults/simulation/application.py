"""The application that every simulated world runs, and what must be true of it at the end.

Each input record carries a unique number and its key's sequence number. The outputs show a loss, a repetition, a torn commit and a
change of order; a repartitioned count and a count in a processor show state that moved without its offsets or the other way round; a
punctuation changes state that no offset tells of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from kstreams_repl import Processor, Record, StoreBuilder, StoreKind, StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.runtime.task_specs import task_specs
from kstreams_repl.engine.stores.engine.lmdb import ENGINE_PREFIX
from kstreams_repl.engine.topology.partitions import resolve_partitions
from kstreams_repl.host.instance.state.owner_token import generation_of
from kstreams_repl.system.types import TaskId
from tests.faults.simulation.broker import Broker, Entry
from tests.faults.simulation.calls import ask, pay
from tests.faults.simulation.disk import Disk

APPLICATION = "app"
GROUPS = 3


class Seen(Processor):
    """Counts each key in a store and sends the record on with the count."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        count = (self.seen.get(record.key) or 0) + 1
        self.seen.put(record.key, count)
        self.context.forward(record.with_value(record.value + b":%d" % count))


class Ticks(Processor):
    """A state that only time changes."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.ticks = context.get_state_store("ticks")
        context.schedule(400, "WALL_CLOCK_TIME", self.tick)

    def process(self, record: Record) -> None:
        pass

    def tick(self, now: int) -> None:
        name = str(self.context.task_id).encode()
        count = (self.ticks.get(name) or 0) + 1
        self.ticks.put(name, count)
        self.context.forward(Record(name, b"%d" % count, now))


def _group(key: bytes, value: bytes) -> bytes:
    return b"g%d" % (int(value.split(b":")[0]) % GROUPS)


def _place(topic: str, key: bytes, value: bytes, count: int) -> int:
    return value[0] - ord("0")


def _totals(stream: Any, sql: bool) -> Any:
    """Count the records of each group: by the DSL, or by SQL, whose partials go through the repartition topic."""
    if not sql:
        return stream.select_key(_group).group_by_key(key_serde=serdes.bytes, value_serde=serdes.bytes).count(store="totals")
    query = f"SELECT count(*) AS value FROM this GROUP BY 'g' || split_part(decode(value), ':', 1)::INT % {GROUPS}"
    return stream.sql(query, store="totals", value_serde="long")


def _topology(calls: str | None, sql: bool) -> Any:
    builder = StreamsBuilder()
    for name in ("seen", "ticks"):
        builder.add_state_store(
            StoreBuilder(name, StoreKind.KEY_VALUE, key_serde=serdes.bytes, value_serde=serdes.long, caching=name == "seen")
        )
    stream = builder.stream("in", key_serde=serdes.bytes, value_serde=serdes.bytes)
    both = {"key_serde": serdes.bytes, "value_serde": serdes.bytes}
    seen = stream.process(Seen, stores=["seen"])
    if calls is not None:
        builder.add_state_store(StoreBuilder("asked", StoreKind.KEY_VALUE, key_serde=serdes.bytes, value_serde=serdes.long))
        seen = seen.process_async(
            ask, stores=["asked"], name="ask", order=calls, in_flight=4, timeout="500ms", retries=30, backoff="10ms", max_backoff="50ms"
        )
        seen = seen.map_values_async(
            pay, name="pay", order=calls, in_flight=4, timeout="500ms", retries=30, backoff="10ms", max_backoff="50ms", durable=True,
            key_serde=serdes.bytes, value_serde=serdes.bytes, result_serde=serdes.bytes,
        )  # fmt: skip
    seen.to("out", **both)
    stream.process(Ticks, stores=["ticks"]).to("ticked", **both)
    stream.flat_map_values(lambda value: [b"0" + value, b"1" + value]).to("torn", partitioner=_place, **both)
    _totals(stream, sql).to_stream().to("totalled")
    return builder.build()


@cache
def prepared(
    partitions: int, guarantee: str, eager_ms: int, calls: str | None = None, sql: bool = False, drift_ms: int | None = None
) -> tuple[dict[str, int], dict[TaskId, TaskSpec], StreamsConfig]:
    """(all topics, the tasks, the configuration)

    Args:
        calls: the order of the asynchronous node; None: there is none.
        sql: whether the repartitioned count is one by SQL.
        drift_ms: how far partitions may be ahead of each other; None: without bound, because no window needs one.
    """
    config = StreamsConfig(
        {
            "application.id": APPLICATION,
            "bootstrap.servers": "simulated:1",
            "processing.guarantee": guarantee,
            "transaction.timeout.ms": 4_000,
            "commit.interval.ms": 100,
            "repl.commit.eager.ms": eager_ms,
            "repl.alignment.drift.ms": drift_ms,
        }
    )
    topology = _topology(calls, sql)
    topics = {"in": partitions, "out": partitions, "ticked": 1, "torn": 2, "totalled": 1}
    resolved = resolve_partitions(topology, APPLICATION, topics)
    for topic in (*resolved.repartition_topics, *resolved.changelog_topics):
        topics[topic.name] = topic.partitions or 1
    return topics, task_specs(topology, APPLICATION, config, resolved), config


def number_of(entry: Entry) -> int:
    return int((entry.value or b"").split(b":")[0])


def violations(
    broker: Broker, disk: Disk, paths: dict[TaskId, str], sent: dict[bytes, list[int]], *, exactly: bool, generation: int
) -> list[str]:
    """What is wrong at the end, in words; empty when all is well.

    Args:
        generation: the last one.
        sent: the numbers that were written, by key, in order.
    """
    found: list[str] = []
    wanted = Counter(number for numbers in sent.values() for number in numbers)
    seen: Counter[int] = Counter()
    for number, entries in broker.visible("out").items():
        by_key: dict[bytes, list[tuple[int, int]]] = {}
        for entry in entries:
            seen[number_of(entry)] += 1
            assert entry.key is not None and entry.value is not None
            counts = {int(count) for count in entry.value.split(b":")[2:]}
            if exactly and len(counts) > 1:
                found.append(f"out-{number}: the stores before and behind the asynchronous node differ: {entry.value!r}")
            by_key.setdefault(entry.key, []).append((number_of(entry), min(counts)))
        if exactly:
            for key, pairs in by_key.items():
                if [count for _, count in pairs] != list(range(1, len(pairs) + 1)):
                    found.append(f"out-{number}: key {key!r} was counted {[count for _, count in pairs]}")
                if [value for value, _ in pairs] != sent[key]:
                    found.append(f"out-{number}: key {key!r} is out of order")
    lost = sorted((wanted - seen).elements())
    twice = sorted((seen - wanted).elements())
    if lost:
        found.append(f"lost: {lost[:10]}")
    if exactly and twice:
        found.append(f"repeated: {twice[:10]}")
    torn = [Counter((entry.value or b"")[1:] for entry in entries) for entries in broker.visible("torn").values()]
    if exactly and torn[0] != torn[1]:
        found.append(f"torn: {sorted(((torn[0] - torn[1]) + (torn[1] - torn[0])).elements())[:6]}")
    ticks: dict[bytes, list[int]] = {}
    for entry in broker.visible("ticked")[0]:
        assert entry.key is not None
        ticks.setdefault(entry.key, []).append(int(entry.value or b""))
    if exactly:
        for key, numbers in ticks.items():
            if numbers != list(range(1, len(numbers) + 1)):
                found.append(f"punctuations of {key!r}: {numbers[:30]}")
    groups = Counter(b"g%d" % (number % GROUPS) for number in wanted.elements())
    logged = _replayed(broker, "totals")
    for key, count in groups.items():
        have = _long(logged.get(key))
        if have != count if exactly else have < count:
            found.append(f"totals changelog: {key!r} is {have}, should be {count}")
    for task, path in paths.items():
        found += _compare(broker, disk, task, path, generation)
    return found


def waiting_calls(broker: Broker) -> int:
    """How many records wait in the asynchronous nodes as of the last commit."""
    return sum(
        len(_replayed(broker, f"{node}-pending", number))
        for node in ("ask", "pay")
        for number in broker.visible(f"{APPLICATION}-{node}-pending-changelog")
    )


def _replayed(
    broker: Broker, store: str, partition: int | None = None, among: Sequence[Entry] | None = None
) -> dict[bytes | None, bytes | None]:
    """The rows that a store has by its committed changelog, or by those of its entries that are among the given ones."""
    rows: dict[bytes | None, bytes | None] = {}
    some = None if among is None else set(map(id, among))
    for number, entries in broker.visible(f"{APPLICATION}-{store}-changelog").items():
        if partition is None or number == partition:
            rows.update((entry.key, entry.value) for entry in entries if some is None or id(entry) in some)
    return {key: value for key, value in rows.items() if value is not None}


def _compare(broker: Broker, disk: Disk, task: TaskId, path: str, generation: int) -> list[str]:
    """A task's stores on the disk against the replay of their committed changelogs.

    A zombie of an earlier generation may take the owner token late, and then leave. The owner's stores then miss what it had put off to
    write, which the next start reads from the changelog: such a store must hold all up to its position, and nothing else.
    """
    file = disk.files.get(path)
    if file is None:
        return [f"task {task} has no store"]
    found = []
    committed = {
        entry.transaction
        for log in broker.logs.values()
        for entry in log.entries
        if entry.transaction is not None and entry.transaction.state == "committed"
    }
    asked = (f"{APPLICATION}-asked-changelog", task.partition)
    for store in ("seen", "ticks", *(["asked"] if asked in broker.logs else [])) if task.subtopology == 0 else ("totals",):
        rows = {key: value[-8:] for key, value in file.trees.get(f"{ENGINE_PREFIX}{store}".encode(), {}).items()}
        log = broker.logs[(f"{APPLICATION}-{store}-changelog", task.partition)]
        stored = file.trees.get(b"meta", {}).get(f"p:{APPLICATION}-{store}-changelog-{task.partition}".encode())
        position = 0 if stored is None else int.from_bytes(stored, "big")
        behind = [entry for entry in log.entries[position:] if not entry.marker and entry.transaction in (None, *committed)]
        robbed = generation_of(file.trees[b"meta"][b"owner"].decode()) < generation
        replay = _replayed(broker, store, task.partition, log.entries[:position] if behind and robbed else None)
        if (behind and not robbed) or position > log.end:
            found.append(f"store {store} of {task}: its position {position} leaves {len(behind)} committed records out")
        if rows != replay:
            differing = sorted(key or b"" for key in {*rows, *replay} if rows.get(key or b"") != replay.get(key))
            key = differing[0]
            found.append(
                f"store {store} of {task}: {key!r} is {_long(rows.get(key))}, its changelog says {_long(replay.get(key))}"
            )
    return found


def _long(value: bytes | None) -> int:
    return 0 if value is None else int.from_bytes(value[-8:], "big", signed=True)
