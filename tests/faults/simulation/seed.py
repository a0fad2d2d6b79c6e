"""One seed in a fresh world: its directory, its clients' stand-ins, its verdict."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.faults.simulation.calls import end
from tests.faults.simulation.scenario import Scenario, Verdict, simulated
from tests.faults.simulation.world import Killed


def run_seed(seed: int, *, calls: bool = False, sql: bool = False, aligned: bool = False) -> Verdict:
    """Run one seed in a fresh world, with or without an asynchronous node, an aggregate by SQL, and alignment in event time."""
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="simulation-", dir=memory if memory.is_dir() else None))
    try:
        scenario = Scenario(seed, directory, calls=calls, sql=sql, aligned=aligned)
        with simulated(scenario), suppress(Killed):
            return scenario.run()
    finally:
        end()
        shutil.rmtree(directory, ignore_errors=True)
    raise AssertionError("the scenario was killed")
