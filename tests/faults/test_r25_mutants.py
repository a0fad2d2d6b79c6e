"""R25: mutants of the project's own commit and take-over; each is noticed by the simulation, or the simulation proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.mutants import MUTANTS
from tests.faults.reliability import note

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def noticed() -> dict[str, str]:
    """Mutant -> what noticed it, "" when nothing did."""
    command = [sys.executable, "-m", "tests.faults.simulation.mutation"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    note("R25", "mutants of the commit path noticed", len(found), sum(not what for what in found.values()))
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_noticed(noticed: dict[str, str], name: str) -> None:
    assert noticed[name], f"nothing notices: {name}"
