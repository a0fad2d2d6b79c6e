"""R32: kill -9 of workers and of the driver with calls of an asynchronous node in flight, on a real broker. The called service counts:
nothing is lost or doubled in topics and stores, and with durable results a finished call is never made again.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstreams_repl.host.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.system.types import TopicPartition
from tests.faults.counts import full
from tests.faults.crew import PARTITIONS, Crew
from tests.faults.paid_service import PaidService, paying
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka
IN_FLIGHT = 8


@pytest.fixture
def service() -> Iterator[PaidService]:
    running = PaidService()
    yield running
    running.close()


class ResultLogReader:
    """Follows the log of durable results, of which the instances delete what they do not need."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._at = {TopicPartition(f"{crew.application_id}-user-results-changelog", number): 0 for number in range(PARTITIONS)}
        self.keys: set[str] = set()

    def read(self) -> set[str]:
        """The idempotency keys of all calls whose result has been in the log."""
        admin = self._crew.admin
        begins, ends = admin.beginning_offsets(list(self._at)), admin.end_offsets(list(self._at), isolation="read_uncommitted")
        ranges = [OffsetRange(at, max(offset, begins[at]), ends[at]) for at, offset in self._at.items()]
        for _, batch in read_ranges(self._crew.settings, ranges, isolation="read_uncommitted"):
            for key in batch.keys:
                assert key is not None
                partition, offset, index = struct.unpack_from(">iqi", key)
                self.keys.add(f"{self._crew.application_id}/user/{key[32:].decode()}-{partition}@{offset}.{index}")
        self._at = dict(ends)
        return set(self.keys)


def campaign(crew: Crew, service: PaidService, kills: int, *, durable: bool, seed: int) -> tuple[list[str], dict[str, Any]]:
    """Kill while records come and calls are in flight; every tenth time the driver, and every seventh time all workers.

    Returns:
        (what is wrong, figures)
    """
    dice = random.Random(seed)
    log = ResultLogReader(crew) if durable else None
    finished: list[tuple[float, set[str]]] = []
    in_flight = unanswered = drivers = mark = 0
    crew.write(200)
    crew.deploy(2)
    for number in range(1, kills + 1):
        crew.write(60)
        until = time.monotonic() + dice.uniform(0.1, 0.6)
        while time.monotonic() < until or not service.unanswered:
            crew.raise_failures()
            time.sleep(0.005)
            assert time.monotonic() < until + 60, "no call is in flight"
            if len(service.answered) == len(crew.sent):
                crew.write(60)
        if number % 10 == 0:
            crew.kill_driver()
            drivers += 1
            victims = list(crew.pids)
        else:
            victims = list(crew.pids) if number % 7 == 0 else [dice.choice(list(crew.pids))]
            for slot in victims:
                os.kill(crew.pids[slot], signal.SIGKILL)
            for slot in victims:
                crew.died(slot)
        unanswered += len(service.unanswered)
        time.sleep(0.1)  # what the dead workers have sent arrives
        begun, mark = {key for _, key in service.begun[mark:]}, len(service.begun)
        if log is not None:
            keys = log.read()  # before the clock: the other worker goes on, and what it begins and ends meanwhile is in here
            finished.append((time.monotonic(), keys))
            in_flight += len(begun - keys)  # begun at the service since the last kill, and without a result in the log
        if number % 10 == 0:
            crew.deploy(2)
        else:
            for slot in victims:
                crew.start(slot)
    crew.settle(lambda: len(service.answered) == len(crew.sent), "all calls to be answered")
    crew.processed()
    crew.settle(lambda: sum(map(len, crew.read(f"{crew.name}-joined").values())) >= len(crew.sent), "all results to leave")
    crew.stop()
    wrong = crew.violations()
    for at, keys in finished:
        again = {key for began, key in service.begun if began > at and key in keys}
        wrong += [f"finished calls were repeated: {sorted(again)[:5]}"] if again else []
    if durable and service.repeated > min(in_flight, kills * 2 * IN_FLIGHT):
        wrong.append(f"{service.repeated} calls were repeated, {in_flight} were in flight at {kills} kills")
    figures = {
        "records": len(crew.sent), "calls": service.asked.total(), "unanswered_calls_at_the_kills": unanswered,
        **({"in_flight_calls_at_the_kills": in_flight} if durable else {}),
        "repeated_calls": service.repeated, "of_these_kills_of_the_driver": drivers,
    }  # fmt: skip
    return wrong, figures


def options(**more: Any) -> dict[str, Any]:
    """In input order: behind keys that overtake each other, windows without grace would drop what they find late."""
    return {"in_flight": IN_FLIGHT, "timeout": "20s", "order": "partition"} | more


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_with_calls_in_flight_repeat_no_finished_call(crew: Callable[..., Crew], service: PaidService) -> None:
    paid = crew(user=paying(service.port), calls=options(durable=True))
    wrong, figures = campaign(paid, service, 5, durable=True, seed=1)
    note("R32", "kill -9 with calls in flight, durable results (sample)", 5, len(wrong), **figures)
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("durable", [True, False])
def test_many_kills_with_calls_in_flight(crew: Callable[..., Crew], service: PaidService, durable: bool) -> None:
    count = full(200)
    paid = crew(user=paying(service.port), calls=options(durable=durable))
    wrong, figures = campaign(paid, service, count, durable=durable, seed=2)
    note("R32", f"kill -9 with calls in flight, {'durable' if durable else 'plain'} results", count, len(wrong), **figures)
    assert not wrong, wrong
