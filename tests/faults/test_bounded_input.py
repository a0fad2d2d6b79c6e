"""Bounded runs over input that changes while the stop offsets stand: compacted away, aborted to the last record, empty, or with more
partitions than when the run began."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, connect, serdes
from kstreams_repl.host.batch.stop_offsets import by_partition
from kstreams_repl.host.kafka.clients import ClientEvents, make_transactional_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.system.errors import InputOffsetError, KStreamsError, UnknownTopicError
from kstreams_repl.system.types import TopicPartition
from tests.faults.bounded_runs import BoundedRuns, counted
from tests.spark.hosting import Host, decoded, expected_counts, numbered, passing, settle

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]
CLEANED_SOON = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "100", "max.compaction.lag.ms": "100"}


def offsets_in_log(runs: BoundedRuns) -> list[int]:
    """Of the records that the input still holds."""
    found = read_ranges(runs.settings, ranges_of(runs.admin, f"{runs.name}-in", settled=True))
    return [offset for _, batch in found for offset in batch.offsets]


def test_records_below_the_stop_offset_that_are_compacted_away_meanwhile(runs: Callable[..., BoundedRuns]) -> None:
    """The stop offset is fixed, the driver dies, and compaction takes every record below it and many above it."""
    mine = runs("one", partitions=1, instances=1)
    mine.admin.alter_topic_configs(f"{mine.name}-in", CLEANED_SOON)
    for number in range(100):
        mine.send("in", b"k", b"%d" % number, number)
    mine.write(0)  # flushes
    mine.start(driver="B2=kill")
    assert mine.wait() == -9
    for number in range(100, 1_000):
        mine.send("in", b"k", b"%d" % number, number)
    mine.write(0)
    time.sleep(0.2)
    mine.send("in", b"last", b"1000", 2_000)  # the segments before it can be compacted
    mine.write(0)
    deadline = time.monotonic() + 90
    while (left := offsets_in_log(mine)) != [999, 1_000]:
        assert time.monotonic() < deadline, f"not compacted: {left[:5]} … {left[-5:]}"
        time.sleep(1)
    at = TopicPartition(f"{mine.name}-in", 0)

    mine.until_finished()
    assert by_partition(mine.check_end().offsets) == {at: 100} and mine.values() == {}

    mine.config["autostop.at"] = f'{{"{mine.name}-in": {{"0": 500}}}}'  # no record has this offset, and none before it is left
    assert by_partition(mine.run().offsets) == {at: 500} and mine.values() == {}

    mine.config["autostop.at"] = "eol"
    assert by_partition(mine.run().offsets) == {at: 1_001} and mine.values() == counted([b"k", b"last"])


def test_input_that_ends_with_aborted_records_or_has_no_others(runs: Callable[..., BoundedRuns]) -> None:
    """Nothing comes after the marker of the abort, so no record shows that the stop offset is reached."""
    mine = runs("two", partitions=1, instances=1)
    at = TopicPartition(f"{mine.name}-in", 0)

    def transaction(count: int) -> Any:
        producer = make_transactional_producer(
            mine.settings, transactional_id=f"{mine.name}-input", transaction_timeout_ms=60_000, events=ClientEvents()
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(f"{mine.name}-in", b"%d" % number, b"k", 0)
        assert producer.flush(30) == 0
        return producer

    transaction(30).abort_transaction(30)
    record = mine.run()
    assert by_partition(record.offsets) == {at: 31} and mine.values() == {}
    transaction(7).commit_transaction(30)
    transaction(40).abort_transaction(30)
    mine.start(instances={0: "B3=kill"})
    assert mine.wait() == 0 and mine.deaths == 1
    record = mine.check_end()
    assert by_partition(record.offsets) == {at: 31 + 8 + 41}
    assert sum(map(len, mine.values().values())) == 7


def test_empty_input_ends_at_once_in_every_stage(runs: Callable[..., BoundedRuns]) -> None:
    mine = runs("diamond", partitions=4, instances=3)
    for number in (1, 2):
        record = mine.run()
        assert record.run == number and set(by_partition(record.offsets).values()) == {0} and mine.values() == {}


def test_partitions_that_are_added_while_a_run_is_open_belong_to_the_next_one(runs: Callable[..., BoundedRuns]) -> None:
    """Deaths of the driver before and after it: each of its successors meets more partitions than have stop offsets."""
    mine = runs("two")
    mine.write(200)
    mine.start(driver="B2=kill")
    assert mine.wait() == -9
    fixed = mine.record()
    assert fixed is not None and len(by_partition(fixed.offsets)) == 3
    mine.grow(5)
    for partition in range(5):
        for number in range(10):
            mine.send("in", b"k", b"%d" % number, 1000 + number, partition)
    mine.write(1)
    mine.start(driver="B4=kill")
    assert mine.wait() == -9
    mine.until_finished()
    record = mine.check_end()
    assert record.run == 1 and record.offsets == fixed.offsets
    assert sum(map(len, mine.values().values())) == 200, "one output for each record below the stop offsets"
    last = mine.run()
    assert last.run == 2 and len(by_partition(last.offsets)) == 5
    assert sum(map(len, mine.values().values())) == 200 + 50 + 1, mine.story()


@pytest.fixture
def growths(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the driver's watch of the input has found."""
    found: list[Any] = []
    take = Deployment._partitions_changed

    def noting(deployment: Deployment, run: Any, grown: Any, lost: Any) -> bool:
        found.append(dict(grown))
        return take(deployment, run, grown, lost)

    monkeypatch.setattr(Deployment, "_partitions_changed", noting)
    return found


def gate(path: Path) -> Callable[[Any], Any]:
    """A mapper that holds every record until the file is there: a run does not end before."""
    file = str(path)

    def held(value: Any) -> Any:
        while not os.path.exists(file):
            time.sleep(0.01)
        return value

    return held


def growing(host: Host, topology: Any, source: str, growths: list[Any], opened: Path) -> Deployment:
    """A bounded run over 200 records; two partitions and 200 records are added before it can end."""
    host.produce(source, numbered(200))
    deployment = host.deploy(topology, autostop_at="eol", repl_partitions_check_ms=200)
    host.admin.add_partitions(source, 4)
    settle(lambda: bool(growths), "the watch to see the new partitions", story=lambda: deployment)
    host.produce(source, numbered(200, start=200))
    opened.touch()
    assert deployment.wait(60) and deployment.status is Status.STOPPED, deployment.error
    assert growths[0] == {source: (2, 4)}
    stops = deployment.plan.stops if deployment.plan is not None else None
    assert stops is not None and set(stops) == {TopicPartition(source, 0), TopicPartition(source, 1)} and sum(stops.values()) == 200
    committed = host.admin.committed_offsets(deployment.application_id, [TopicPartition(source, at) for at in range(4)])
    assert {at: found.offset for at, found in committed.items()} == stops
    return deployment


def test_a_run_on_spark_ends_at_its_stop_offsets_while_its_input_grows(host: Host, growths: list[Any], tmp_path: Path) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    opened = tmp_path / "opened"
    held = gate(opened)
    deployment = growing(host, passing(source, sink, lambda value: str(held(value))), source, growths, opened)
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(200))
    deployment.start()
    assert deployment.wait(60) and deployment.status is Status.STOPPED, deployment.error
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(400))


def test_state_that_cannot_follow_the_growth_is_refused_by_the_next_run_not_by_the_open_one(
    host: Host, growths: list[Any], tmp_path: Path
) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    opened = tmp_path / "opened"
    builder = StreamsBuilder()
    held = builder.stream(source, key_serde=serdes.string, value_serde=serdes.bytes).map_values(gate(opened))
    counts = held.group_by_key(key_serde=serdes.string, value_serde=serdes.bytes).count(store="counts")
    counts.to_stream().to(sink, key_serde=serdes.string, value_serde=serdes.long)
    deployment = growing(host, builder.build(), source, growths, opened)
    assert decoded(host.table(sink)) == expected_counts(numbered(200))
    with pytest.raises(KStreamsError, match="partitions"):
        deployment.start()
    assert deployment.status is Status.STOPPED


def test_a_run_whose_input_is_deleted_fails_and_its_stop_offsets_do_not_bind_the_topic_that_replaces_it(host: Host, tmp_path: Path) -> None:
    source, sink = host.topic("in", 1), host.topic("out", 1)
    held = gate(tmp_path / "opened")
    host.produce(source, numbered(200))
    topology = passing(source, sink, lambda value: str(held(value)))
    deployment = host.deploy(topology, autostop_at="eol", repl_partitions_check_ms=200)
    settle(lambda: deployment.status is Status.RUNNING, "the run", story=lambda: deployment)
    host.admin.delete_topics([source])
    settle(lambda: deployment.status is Status.FAILED, "the run to miss its input", story=lambda: deployment)
    assert isinstance(deployment.error, KStreamsError) and source in str(deployment.error)
    (tmp_path / "opened").touch()
    with pytest.raises(UnknownTopicError, match=source):
        deployment.start()

    host.admin.create_topic(source, 1)
    host.produce(source, numbered(10))
    with pytest.raises(InputOffsetError, match=f"stops at offset 200 of {source}-0, but the log ends at 10"):
        deployment.start()
    assert len(host.read(sink)) == 0
    with connect(host.bootstrap, directory=host.directory) as session:
        session.reset(deployment.application_id, delete_stop_offsets=True)
    deployment = host.deploy(topology, autostop_at="eol")
    assert deployment.wait(60) and deployment.status is Status.STOPPED, deployment.error
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(10))
