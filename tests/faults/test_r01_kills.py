"""R1 and R2: kill -9 of the process that runs the tasks, at every failpoint and at random times."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest

from tests.faults.counts import full
from tests.faults.crew import Crew
from tests.faults.kills import kill_at
from tests.faults.reliability import note

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
POINTS = ("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F9", "F10")


def campaign(crew: Crew, points: list[str], random_kills: int, *, records: int, seed: int, wipe: bool = False) -> list[str]:
    """Kill one of two processes at each point in turn and at random times, while records keep coming; then look at everything.

    Args:
        wipe: take the stores of the killed away, so that they come back from changelogs that have aborted records in them.
    """
    dice = random.Random(seed)
    each = records // (len(points) + random_kills + 1)
    slot = 0
    crew.write(each)
    crew.deploy(2)
    for point in points:
        slot = 1 - slot
        crew.raise_failures()
        os.kill(crew.pids[slot], signal.SIGKILL)
        crew.died(slot)
        crew.start(slot, failpoints=kill_at(point, dice.randrange(1, 4)))
        pid = crew.pids[slot]
        while crew.state_of(pid):
            crew.write(each // 8 + 1)
            time.sleep(0.05)
        crew.died(slot)
        if wipe:
            crew.wipe(slot)
        crew.start(slot)
    for _ in range(random_kills):
        slot = dice.randrange(2)
        crew.write(each)
        time.sleep(dice.uniform(0.0, 1.0))
        os.kill(crew.pids[slot], signal.SIGKILL)
        crew.died(slot)
        crew.start(slot)
    crew.processed()
    crew.stop()
    return crew.violations()


@pytest.mark.slow
def test_kills_at_every_failpoint_change_nothing(crew: Callable[..., Crew]) -> None:
    wrong = campaign(crew(), list(POINTS), 2, records=8_000, seed=1)
    note("R1", "kill -9 at F1–F10 and between, exactly once (sample)", 2 * len(POINTS) + 2, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
def test_kills_under_at_least_once_lose_nothing(crew: Callable[..., Crew]) -> None:
    wrong = campaign(crew(guarantee="at_least_once"), ["F4", "F7"], 0, records=4_000, seed=2)
    note("R2", "kill -9, at least once (sample)", 4, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
def test_stores_come_back_without_what_was_aborted(crew: Callable[..., Crew]) -> None:
    wrong = campaign(crew(), ["F4", "F5"], 0, records=2_000, seed=3, wipe=True)
    note("R10", "restore over aborted transactions (sample)", 2, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_stores_come_back_without_what_was_aborted_many_times(crew: Callable[..., Crew]) -> None:
    count = full(50)
    wrong = campaign(crew(), (["F3", "F4", "F5"] * count)[:count], 0, records=50_000, seed=11, wipe=True)
    note("R10", "restore over aborted transactions", count, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("point", POINTS)
def test_kills_at_a_failpoint_for_many_seeds(crew: Callable[..., Crew], point: str) -> None:
    count = full(20)
    wrong = campaign(crew(), [point] * count, 0, records=100_000, seed=POINTS.index(point))
    note("R1", f"kill -9 at {point}, exactly once, and one more between two of these", 2 * count, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kills_at_random_times(crew: Callable[..., Crew]) -> None:
    count = full(50)
    wrong = campaign(crew(), [], count, records=100_000, seed=9)
    note("R1", "kill -9 at random times, exactly once", count, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_kills_under_at_least_once(crew: Callable[..., Crew]) -> None:
    count = full(100)
    wrong = campaign(crew(guarantee="at_least_once"), [], count, records=100_000, seed=10)
    note("R2", "kill -9 at random times, at least once", count, len(wrong))
    assert not wrong, wrong
