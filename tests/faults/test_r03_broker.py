"""R3: the broker is killed or restarted while instances produce, commit and restore."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl.kafka.embedded import EmbeddedBroker
from tests.faults.counts import full
from tests.faults.crew import Crew
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, Crew]]:
    broker = EmbeddedBroker(tmp_path / "broker").start()
    crew = Crew(broker.bootstrap_servers, tmp_path)
    yield broker, crew
    crew.close()
    broker.stop()


def bounces(broker: EmbeddedBroker, crew: Crew, kinds: list[tuple[str, str]], seed: int) -> list[str]:
    """Each kind is (how the broker ends, in what)."""
    dice = random.Random(seed)
    crew.write(2_000)
    crew.deploy(2)
    crew.processed()
    for how, during in kinds:
        if during == "restore":
            crew.stop()
            shutil.rmtree(crew.directory / "state" / crew.application_id / "tasks")
            crew.deploy(2)
        else:
            crew.write(1_000)
        time.sleep(dice.uniform(0.0, 0.4))
        if how == "kill":
            broker.kill()
        else:
            broker.stop()
        time.sleep(dice.uniform(0.0, 2.0))
        broker.start()
        crew.write(200)
        crew.processed(90)
    crew.stop()
    return crew.violations()


@pytest.mark.slow  # test_broker.py kills one in the fast tier
def test_broker_that_goes_away_is_waited_for(own: tuple[EmbeddedBroker, Crew]) -> None:
    wrong = bounces(*own, [("kill", "records"), ("kill", "restore")], seed=3)
    note("R3", "broker killed among records and in a restore (sample)", 2, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_broker_goes_away_many_times(own: tuple[EmbeddedBroker, Crew], how: str) -> None:
    dice, count = random.Random(30), full(20)
    wrong = bounces(*own, [(how, dice.choice(("records", "records", "restore"))) for _ in range(count)], seed=31)
    note("R3", f"broker {how} among records and in restores", count, len(wrong))
    assert not wrong, wrong
