"""Fixtures of the deployed host, crews of plain processes, and bounded runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.bounded_runs import BoundedRuns
from tests.faults.crew import Crew
from tests.spark.hosting import host, spark

__all__ = ["crew", "host", "spark"]


@pytest.fixture
def crew(broker: Any, tmp_path: Path) -> Iterator[Callable[..., Crew]]:
    """Makes crews, by their options, that are closed in the end."""
    made: list[Crew] = []

    def make(**options: Any) -> Crew:
        made.append(Crew(broker.bootstrap_servers, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def runs(broker: Any, tmp_path: Path) -> Iterator[Callable[..., BoundedRuns]]:
    """Makes bounded runs of a topology, by its name, that are closed in the end."""
    made: list[BoundedRuns] = []

    def make(topology: str, **options: Any) -> BoundedRuns:
        made.append(BoundedRuns(broker.bootstrap_servers, tmp_path / f"state{len(made)}", topology, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()
