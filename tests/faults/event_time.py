"""One application of every kind of window, join and suppress, over event time of any year with late records; its oracle is its own
undisturbed run.

Everything that depends on the order of records reads one topic, so that each partition has one order and two runs give the same results,
record by record. What goes through repartition topics (the sum by group, the foreign-key join) is compared by its last values.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstreams_repl import (
    EmitStrategy,
    JoinWindows,
    Processor,
    PunctuationType,
    Record,
    SessionWindows,
    SlidingWindows,
    StoreBuilder,
    StoreKind,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Windowed,
    serdes,
)
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.types import TopicPartition
from tests.faults.crew import BOTH, PARTITIONS, Crew

OLD_MS = 1_370_000_000_000
"""In June 2013."""
KEYS = 12
LAST_VALUES = ("group", "foreign")
"""Results that have no fixed order: only the last value of each key counts."""
CACHED = ("hopping", "sliding", "session", "tables")
"""Results that a cache lets through at commits, wherever these fall: with one, only the last values count."""


def kind(letter: bytes) -> Callable[[bytes, bytes], bool]:
    return lambda key, value: value[:1] == letter


def labelled(label: str) -> Callable[[Any, Any], tuple[bytes, bytes]]:
    def name(key: Any, value: Any) -> tuple[bytes, bytes]:
        text = b"%s@%d-%d" % (key.key, key.start, key.end) if isinstance(key, Windowed) else key
        return label.encode() + b"|" + text, repr(value).encode()

    return name


def start() -> bytes:
    return b"0:0"


def add(key: Any, value: bytes, total: bytes) -> bytes:
    count, _, sum_ = total.partition(b":")
    return b"%d:%d" % (int(count) + 1, int(sum_) * 31 % 1_000_003 + number(value))


def plus(key: Any, value: bytes, total: bytes) -> bytes:
    return b"%d" % (int(total) + number(value))


def minus(key: Any, value: bytes, total: bytes) -> bytes:
    return b"%d" % (int(total) - number(value))


def merge(key: Any, one: bytes, other: bytes) -> bytes:
    return b"%d:%d" % (
        int(one.partition(b":")[0]) + int(other.partition(b":")[0]),
        (int(one.partition(b":")[2]) + int(other.partition(b":")[2])) % 1_000_003,
    )


def number(value: bytes) -> int:
    return int(value[1:])


def both(one: Any, other: Any) -> bytes:
    return b"%s,%s" % (one or b"-", other or b"-")


def or_none(value: bytes) -> bytes | None:
    return None if number(value) % 5 == 0 else value


class Tally(Processor):
    """Two stores and punctuations of both kinds: counts and last values by key."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.counts = context.get_state_store("tally-counts")
        self.latest = context.get_state_store("tally-last")
        context.schedule(50, PunctuationType.WALL_CLOCK_TIME, self.look)

    def process(self, record: Any) -> None:
        count = int(self.counts.get(record.key) or b"0") + 1
        self.counts.put(record.key, b"%d" % count)
        before = self.latest.get(record.key)
        self.latest.put(record.key, record.value)
        self.context.forward(Record(record.key, b"%d %s" % (count, before or b"-"), record.timestamp))

    def look(self, now: int) -> None:
        for key, count in self.counts.all():
            self.counts.put(key, count)


def topology(name: str, out: str) -> Any:
    """The seven workloads, and each kind of window besides. Results go to `out` under ``operator|key``."""
    builder = StreamsBuilder()
    stream = builder.stream(f"{name}-in", **BOTH)
    grouped = stream.group_by_key(**BOTH)
    results: dict[str, Any] = {}
    closed = {"key_serde": serdes.bytes, "value_serde": serdes.bytes}
    # re-keyed aggregate
    by_group = stream.to_table(store="rows", **closed).group_by(lambda key, value: (b"g%d" % (number(value) % 7), value), **BOTH)
    results["group"] = by_group.aggregate(lambda: b"0", plus, minus, store="groups", value_serde=serdes.bytes).to_stream()
    # windows
    hopping = TimeWindows.of_size(40_000, advance=20_000, grace=20_000)
    results["hopping"] = grouped.windowed_by(hopping).aggregate(start, add, store="hopping", value_serde=serdes.bytes).to_stream()
    tumbling = grouped.windowed_by(TimeWindows.of_size(30_000, grace=10_000))
    counts = tumbling.aggregate(start, add, store="tumbling", value_serde=serdes.bytes)
    results["suppressed"] = counts.suppress(Suppressed.until_window_closes(name="suppress")).to_stream()
    sliding = grouped.windowed_by(SlidingWindows.of_time_difference(15_000, grace=10_000))
    results["sliding"] = sliding.aggregate(start, add, store="sliding", value_serde=serdes.bytes).to_stream()
    session = grouped.windowed_by(SessionWindows.of_inactivity_gap(6_000, grace=15_000))
    sessions = session.aggregate(start, add, merge, store="session", value_serde=serdes.bytes)
    results["session"] = sessions.to_stream()
    final = grouped.windowed_by(TimeWindows.of_size(25_000, grace=5_000)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
    results["final"] = final.aggregate(start, add, store="final", value_serde=serdes.bytes).to_stream()
    # joins of streams
    left, right = stream.filter(kind(b"L")), stream.filter(kind(b"R"))
    near = JoinWindows.of_time_difference(12_000, grace=10_000)
    results["left"] = left.left_join(right, both, near, store="left", **BOTH, other_value_serde=serdes.bytes)
    results["outer"] = right.outer_join(left, both, near.after(4_000), store="outer", **BOTH, other_value_serde=serdes.bytes)
    # tables, with tombstones
    first = stream.filter(kind(b"T")).map_values(or_none).to_table(store="first", **closed)
    second = stream.filter(kind(b"F")).map_values(or_none).to_table(store="second", **closed)
    results["tables"] = first.outer_join(second, both).to_stream()
    foreign = first.left_join(second, both, foreign_key=lambda value: b"k%d" % (number(value) % KEYS), key_serde=serdes.bytes)
    results["foreign"] = foreign.to_stream()
    versions = stream.filter(kind(b"T")).to_table(store="versions", history=60_000, **closed)
    results["held"] = left.join(versions, both, grace=8_000, name="held", **BOTH)
    # processor, global table
    for store in ("tally-counts", "tally-last"):
        builder.add_state_store(StoreBuilder(store, StoreKind.KEY_VALUE, **closed))
    results["tally"] = stream.process(Tally, stores=["tally-counts", "tally-last"])
    side = builder.global_table(f"{name}-side", store="side", **BOTH)
    results["global"] = stream.join(side, both, key=lambda key, value: key)
    for label, result in results.items():
        result.map(labelled(label)).to(out, **BOTH)
    return builder.build()


class EventTime(Crew):
    """Args:
    base_ms: event time of the first record; a second passes for every four records.
    of: the crew whose input is processed once more, by an application of its own.
    """

    def __init__(
        self, bootstrap: str, directory: Path, *, base_ms: int, of: EventTime | None = None, seed: int = 1, **config: Any
    ) -> None:
        super().__init__(
            bootstrap,
            directory,
            keys=KEYS,
            name=None,
            **({"repl.outer.join.emit.interval.ms": 0, "max.poll.interval.ms": 60_000} | config),
        )
        self.input = self if of is None else of
        self.out = f"{self.name}-out"
        self.admin.create_topic(self.out, 1, configs={"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)})
        self.base_ms = base_ms
        self._dice = random.Random(seed)
        self._written = 0

    def topology(self) -> Any:
        return topology(self.input.name, self.out)

    def write(self, count: int) -> None:
        """Records of five kinds; three in ten are up to a minute late, which is beyond every grace period."""
        dice = self._dice
        for _ in range(count):
            self._written += 1
            at = self.base_ms + self._written * 250
            if dice.random() < 0.3:
                at -= dice.randrange(60_000)
            key = b"k%d" % dice.randrange(KEYS)
            self._send("in", key, dice.choice([b"L", b"R", b"T", b"F"]) + b"%d" % self._written, at)
            self.sent.append((key, self._written))
        assert self._producer.flush(30) == 0

    def processed(self, seconds: float = 60.0) -> None:
        """Until all input is committed and nothing comes out any more; fails when no input was committed for so long."""
        at = [TopicPartition(f"{self.input.name}-in", number) for number in range(PARTITIONS)]
        ends = self.admin.end_offsets(at)

        committed: dict[TopicPartition, int] = {}

        def reached() -> bool:
            found = self.admin.committed_offsets(self.application_id, at, stable=False)
            committed.update({place: offset.offset for place, offset in found.items()})
            return all(committed.get(place, -1) >= end for place, end in ends.items() if end)

        self.settle(reached, "all records", seconds, progress=lambda: sum(committed.values()))
        before, since = -1, time.monotonic()
        while time.monotonic() - since < 2.0:  # what is in internal topics comes out; their ends have any number of markers
            self.raise_failures()
            [now] = self.admin.end_offsets([TopicPartition(self.out, 0)]).values()
            if now != before:
                before, since = now, time.monotonic()
            time.sleep(0.05)

    def results(self) -> dict[bytes, list[tuple[bytes | None, int]]]:
        """What came out, by operator and key, in order: (value, timestamp)."""
        found: dict[bytes, list[tuple[bytes | None, int]]] = {}
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, self.out, settled=True)):
            for key, value, at in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                found.setdefault(key or b"", []).append((value, at))
        last = (*LAST_VALUES, *CACHED) if self.config["statestore.cache.max.bytes"] else LAST_VALUES
        for key, values in list(found.items()):
            if key.partition(b"|")[0].decode() in last:
                found[key] = [(values[-1][0], 0)]
                if values[-1][0] == b"None":  # as good as a row that never left: deleted, or merged into another session, before it could
                    del found[key]
        return found

    def stores(self) -> dict[str, dict[bytes, bytes]]:
        """All rows of all stores, by store and task."""
        assert self.plan is not None
        rows: dict[str, dict[bytes, bytes]] = {}
        for spec in {spec.task_id: spec for tasks in self.plan.assignment for spec in tasks}.values():
            stores = [store for store in spec.subtopology.stores if store.persistent and store.name not in UNORDERED]
            if not stores:
                continue
            with LmdbSnapshot(task_directory(self.directory / "state", self.application_id, spec.task_id)) as snapshot:
                for store in stores:
                    found = dict(snapshot.read(store.name)[0])
                    if (
                        store.retain_duplicates
                    ):  # the numbers in their keys go on from what is logged: late records take some, too
                        found = {b"%s#%d" % (key[:-4], rank): found[key] for rank, key in enumerate(sorted(found))}
                    rows[f"{store.name} of {spec.task_id}"] = found
        return rows

    def differences(self, undisturbed: EventTime) -> list[str]:
        """Where results and stores are not those of the undisturbed run."""
        found = []
        for what, mine, wanted in (
            ("result", self.results(), undisturbed.results()),
            ("store", self.stores(), undisturbed.stores()),
        ):
            for name in sorted({*mine, *wanted}, key=str):
                have, want = mine.get(name), wanted.get(name)  # type: ignore[call-overload]
                if have != want:
                    found.append(f"{what} {name!r}: {_first(have, want)}")
        return found


UNORDERED = frozenset({"groups"})
"""Stores whose bytes depend on the order of repartitioned records: their timestamps do."""


def _first(have: Any, want: Any) -> str:
    if have is None or want is None:
        return f"{'missing' if have is None else 'too much'}: {str(want if have is None else have)[:200]}"
    if isinstance(have, dict):
        differ = {key for key in {*have, *want} if have.get(key) != want.get(key)}
        key = min(differ)
        return f"{len(differ)} of {len(want)} rows, such as {key!r}: {have.get(key)!r} instead of {want.get(key)!r}"
    at = next((i for i, (one, other) in enumerate(zip(have, want, strict=False)) if one != other), min(len(have), len(want)))
    return f"{len(have)} records instead of {len(want)}; at {at}: {have[at : at + 1]} instead of {want[at : at + 1]}"
