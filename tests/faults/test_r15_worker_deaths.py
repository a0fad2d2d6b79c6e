"""R15: user code that takes its worker with it, or never comes back.

The function dies at a record of its choice: once, and then the slot goes on by itself; or always, and then the application fails with the
node and the record, and a repaired one goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.instance.control.channel import Signal
from tests.faults import mortal
from tests.faults.counts import full
from tests.faults.crew import Crew
from tests.faults.mortal import DEATHS, Mortal, endless_loop, endless_match, killed_for_memory, leave, segfault
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka
LIMIT_MS = 600
NEVER_MS = 30_000
"""A limit that a healthy process does not reach on a busy machine either, for deaths that need none."""


@pytest.fixture
def crew(broker: Any, tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    made: list[Crew] = []

    def make(**options: Any) -> Crew:
        made.append(Crew(broker.bootstrap_servers, tmp_path, **{"max_poll_interval_ms": LIMIT_MS} | options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def start_the_dead_again(crew: Crew) -> int:
    """As Spark would; returns how many."""
    dead = [slot for slot, pid in crew.pids.items() if not crew.state_of(pid)]
    for slot in dead:
        crew.start(slot)
    return len(dead)


def run_through(crew: Crew, count: int) -> int:
    """Start processes again until that many have died."""
    died, deadline = 0, time.monotonic() + 30 + 10 * count
    while died < count:
        died += start_the_dead_again(crew)
        crew.raise_failures()
        assert time.monotonic() < deadline, f"{died} of {count} died"
        time.sleep(0.01)
    return died


def failure(crew: Crew) -> tuple[dict[str, Any], int]:
    """Start processes again until the application has failed; the failure, and how many have died."""
    died, deadline = 0, time.monotonic() + 60
    while True:
        for report in crew.lease.reports(crew.generation).values():
            if report.get("state") == "failed":
                return report["failure"], died
        died += start_the_dead_again(crew)
        assert died < 8, "Spark would have given up"
        assert time.monotonic() < deadline, crew.lease.reports(crew.generation)
        time.sleep(0.01)


def deaths_that_pass(crew: Crew, deaths: dict[int, Callable[[], None]], records: int) -> list[str]:
    crew.write(records)
    crew.deploy(2)
    run_through(crew, len(deaths))
    crew.processed()
    crew.stop()
    return crew.violations()


@pytest.mark.slow  # tests/spark/test_deaths_from_outside.py has a worker that is started again
def test_a_worker_that_dies_in_user_code_is_started_again_and_nothing_is_lost(crew: Callable[..., Crew], tmp_path: Path) -> None:
    deaths = {200 + 300 * number: die for number, die in enumerate((segfault, leave, endless_loop))}
    wrong = deaths_that_pass(crew(user=Mortal(deaths, tmp_path)), deaths, 1_200)
    note("R15", "a worker dies once in user code, three ways (sample)", len(deaths), len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_workers_that_die_in_user_code_many_times(crew: Callable[..., Crew], tmp_path: Path) -> None:
    count = full(50)
    deaths = {500 + 1_900 * number: DEATHS[number % len(DEATHS)] for number in range(count)}
    wrong = deaths_that_pass(crew(user=Mortal(deaths, tmp_path)), deaths, 2_000 * count + 1_000)
    note("R15", "a worker dies in user code, five ways in turn", count, len(wrong))
    assert not wrong, wrong


def fails_and_goes_on(crew: Callable[..., Crew], die: Callable[[], None]) -> tuple[Crew, dict[str, Any], int]:
    """One record is deadly; the failure, how many died for it, and the application after the repair."""
    limit_ms = LIMIT_MS if die in (endless_loop, endless_match) else NEVER_MS
    made = crew(user=Mortal({777: die}), max_poll_interval_ms=limit_ms)
    made.write(1_000)
    made.deploy(2)
    told, died = failure(made)
    made.lease.signal(made.generation, Signal.STOP)
    while any(map(made.state_of, made.pids.values())):
        time.sleep(0.01)
    made.user = Mortal({})
    made.deploy(2)
    made.write(500)
    made.processed()
    made.stop()
    return made, told, died


def coordinates(crew: Crew, number: int) -> tuple[int, int]:
    """Partition and offset of a record."""
    for partition, rows in crew.read(f"{crew.name}-in").items():
        for offset, (_, value) in enumerate(rows):
            if value is not None and value.startswith(b"%d:" % number):
                return partition, offset
    raise AssertionError(number)


@pytest.mark.slow
@pytest.mark.parametrize("die", DEATHS)
def test_a_deadly_record_fails_the_application_with_node_and_record_and_a_repair_goes_on(
    crew: Callable[..., Crew], die: Callable[[], None]
) -> None:
    made, told, died = fails_and_goes_on(crew, die)
    fields = told["fields"]
    assert told["error"] == "WorkerDiedError"
    assert fields["node"] == "user"
    assert (fields["partition"], fields["offset"]) == coordinates(made, 777)
    assert died <= 4
    if die not in (leave, killed_for_memory):  # these two leave no stack
        assert fields["user_line"][0] == mortal.__file__
        assert die.__code__.co_firstlineno < fields["user_line"][1] <= die.__code__.co_firstlineno + 2
    wrong = made.violations()
    note("R15", f"a record that always kills: {die.__name__}", 1, len(wrong), processes_it_took=died)
    assert not wrong, wrong
