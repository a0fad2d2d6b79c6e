"""R21: timestamps that are negative, of the year 3000, equal, out of order, or late beyond the grace period.

Stream time never goes back, and results equal a brute-force model that keeps every record and counts again from the rules.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import JoinWindows, SessionWindows, StreamsBuilder, TimeWindows
from kstreams_repl.engine.processor import Processor, Record
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import StreamsProcessingError
from kstreams_repl.system.types import Windowed
from kstreams_repl.test_driver.driver import TopologyTestDriver
from tests.faults.host import Host, Row

YEAR_3000 = 32_503_680_000_000
SEEDS = range(20)
SETTINGS = {"statestore.cache.max.bytes": 0, "default.key.serde": serdes.string, "default.value.serde": serdes.json}
Event = tuple[str, int]


def events(seed: int, count: int = 150) -> list[Event]:
    """Keys and timestamps: mostly near a slowly moving time, some equal, some early, some far too late, now and then a jump."""
    rng = random.Random(seed)
    now, rows = rng.choice((0, 1_000, YEAR_3000 - 500)), []
    for _ in range(count):
        kind = rng.random()
        if kind < 0.5:
            now += rng.randrange(8)
            at = now
        elif kind < 0.65:
            at = now
        elif kind < 0.9:
            at = max(0, now - rng.randrange(40))
        elif kind < 0.97:
            at = max(0, now - rng.randrange(200))
        else:
            now += rng.randrange(200)
            at = now
        rows.append((rng.choice("abc"), at))
    return rows


def drive(topology: Topology, rows: list[Event], *, to: str = "in") -> TopologyTestDriver:
    driver = TopologyTestDriver(topology, SETTINGS, start_ms=0)
    topic = driver.create_input_topic(to, serdes.string, serdes.json)
    for number, (key, at) in enumerate(rows):
        topic.pipe_input(key, number, at)
    return driver


# ---- time itself -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_stream_time_is_the_largest_timestamp_so_far(seed: int) -> None:
    seen: list[tuple[int, int]] = []

    class Watch(Processor):
        def process(self, record: Record) -> None:
            seen.append((record.timestamp, self.context.current_stream_time_ms()))

    rows = events(seed)
    drive(Topology().add_source("from-in", "in").add_processor("watch", Watch, "from-in"), rows).close()
    assert [at for at, _ in seen] == [at for _, at in rows], "records are taken in offset order, whatever their time"
    assert [time for _, time in seen] == [max(at for _, at in rows[: i + 1]) for i in range(len(rows))]


@pytest.mark.parametrize("seed", SEEDS)
def test_stream_time_never_goes_back_across_commits_and_restarts(seed: int, tmp_path: Path) -> None:
    rows: list[Row] = [(key.encode(), b"1", at, []) for key, at in events(seed)]
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    host = Host(builder.build(), SETTINGS, tmp_path, rows, batch=7)
    host.run()
    assert host.stream_times == sorted(host.stream_times)
    assert host.stream_times[-1] == max(row[2] for row in rows)


# ---- windows -----------------------------------------------------------------------------------------------------------------------


@dataclass
class WindowModel:
    """Counts per window, straight from the rules: late when `window end <= observed - grace`; the record moves observed first."""

    size: int
    advance: int
    grace: int
    counts: Counter[Windowed] = field(default_factory=Counter)
    emitted: list[tuple[str, int]] = field(default_factory=list)
    dropped: int = 0
    observed: int = -1

    def windows(self, at: int) -> Iterator[tuple[int, int]]:
        start = max(0, at - self.size + self.advance) // self.advance * self.advance
        while start <= at:
            yield start, start + self.size
            start += self.advance

    def add(self, key: str, at: int) -> None:
        self.observed = max(self.observed, at)
        for start, end in self.windows(at):
            if end <= self.observed - self.grace:
                self.dropped += 1
                continue
            window = Windowed(key, start, end)
            self.counts[window] += 1
            self.emitted.append((str(window), self.counts[window]))


@pytest.mark.parametrize("advance", [10, 4, 3], ids=lambda ms: f"every {ms} ms")
@pytest.mark.parametrize("grace", [0, 5, 30, 1_000])
@pytest.mark.parametrize("seed", SEEDS)
def test_time_windows_equal_the_model(seed: int, grace: int, advance: int) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(10, advance=advance, grace=grace))
    grouped.count(store="counts").to_stream().to("out")
    model = WindowModel(10, advance, grace)
    with drive(builder.build(), events(seed)) as driver:
        for key, at in events(seed):
            model.add(key, at)
        out = driver.create_output_topic("out", serdes.time_windowed(serdes.string, 10), serdes.long)
        assert [(str(key), count) for key, count in out.read_key_values()] == model.emitted
        assert driver.dropped == model.dropped


def test_the_seeds_meet_records_beyond_grace_and_within_it() -> None:
    models = [WindowModel(10, 10, 5) for _ in SEEDS]
    for seed, model in zip(SEEDS, models, strict=True):
        for key, at in events(seed):
            model.add(key, at)
    assert all(model.dropped > 5 and len(model.emitted) > 50 for model in models)


@dataclass
class SessionModel:
    """Sessions per key: a record joins all sessions within the gap on either side; late when the joined end < observed - grace - gap.

    A session that ended `gap + grace` or more before the latest end kept so far is out of retention: nothing joins it any more.
    """

    gap: int
    grace: int
    sessions: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    dropped: int = 0
    observed: int = -1
    latest_end: int = -1

    def add(self, key: str, at: int) -> None:
        self.observed = max(self.observed, at)
        mine = self.sessions.setdefault(key, {})
        kept_after = self.latest_end - self.grace - self.gap
        near = [(start, end) for start, end in mine if end >= at - self.gap and start <= at + self.gap and end > kept_after]
        start, end = min([at, *(window[0] for window in near)]), max([at, *(window[1] for window in near)])
        if end < self.observed - self.grace - self.gap:
            self.dropped += 1
            return
        self.latest_end = max(self.latest_end, end)
        mine[start, end] = 1 + sum(mine.pop(window) for window in near)


@pytest.mark.parametrize("grace", [0, 5, 30, 1_000])
@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_equal_the_model(seed: int, grace: int) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap(6, grace=grace))
    grouped.count(store="counts").to_stream().to("out")
    model = SessionModel(6, grace)
    with drive(builder.build(), events(seed)) as driver:
        for key, at in events(seed):
            model.add(key, at)
        out = driver.create_output_topic("out", serdes.session_windowed(serdes.string), serdes.long)
        last = {str(key): count for key, count in out.read_key_values()}
        assert driver.dropped == model.dropped
    expected = {str(Windowed(key, *window)): count for key, mine in model.sessions.items() for window, count in mine.items()}
    assert {key: count for key, count in last.items() if count is not None} == expected


# ---- joins -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stream_stream_join_with_enough_grace_finds_every_pair_once(seed: int) -> None:
    """Nothing is ever too late here, so the join is the plain cross product of pairs within the window."""
    left, right = events(seed, 60), [(key, at + 3) for key, at in events(seed + 1_000, 60)]
    if min(at for _, at in left) < YEAR_3000 // 2 <= min(at for _, at in right):
        right = [(key, max(0, at - YEAR_3000)) for key, at in right]
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference(12, grace=10**12, before=5)
    builder.stream("L").join(builder.stream("R"), lambda one, other: [one, other], windows).to("out")
    with TopologyTestDriver(builder.build(), SETTINGS, start_ms=0) as driver:
        one, other = (driver.create_input_topic(topic, serdes.string, serdes.json) for topic in "LR")
        for number in range(60):
            one.pipe_input(left[number][0], number, left[number][1])
            other.pipe_input(right[number][0], number, right[number][1])
        got = [
            (record.key, *record.value, record.timestamp)
            for record in driver.create_output_topic("out", serdes.string, serdes.json).read_records()
        ]
        assert driver.dropped == 0
    expected = [
        (key, i, j, max(at, other_at))
        for i, (key, at) in enumerate(left)
        for j, (other_key, other_at) in enumerate(right)
        if key == other_key and at - 5 <= other_at <= at + 12
    ]
    assert sorted(got) == sorted(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_keeps_the_last_update_by_offset_not_by_time(seed: int) -> None:
    builder = StreamsBuilder()
    builder.table("in", store="rows")
    rows = events(seed)
    with drive(builder.build(), rows) as driver:
        table = {key: tuple(row) for key, row in driver.state_store("rows").all()}
    assert table == {key: (number, at) for number, (key, at) in enumerate(rows)}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_versioned_table_keeps_the_last_update_by_time(seed: int) -> None:
    builder = StreamsBuilder()
    builder.table("in", store="rows", history=10**12)
    rows = events(seed)
    with drive(builder.build(), rows) as driver:
        store = driver.state_store("rows")
        latest = {key: store.get(key) for key, _ in rows}
    for key, version in latest.items():
        at = max(at for other, at in rows if other == key)
        number = max(number for number, row in enumerate(rows) if row == (key, at))
        assert (version.value, version.timestamp) == (number, at)


# ---- what is no time at all --------------------------------------------------------------------------------------------------------


def passing(extractor: Any = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=extractor).to("out")
    return builder.build()


@pytest.mark.parametrize("at", [-1, -2, -(2**63)])
def test_a_negative_timestamp_stops_the_task_at_its_record(at: int) -> None:
    with TopologyTestDriver(passing(), SETTINGS) as driver:
        driver.pipe_bytes("in", b"a", b"1", 5)
        with pytest.raises(StreamsProcessingError, match="negative timestamp") as failure:
            driver.pipe_bytes("in", b"a", b"2", at)
    assert (failure.value.topic, failure.value.partition, failure.value.offset) == ("in", 0, 1)


def test_an_extractor_may_drop_negative_timestamps_or_take_the_partition_time() -> None:
    with TopologyTestDriver(passing(lambda record, partition_time: record.timestamp), SETTINGS) as driver:
        for at in (5, -1, 7, -9):
            driver.pipe_bytes("in", b"a", b"1", at)
        assert [record.timestamp for record in driver.output("out")] == [5, 7]
        assert driver.dropped == 2
    keep = passing(lambda record, partition_time: record.timestamp if record.timestamp >= 0 else partition_time)
    with TopologyTestDriver(keep, SETTINGS) as driver:
        for at in (5, -1, 7, -9):
            driver.pipe_bytes("in", b"a", b"1", at)
        assert [record.timestamp for record in driver.output("out")] == [5, 5, 7, 7]
        assert driver.dropped == 0


def test_the_year_3000_and_the_largest_timestamp_travel_unchanged_and_make_all_else_late() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size(60_000)).count().to_stream().to("out")
    with TopologyTestDriver(builder.build(), SETTINGS, start_ms=0) as driver:
        topic = driver.create_input_topic("in", serdes.string, serdes.json)
        for at in (1_700_000_000_000, YEAR_3000 + 1, 1_700_000_000_001, YEAR_3000):
            topic.pipe_input("a", 1, at)
        out = driver.create_output_topic("out", serdes.time_windowed(serdes.string, 60_000), serdes.long).read_records()
        assert [(record.key.start, record.value, record.timestamp) for record in out] == [
            (1_699_999_980_000, 1, 1_700_000_000_000),
            (YEAR_3000, 1, YEAR_3000 + 1),
            (YEAR_3000, 2, YEAR_3000 + 1),
        ]
        assert driver.dropped == 1
