"""R28 and R29: event time of years ago and of now, three in ten records late, kills, lost directories, other numbers of instances, on a
broker that looks for records to delete every second. The oracle is the undisturbed run.
"""

from __future__ import annotations

import collections
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, TimeWindows
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.system.types import TopicPartition
from tests.faults.counts import full
from tests.faults.crew import BOTH, PARTITIONS
from tests.faults.event_time import OLD_MS, EventTime, labelled, number
from tests.faults.event_time_on_spark import OnSpark
from tests.faults.kills import kill_at
from tests.faults.reliability import note

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
POINTS = ("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8")
EAGER = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "1000",
    "log.segment.delete.delay.ms": "0",
}
"""Whatever the broker may delete is gone within a second."""
Make = Callable[..., EventTime]


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("eager") / "broker", properties=EAGER) as broker:
        yield broker


@pytest.fixture
def make(eager: EmbeddedBroker, tmp_path: Path) -> Iterator[Make]:
    made: list[EventTime] = []

    def of(of_class: type[EventTime] = EventTime, **options: Any) -> EventTime:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(of_class(eager.bootstrap_servers, directory, **options))
        return made[-1]

    yield of
    for each in made:
        each.close()


def undisturbed(make: Make, crew: EventTime, **options: Any) -> EventTime:
    """The same input through an application that nothing happens to."""
    clean = make(base_ms=crew.base_ms, of=crew, **options)
    clean.deploy(1)
    clean.processed()
    clean.stop()
    return clean


def campaign(crew: EventTime, kills: int, *, seed: int, wipe: float = 0.25, each: int = 60) -> int:
    """Kill instances at failpoints and at random times, take a part of their stores away, and stop and deploy with other numbers of
    instances meanwhile; returns how often a store directory was lost.
    """
    dice = random.Random(seed)
    instances, wiped = 2, 0
    crew.write(400)
    crew.deploy(instances)
    for turn in range(kills):
        if turn % 12 == 11:  # an orderly stop, and another number of instances; now and then elsewhere, without any directory
            crew.stop()
            instances = dice.choice([1, 2, 3])
            if dice.random() < 0.5:
                for slot in crew.pids:
                    crew.wipe(slot)
                    wiped += 1
            crew.write(each)
            crew.deploy(instances)
        slot = dice.randrange(instances)
        if dice.random() < 0.5:
            crew.write(each)
            time.sleep(dice.uniform(0.0, 0.4))
            os.kill(crew.pids[slot], signal.SIGKILL)
        else:
            os.kill(crew.pids[slot], signal.SIGKILL)
            crew.died(slot)
            pid = crew.start(slot, failpoints=kill_at(dice.choice(POINTS), dice.randrange(1, 4)))
            deadline = time.monotonic() + 30
            while crew.state_of(pid) and time.monotonic() < deadline:
                crew.write(each // 8 + 1)
                time.sleep(0.05)
            if crew.state_of(pid):
                os.kill(pid, signal.SIGKILL)
        crew.died(slot)
        if dice.random() < wipe:
            crew.wipe(slot)
            wiped += 1
        crew.start(slot)
    crew.write(each)
    crew.processed()
    crew.stop()
    return wiped


def campaign_on_spark(crew: OnSpark, kills: int, *, seed: int, each: int = 60) -> int:
    """Kill Python workers of Spark at random times, and stop and deploy with other numbers of instances meanwhile, half of the times
    without what was on the disk; returns how often a store directory was lost.
    """
    dice = random.Random(seed)
    instances, wiped = 2, 0
    crew.write(400)
    crew.deploy(instances)
    for turn in range(kills):
        if turn % 10 == 9:
            crew.stop()
            assert crew.plan is not None
            lost = [slot for slot in range(crew.plan.instances) if dice.random() < 0.5]
            for slot in lost:
                crew.wipe(slot)
            wiped += len(lost)
            instances = dice.choice([1, 2, 3])
            crew.write(each)
            crew.deploy(instances)
        crew.write(each)
        time.sleep(dice.uniform(0.0, 0.5))
        crew.kill(dice.randrange(instances))
    crew.write(each)
    crew.processed()
    crew.stop()
    return wiped


def compared(make: Make, base_ms: int, kills: int, *, seed: int, what: str, **options: Any) -> None:
    crew = make(base_ms=base_ms, seed=seed, **options)
    judged(make, crew, kills, campaign(crew, kills, seed=seed), what, **options)


def judged(make: Make, crew: EventTime, kills: int, wiped: int, what: str, **options: Any) -> None:
    found = crew.differences(undisturbed(make, crew, **options))
    note("R28", what, kills, len(found), records=len(crew.sent), lost_directories=wiped)
    kinds = collections.Counter(text.partition("|")[0] for text in found)
    assert not found, "\n".join([str(kinds), *found[:20]])
    windows = [TopicPartition(f"{crew.application_id}-hopping-changelog", number) for number in range(PARTITIONS)]
    assert any(crew.admin.beginning_offsets(windows).values()), "nothing that expired was deleted"


@pytest.mark.slow
@pytest.mark.parametrize("when", ["2013", "now"])
def test_results_and_stores_are_those_of_the_undisturbed_run(make: Make, when: str) -> None:
    base_ms = OLD_MS if when == "2013" else int(time.time() * 1000) - 1_200_000
    options = {"statestore.cache.max.bytes": 0, "repartition.purge.interval.ms": 500}
    compared(
        make,
        base_ms,
        6,
        seed=28,
        what=f"kill -9 under the workloads of windows and joins, event time of {when} (sample)",
        **options,
    )


@pytest.mark.slow
def test_a_changelog_that_was_cut_within_a_stores_retention_is_refused(make: Make) -> None:
    crew = make(base_ms=OLD_MS)
    crew.write(400)
    crew.deploy(1)
    crew.processed()
    crew.stop()
    cut = [TopicPartition(f"{crew.application_id}-session-changelog", number) for number in range(PARTITIONS)]
    crew.admin.delete_records(crew.admin.end_offsets(cut))
    crew.wipe(0)
    crew.deploy(1)
    with pytest.raises(
        AssertionError, match=r"TaskCorruptedError.*session-changelog.* were deleted that are within its retention"
    ):
        crew.settle(lambda: False, "the refusal")


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("when", ["2013", "now"])
def test_a_thousand_kills_change_no_result(make: Make, when: str, cache: int) -> None:
    """250 of each; ``KSTREAMS_FAULTS`` scales them. With a cache only what is emitted once, and last values, have to be the same."""
    base_ms = OLD_MS if when == "2013" else int(time.time() * 1000) - 86_400_000
    options = {"statestore.cache.max.bytes": cache, "repartition.purge.interval.ms": 1_000}
    what = f"kill -9 under the workloads of windows and joins, event time of {when}, {'with' if cache else 'without'} caches"
    compared(make, base_ms, full(250), seed=281 + bool(cache), what=what, **options)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("when", ["2013", "now"])
def test_killed_spark_workers_change_no_result(make: Make, spark: Any, when: str, cache: int) -> None:
    """40 of each; ``KSTREAMS_FAULTS`` scales them, down to 12: fewer leave nothing that expires."""
    base_ms = OLD_MS if when == "2013" else int(time.time() * 1000) - 86_400_000
    options = {"statestore.cache.max.bytes": cache, "repartition.purge.interval.ms": 1_000}
    kills, seed = max(12, full(40)), 285 + bool(cache)
    crew = make(OnSpark, spark=spark, base_ms=base_ms, seed=seed, **options)
    assert isinstance(crew, OnSpark)
    what = f"kill -9 of Spark's Python workers under the same, event time of {when}, {'with' if cache else 'without'} caches"
    judged(make, crew, kills, campaign_on_spark(crew, kills, seed=seed), what, **options)


class Future(EventTime):
    """One record in a hundred has an event time of the year 9999; the sink's topic takes none that is more than an hour ahead."""

    def topology(self) -> Any:
        builder = StreamsBuilder()
        stream = builder.stream(f"{self.name}-in", timestamp_extractor=far_ahead, **BOTH)
        counts = stream.group_by(first_digit, **BOTH).windowed_by(TimeWindows.of_size(1_000, grace=10**15)).count(store="windows")
        counts.to_stream().map(labelled("windows")).to(self.out, **BOTH)
        stream.to(f"{self.name}-counts", name="bounded-sink", **BOTH)
        return builder.build()


def far_ahead(record: Any, partition_time: int) -> int:
    return 253_400_000_000_000 if number(record.value) % 100 == 0 else record.timestamp


def first_digit(key: bytes, value: bytes) -> bytes:
    return key[:2]


@pytest.mark.slow
def test_event_times_of_the_year_9999_pass_internal_topics_and_a_sink_asks_its_handler(make: Make) -> None:
    crew = make(base_ms=OLD_MS, of_class=Future, **{"production.exception.handler": "continue", "statestore.cache.max.bytes": 0})
    crew.write(1_000)
    crew.deploy(1)
    crew.processed()
    crew.stop()
    far = [key for key, values in crew.results().items() if values[-1][1] == 253_400_000_000_000]
    assert far, "a window of the year 9999 went through the repartition topic, the changelog and out"
    taken = sum(len(rows) for rows in crew.read(f"{crew.name}-counts").values())
    assert taken == 990, "what the sink's topic does not take is left out, and nothing else"


@pytest.mark.slow
def test_without_a_handler_the_record_that_a_sink_does_not_take_is_named(make: Make) -> None:
    crew = make(base_ms=OLD_MS, of_class=Future)
    crew.write(200)
    crew.deploy(1)
    with pytest.raises(AssertionError, match=rf"bounded-sink.*from the record at {crew.name}-in-\d offset \d+"):
        crew.settle(lambda: False, "the refusal")
