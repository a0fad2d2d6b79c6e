"""History that is in order in each partition loses nothing behind a repartition, with windows without grace."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.history import History, shape

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
Make = Callable[..., History]


@pytest.fixture
def make(broker: Any, tmp_path: Path) -> Iterator[Make]:
    made: list[History] = []

    def of(times: list[list[int]], **options: Any) -> History:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(History(broker.bootstrap_servers, directory, times, **options))
        return made[-1]

    yield of
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("name", "partitions", "instances"),
    [
        ("even", 4, 1), pytest.param("skewed", 4, 1, marks=pytest.mark.slow), pytest.param("one empty", 16, 1, marks=pytest.mark.slow),
        ("a gap", 4, 2), pytest.param("skewed", 4, 2, marks=pytest.mark.slow), pytest.param("even", 16, 4, marks=pytest.mark.slow),
    ],
)
def test_history_is_counted_as_a_plain_computation_counts_it(make: Make, name: str, partitions: int, instances: int) -> None:
    crew = make(shape(name, partitions, 40_000))
    crew.deploy(instances)
    crew.all_processed()
    dropped = crew.dropped()
    crew.stop()
    assert (dropped, crew.lost()) == (0, 0)
    assert crew.counts() == crew.expected()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "partitions", "instances"), [("skewed", 4, 2), ("even", 8, 4)])
def test_what_passes_two_repartitions_loses_nothing_either(make: Make, name: str, partitions: int, instances: int) -> None:
    crew = make(shape(name, partitions, 100_000), twice=True)
    crew.deploy(instances)
    crew.all_processed()
    crew.stop()
    assert crew.lost() == 0


@pytest.mark.slow
@pytest.mark.parametrize("event", ["kill", "pause", "more instances", "edit"])
def test_what_interrupts_history_loses_nothing(make: Make, event: str) -> None:
    crew = make(shape("skewed", 8, 200_000))
    crew.deploy(2)
    crew.taken(40_000)
    if event == "kill":
        os.kill(crew.pids[0], signal.SIGKILL)
        crew.died(0)
        crew.start(0)
    else:
        crew.stop()
        crew.edited = event == "edit"
        crew.deploy(3 if event == "more instances" else 2)
    crew.all_processed()
    crew.stop()
    assert crew.lost() == 0
    assert crew.counts() == crew.expected()


@pytest.mark.slow
def test_without_alignment_the_same_history_is_mostly_lost(make: Make) -> None:
    crew = make(shape("even", 4, 40_000), repl_alignment_drift_ms=-1)
    crew.deploy(1)
    crew.all_processed()
    crew.stop()
    assert crew.lost() > 10_000
