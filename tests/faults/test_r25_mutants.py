"""R25: mutants of the project's own commit and take-over; each is noticed by the simulation, or the simulation proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kstreams_repl.errors import BrokerUnavailableError, StateStoreError
from tests.faults.mutants import MUTANTS
from tests.faults.reliability import note
from tests.faults.simulation.noticing import Notice, judged

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def noticed() -> dict[str, Notice]:
    """Mutant -> what noticed it."""
    command = [sys.executable, "-m", "tests.faults.simulation.mutation"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = {name: Notice(**told) for name, told in json.loads(done.stdout).items()}
    missed = sum(bool(told.broken) or not told.what for told in found.values())
    note("R25", "mutants of the commit path noticed", len(found), missed)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_noticed(noticed: dict[str, Notice], name: str) -> None:
    found = noticed[name]
    assert not found.broken, f"the mutant is broken: {found.broken}\n{found.what}"
    assert found.what, f"nothing notices: {name}"


@pytest.mark.parametrize(
    ("error", "allowed", "broken"),
    [
        (AssertionError("lost"), (), False),
        (BrokerUnavailableError("away"), (), False),
        (KeyError("0_1"), (), True),
        (KeyError("0_1"), ("KeyError",), False),
        (NameError("no such name"), ("KeyError",), True),
    ],
)
def test_mutant_that_dies_of_its_own_text_is_not_noticed(error: Exception, allowed: tuple[str, ...], broken: bool) -> None:
    assert bool(judged("seed 0: an instance failed", [error], allowed).broken) == broken


def test_mistake_in_a_mutant_is_found_behind_an_error_of_the_project() -> None:
    error = StateStoreError("writing failed")
    error.__cause__ = NameError("no such name")
    assert judged("seed 0: an instance failed", [error], ()).broken == "NameError: no such name"
