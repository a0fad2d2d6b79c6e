"""R25: mutants of the project's own commit and take-over; each is noticed by the simulation, or the simulation proves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kstreams_repl.system.errors import BrokerUnavailableError, StateStoreError
from tests.daily_share import daily_share
from tests.faults.mutants import MUTANTS
from tests.faults.reliability import note
from tests.faults.simulation.noticing import Notice, judged

ROOT = Path(__file__).parents[2]


SAMPLE = daily_share(MUTANTS, 8)


def noticed(names: list[str]) -> dict[str, Notice]:
    """Mutant -> what noticed it."""
    command = [sys.executable, "-m", "tests.faults.simulation.mutation", *names]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    found = {name: Notice(**told) for name, told in json.loads(done.stdout).items()}
    missed = sum(bool(told.broken) or not told.what for told in found.values())
    note("R25", f"mutants of the commit path noticed{'' if len(names) == len(MUTANTS) else ' (sample)'}", len(found), missed)
    return found


def check_each_is_noticed(names: list[str]) -> None:
    found = noticed(names)
    assert {name: told.broken for name, told in found.items() if told.broken} == {}, "these mutants are broken themselves"
    assert [name for name, told in found.items() if not told.what] == [], "nothing notices these"


@pytest.mark.timeout(600)
def test_each_mutant_of_a_sample_is_noticed() -> None:
    check_each_is_noticed(SAMPLE)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_mutant_is_noticed() -> None:
    check_each_is_noticed(list(MUTANTS))


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
