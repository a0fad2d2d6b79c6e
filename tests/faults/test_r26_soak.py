"""R26: hours in small: records, a fault now and then, and nothing that grows.

``KSTREAMS_SOAK_SECONDS`` says how far apart faults are at least (the table's 30 to 90 s, its default, is 40 minutes of faults); the records
are spread over that time.
Faults: kill -9, kill -9 at a failpoint, a pause by SIGSTOP that outlives the transaction, a take-over by another number of instances.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.counts import full
from tests.faults.crew import Crew
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka
_APART = float(os.environ.get("KSTREAMS_SOAK_SECONDS", "30"))
_BATCH = 500


@pytest.fixture
def crew(broker: Any, tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    made: list[Crew] = []

    def make(**options: Any) -> Crew:
        made.append(Crew(broker.bootstrap_servers, tmp_path, transaction_timeout_ms=2_000, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def kill(crew: Crew, dice: random.Random) -> None:
    slot = dice.choice(sorted(crew.pids))
    os.kill(crew.pids[slot], signal.SIGKILL)
    crew.died(slot)
    crew.start(slot)


def kill_in_a_commit(crew: Crew, dice: random.Random) -> None:
    slot = dice.choice(sorted(crew.pids))
    os.kill(crew.pids[slot], signal.SIGKILL)
    crew.died(slot)
    pid = crew.start(slot, failpoints=f"{dice.choice(('F3', 'F5', 'F7', 'F8'))}=kill@{dice.randrange(1, 4)}")
    while crew.state_of(pid):
        crew.write(50)
        time.sleep(0.02)
    crew.died(slot)
    crew.start(slot)


def sleep_through_a_transaction(crew: Crew, dice: random.Random) -> None:
    pid = crew.pids[dice.choice(sorted(crew.pids))]
    os.kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    os.kill(pid, signal.SIGCONT)


def other_instances(crew: Crew, dice: random.Random) -> None:
    former = dict(crew.pids)
    crew.deploy(dice.choice((1, 2, 3)))
    for pid in former.values():
        crew.settle(lambda pid=pid: not crew.state_of(pid), "a former process to leave")


FAULTS = (kill, kill_in_a_commit, sleep_through_a_transaction, other_instances)


class Usage:
    """What the processes use, looked at when all is calm and as long after their start."""

    def __init__(self) -> None:
        self.rss: list[float] = []
        self.files: list[int] = []
        self.threads: list[int] = []
        self.disk: list[int] = []

    def look(self, crew: Crew) -> None:
        running = [psutil.Process(pid) for pid in crew.pids.values() if crew.state_of(pid)]
        self.rss.append(max(process.memory_info().rss for process in running) / 1e6)
        self.files.append(max(process.num_fds() for process in running))
        self.threads.append(max(process.num_threads() for process in running))
        self.disk.append(sum(1 for file in (crew.directory / "state").rglob("*")))

    def growth(self) -> list[str]:
        """What the second half has more of than the first allows."""
        found = []
        for name, seen, allowed in (
            ("MB", self.rss, 1.25),
            ("files", self.files, 1.2),
            ("threads", self.threads, 1.2),
            ("paths", self.disk, 1.3),
        ):
            half = len(seen) // 2
            before, after = statistics.median(seen[:half]), statistics.median(seen[half:])
            if after > allowed * before + 8:
                found.append(f"{name} grew from {before:.0f} to {after:.0f}")
        return found


def calm(crew: Crew, seconds: float) -> None:
    """Everything is committed and every instance runs: one that was started last may have had nothing left to do."""
    crew.processed(seconds)
    crew.settle(lambda: [told["state"] for told in crew.reports()] == ["running"] * len(crew.pids), "running instances", seconds)


def soak(crew: Crew, records: int, least: int, *, apart: float, seed: int) -> tuple[list[str], int, Usage]:
    """Violations, how many faults there were, and what was used."""
    dice, usage, faults = random.Random(seed), Usage(), 0
    crew.write(_BATCH)
    crew.deploy(2)
    began = time.monotonic()
    pace = records / (least * 2 * apart)
    due = began + apart
    while len(crew.sent) < records or faults < least:
        crew.write(_BATCH)
        time.sleep(max(0.0, min(1.0, began + len(crew.sent) / pace - time.monotonic())))
        if time.monotonic() < due:
            continue
        calm(crew, 120)
        usage.look(crew)
        dice.choice(FAULTS)(crew, dice)
        faults += 1
        due = time.monotonic() + dice.uniform(apart, 3 * apart)
        print(f"{time.monotonic() - began:.0f} s: {len(crew.sent):,} records, {faults} faults, {usage.rss[-1]:.0f} MB")
    calm(crew, 300)
    usage.look(crew)
    crew.stop()
    return crew.violations(), faults, usage


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_a_soak_with_a_fault_now_and_then_ends_right_and_nothing_grows(crew: Callable[..., Crew]) -> None:
    records = full(10_000_000)
    wrong, faults, usage = soak(crew(), records, max(6, full(40)), apart=_APART, seed=26)
    grown = usage.growth() if len(usage.rss) >= 6 else []
    note("R26", f"soak of {records:,} records", faults, len(wrong) + len(grown), rss_MB=f"{usage.rss[0]:.0f} to {usage.rss[-1]:.0f}",
         files=f"{usage.files[0]} to {usage.files[-1]}", threads=f"{usage.threads[0]} to {usage.threads[-1]}")  # fmt: skip
    assert not wrong, wrong
    assert not grown, grown
