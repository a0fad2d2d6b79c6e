"""R3: the broker is killed or restarted while instances produce, commit and restore; they resume alone within 30 s of its return."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from tests.faults.counts import full
from tests.faults.crew import Crew
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka
RESUMED_SECONDS = 30.0
"""From the broker's return until all that was written is committed, as the fault table asks."""

MARKERS_LOST = "while trying to send transaction markers"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, Crew]]:
    broker = EmbeddedBroker(tmp_path / "broker").start()
    crew = Crew(broker.bootstrap_servers, tmp_path)
    yield broker, crew
    crew.close()
    broker.stop()


def bounces(broker: EmbeddedBroker, crew: Crew, kinds: list[tuple[str, str]], seed: int) -> tuple[list[str], float]:
    """What went wrong, and the longest that a broker was back before all was processed (s). Each kind is (how the broker ends, in what)."""
    dice = random.Random(seed)
    waits: list[float] = []
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
        returned = time.monotonic()
        crew.write(200)
        crew.processed(90)
        waits.append(time.monotonic() - returned)
    crew.stop()
    slow = [
        f"{how} in {during}: processed {waited:.1f} s after the broker's return"
        for (how, during), waited in zip(kinds, waits, strict=True)
        if waited > RESUMED_SECONDS
    ]
    lost = broker.log_path.read_text(encoding="utf-8").count(MARKERS_LOST)  # offsets and outputs of a commit stay open for ever
    return crew.violations() + slow + [f"the broker gave up markers {lost} times"] * bool(lost), max(waits)


@pytest.mark.slow  # test_broker.py kills one in the fast tier
def test_broker_that_goes_away_is_waited_for(own: tuple[EmbeddedBroker, Crew]) -> None:
    wrong, longest = bounces(*own, [("kill", "records"), ("kill", "restore")], seed=3)
    note("R3", "broker killed among records and in a restore (sample)", 2, len(wrong), longest_s=round(longest, 1))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_broker_goes_away_many_times(own: tuple[EmbeddedBroker, Crew], how: str) -> None:
    dice, count = random.Random(30), full(20)
    wrong, longest = bounces(*own, [(how, dice.choice(("records", "records", "restore"))) for _ in range(count)], seed=31)
    note("R3", f"broker {how} among records and in restores", count, len(wrong), longest_s=round(longest, 1))
    assert not wrong, wrong
