"""R19: bounded runs stop at exactly the offsets that were fixed when they began, under kills, while a producer appends."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.batch.stop_offsets import by_partition
from kstreams_repl.host.journal.journal_records import StopOffsets
from kstreams_repl.host.kafka.clients import ClientEvents, make_transactional_producer
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.testing import TopologyTestDriver
from tests.faults.batch_topologies import TOPOLOGIES
from tests.faults.bounded_runs import START_MS, BoundedRuns, input_record, wanted_of
from tests.faults.counts import full
from tests.faults.kills import kill_at
from tests.faults.reliability import note

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
DRIVER_POINTS = ("B1", "B2", "B4", "B5", "B6")
INSTANCE_POINTS = ("B3", "F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10")


@contextmanager
def appending(runs: BoundedRuns) -> Iterator[None]:
    """A producer that goes on all the time."""
    over = threading.Event()

    def append() -> None:
        while not over.wait(0.05):
            runs.write(3)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def check(runs: BoundedRuns, record: StopOffsets) -> None:
    """The output of all runs so far is that of one run over the same input."""
    assert runs.values() == wanted_of(runs.topology, runs.input_up_to(record))


def campaign(runs: BoundedRuns, points: list[str], seed: int) -> Counter[str]:
    """One run for each point, killed there, and gone on with until it is finished; return the number of kills by kind of process."""
    dice = random.Random(seed)
    kills: Counter[str] = Counter()
    with appending(runs):
        for point in points:
            runs.write(dice.randrange(20, 200))
            before = runs.record()
            if point in DRIVER_POINTS:
                runs.start(driver=f"{point}=kill")
                assert runs.wait() == -9
                kills["of_drivers"] += 1
            else:
                slot = dice.randrange(2)
                runs.start(instances={slot: kill_at(point, dice.randrange(1, 3))})
                assert runs.wait() == 0
                kills["of_workers"] += runs.deaths
            fixed = runs.record()
            number = 1 if before is None else before.run + 1
            if point == "B1":
                assert fixed == before, "nothing was written"
            else:
                assert fixed is not None and fixed.run == number
            if point in ("B1", "B2", "B4", "B5"):
                runs.until_finished()
            record = runs.check_end()
            assert record.run == number
            if point != "B1":
                assert fixed is not None and record.offsets == fixed.offsets, "stop offsets were taken again"
            check(runs, record)
    return kills


@pytest.mark.slow
def test_kills_of_driver_and_instances_leave_the_stop_offsets_as_they_were_fixed(runs: Callable[..., BoundedRuns]) -> None:
    kills = campaign(runs("two"), ["B2", "F5", "B4"], 1)
    note("R19", "kill -9 of driver and instances in bounded runs, while a producer appends (sample)", kills.total(), 0)


@pytest.mark.slow
def test_a_run_ends_when_its_calls_have_ended(runs: Callable[..., BoundedRuns]) -> None:
    """An instance is killed with records in its asynchronous node; the one that follows makes their calls again."""
    kills = campaign(runs("calls"), ["F5"], 4)
    note("R19", "kill -9 in bounded runs with calls in flight, while a producer appends (sample)", kills, 0)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("topology", ["one", "calls", "two", "diamond"])
def test_kills_at_every_numbered_step(runs: Callable[..., BoundedRuns], topology: str) -> None:
    points = [*DRIVER_POINTS, *INSTANCE_POINTS]
    count = full(len(points) * 2 + 2)
    kills = campaign(runs(topology), (points * count)[:count], len(topology))
    note("R19", f"kill -9 at every step of bounded runs ({topology})", kills.total(), 0, **kills)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_run_survives_the_death_of_the_broker(tmp_path: Path) -> None:
    """The stop offsets stay as they were fixed, and the run ends there by itself when the broker is back."""
    dice, count = random.Random(19), full(10)
    broker = EmbeddedBroker(tmp_path / "broker").start()
    mine = BoundedRuns(broker.bootstrap_servers, tmp_path / "state", "two")
    try:
        for number in range(1, count + 1):
            mine.write(dice.randrange(500, 2_000))
            mine.start()
            deadline = time.monotonic() + 60
            while (record := mine.record()) is None or record.run < number:
                assert time.monotonic() < deadline, "no run began"
            time.sleep(dice.uniform(0.0, 1.0))
            broker.kill()
            time.sleep(dice.uniform(0.0, 2.0))
            broker.start()
            if mine.wait() != 0:  # the driver of these tests does not wait for a broker; a second one goes on
                mine.until_finished()
            last = mine.check_end()
            assert last.run == number and last.offsets == record.offsets, "stop offsets were taken again"
            check(mine, last)
        note("R19", "broker killed in bounded runs", count, 0)
    finally:
        mine.close()
        broker.stop()


@pytest.mark.slow
def test_runs_of_several_stages_end_in_one_run_and_add_up(runs: Callable[..., BoundedRuns]) -> None:
    """Three runs over three stages, one of them without input: no stage is left for the next run."""
    mine = runs("diamond", partitions=4, instances=3)
    mine.write(500)
    first = mine.run()
    check(mine, first)
    empty = mine.run()
    assert empty.offsets == first.offsets and empty.run == 2
    mine.write(300)
    last = mine.run()
    assert last.starts.items() >= first.offsets.items() and sum(by_partition(last.offsets).values()) == 800
    check(mine, last)


@pytest.mark.slow
def test_transactional_and_aborted_input_stops_at_the_last_stable_offset(runs: Callable[..., BoundedRuns]) -> None:
    """The log ends with aborted records, their marker, and a transaction that is still open: it belongs to the next run."""
    mine = runs("one", partitions=1, instances=1)
    at = TopicPartition(f"{mine.name}-in", 0)

    def transaction(name: str, count: int) -> Any:
        producer = make_transactional_producer(
            mine.settings, transactional_id=f"{mine.name}-{name}", transaction_timeout_ms=60_000, events=ClientEvents()
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(count):
            producer.produce(f"{mine.name}-in", b"%d" % number, b"k", 0)
        assert producer.flush(30) == 0
        return producer

    transaction("first", 20).commit_transaction(30)
    mine.admin.settled_end_offsets([at])  # the marker may come after the answer
    transaction("second", 10).abort_transaction(30)
    mine.admin.settled_end_offsets([at])
    still_open = transaction("third", 5)
    [stop] = mine.ends().values()
    record = mine.run()
    assert by_partition(record.offsets) == {at: stop} and stop == 20 + 1 + 10 + 1
    assert len(mine.values()[b"k"]) == 20
    still_open.commit_transaction(30)
    mine.admin.settled_end_offsets([at])
    again = mine.run()
    assert list(by_partition(again.offsets).values()) == [stop + 5 + 1] and len(mine.values()[b"k"]) == 25
    check(mine, again)


@pytest.mark.slow
def test_partitions_that_are_added_between_two_runs_belong_to_the_later_one(runs: Callable[..., BoundedRuns]) -> None:
    mine = runs("two")
    mine.write(60)
    mine.run()
    mine.grow(5)
    for partition in range(5):
        for number in range(10):
            mine.send("in", b"k", b"%d" % number, 1000 + number, partition)
    mine.write(1)
    record = mine.run()
    assert len(by_partition(record.offsets)) == 5
    check(mine, record)


@pytest.mark.slow
@pytest.mark.parametrize("kill", ["B7=kill", "B7=kill@2", "F3=kill", "F5=kill", kill_at("F6"), "F8=kill"])
def test_windows_close_once_at_the_end_stage_by_stage_under_kills(runs: Callable[..., BoundedRuns], kill: str) -> None:
    mine = runs("windows", **{"repl.autostop.on.end": "close_windows"})
    wanted: dict[bytes, list[bytes | None]] = {}
    for _ in range(2):
        first = mine.written
        mine.write(150)
        mine.start(instances={0: kill})
        assert mine.wait() == 0 and mine.deaths >= 1
        mine.check_end()
        for key, rows in closed_stream(first, mine.written).items():
            wanted.setdefault(key, []).extend(rows)
        assert mine.values() == wanted
        mine.written += 1000 - mine.written % 1000  # the next run's windows are others
    assert mine.run().run == 3 and mine.values() == wanted, "nothing was open any more"


def closed_stream(first: int, end: int) -> dict[bytes, list[bytes | None]]:
    """What a stream writes for these input numbers when later records have closed all its windows, stage after stage."""
    driver = TopologyTestDriver(TOPOLOGIES["windows"]("t"), {"statestore.cache.max.bytes": 0})
    inputs, outputs = driver.create_input_topic("t-in"), driver.create_output_topic("t-out")
    for number in range(first, end):
        inputs.pipe_input(*input_record(number))
    far = START_MS + 10**9
    inputs.pipe_input(b"end", b"0", far)
    inputs.pipe_input(b"end", b"0", 2 * far)
    return {row.key: [row.value] for row in outputs.read_records()}


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "instances"), [(1, 1), (3, 2), (5, 3)])
@pytest.mark.parametrize("topology", ["two", "diamond", "foreign", "sessions"])
def test_several_runs_leave_what_one_run_leaves(
    runs: Callable[..., BoundedRuns], topology: str, partitions: int, instances: int
) -> None:
    """Rows of stages, sub-topologies in a circle, and session windows that span runs: the last value of each key."""
    several, whole = (runs(topology, partitions=partitions, instances=instances) for _ in range(2))
    for each in (several, whole):
        for number in range(10):
            each.send("side", b"k%d" % number, b"row%d" % number, 0)
    for _ in range(3):
        several.write(120)
        several.run()
    whole.write(360)
    whole.run()
    tables = [{key: rows[-1] for key, rows in each.values().items() if rows[-1] is not None} for each in (several, whole)]
    assert tables[0] == tables[1] and tables[0]


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["one", "two", "sessions"])
def test_runs_with_kills_write_byte_for_byte_what_one_stream_writes(runs: Callable[..., BoundedRuns], topology: str) -> None:
    """One partition, so that the order of every stage is given: keys, values and timestamps are those of a stream in the test driver."""
    mine = runs(topology, partitions=1, instances=1)
    for kill in ("F3=kill", "F5=kill", kill_at("F6")):
        mine.write(150)
        mine.start(instances={0: kill})
        assert mine.wait() == 0 and mine.deaths >= 1
        mine.check_end()
    driver = TopologyTestDriver(TOPOLOGIES[topology]("t"), {"statestore.cache.max.bytes": 0})
    inputs, outputs = driver.create_input_topic("t-in"), driver.create_output_topic("t-out")
    wanted: dict[bytes, list[tuple[bytes | None, int]]] = {}
    for number in range(mine.written):
        inputs.pipe_input(*input_record(number))
    for row in outputs.read_records():
        wanted.setdefault(row.key, []).append((row.value, row.timestamp))
    assert mine.rows() == wanted
