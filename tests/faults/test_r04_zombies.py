"""R4: processes that sleep past their transaction's time-out while others take their tasks over, and then wake up."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counts import full
from tests.faults.crew import Crew
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka
_ABORTED_SECONDS = 14.0
"""The transactions' timeout, and the interval in which a broker looks for those that have passed it."""
PLACES = ("anywhere", "F3", "F5", "F7", "inside")


@pytest.fixture
def crew(broker: Any, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(broker.bootstrap_servers, tmp_path, transaction_timeout_ms=2_000)
    yield made
    made.close()


def zombies(crew: Crew, rounds: list[tuple[str, int]]) -> list[str]:
    """In each round the running processes are stopped at a place, a generation of another size takes over, and they wake up in it."""
    crew.write(400)
    crew.deploy(2)
    crew.processed()
    for place, instances in rounds:
        if place != "anywhere":
            crew.deploy(2, failpoints="" if place == "inside" else f"{place}=stop@3", inside=3 if place == "inside" else 0)
        asleep = list(crew.pids.values())
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not all(crew.state_of(pid) == "T" for pid in asleep):
            crew.write(60)
            time.sleep(0.1)
            if place == "anywhere":
                for pid in asleep:
                    os.kill(pid, signal.SIGSTOP)
        stopped = [pid for pid in asleep if crew.state_of(pid) == "T"]
        assert stopped, f"nobody was stopped at {place}"
        crew.write(200)
        crew.deploy(instances)
        crew.processed()
        for pid in stopped:
            if crew.state_of(pid):  # one that held a write lock was ended
                os.kill(pid, signal.SIGCONT)
        crew.write(200)
        crew.processed()
        crew.settle(lambda left=tuple(asleep): not any(map(crew.state_of, left)), "the zombies to leave")
    crew.stop()
    return crew.violations()


@pytest.mark.slow
def test_zombies_are_fenced_and_leave(crew: Crew) -> None:
    rounds = [("F7", 4), ("inside", 1)]
    wrong = zombies(crew, rounds)
    note("R4", "zombies at F7 and inside a store's commit, 2 → 4 → 1 instances (sample)", len(rounds), len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_zombies_are_fenced_and_leave(crew: Crew) -> None:
    dice, count = random.Random(4), full(50)
    wrong = zombies(crew, [(dice.choice(PLACES), dice.choice((1, 2, 4))) for _ in range(count)])
    note("R4", "zombies at F3, F5, F7, inside a store's commit and anywhere", count, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_that_slept_past_its_transaction_goes_on_by_itself(crew: Crew) -> None:
    """Nobody takes over; the broker has aborted what was open, and the producer is of no use any more."""
    crew.write(400)
    crew.deploy(2)
    crew.processed()
    asleep = dict(crew.pids)
    for _ in range(3):
        crew.write(4_000)
        time.sleep(0.3)
        for pid in asleep.values():
            os.kill(pid, signal.SIGSTOP)
        time.sleep(_ABORTED_SECONDS)
        for pid in asleep.values():
            os.kill(pid, signal.SIGCONT)
        crew.processed()
    assert crew.pids == asleep and all(map(crew.state_of, asleep.values()))
    crew.stop()
    wrong = crew.violations()
    note("R4", "asleep past the transaction's timeout, without a successor", 6, len(wrong))
    assert not wrong, wrong
