"""R5, R6, R7: the network delays a commit into the next transaction, loses its answer, is cut."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.counts import full
from tests.faults.crew import Crew
from tests.faults.proxy import ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT, Proxy
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka


@pytest.fixture
def cut_off(broker: Any, tmp_path: Path) -> Iterator[tuple[Proxy, Crew]]:
    """An application whose instances reach the broker through a proxy; the test itself does not."""
    proxy = Proxy(broker.port)
    crew = Crew(broker.bootstrap_servers, tmp_path, through=proxy.bootstrap_servers, transaction_timeout_ms=2_000)
    yield proxy, crew
    crew.close()
    proxy.close()


def disturb(proxy: Proxy, crew: Crew, *, times: int, what: str, apis: tuple[int, ...], seed: int, records: int) -> list[str]:
    """Let one request of these kinds be disturbed, wait until the application has got over it, and again."""
    dice = random.Random(seed)
    crew.write(records)
    crew.deploy(2)
    crew.processed()
    for _ in range(times):
        before, left = proxy.touched, [1]

        def decide(api: int, left: list[int] = left) -> str | None:
            if api in apis and left[0]:
                left[0] -= 1
                return what
            return None

        proxy.delay_seconds = dice.choice((0.05, 1.4, 2.2, 3.0))
        proxy.decide = decide
        while proxy.touched == before:
            crew.write(records // 10 + 1)
            time.sleep(0.05)
        for _ in range(10):  # the next transactions, into which a late request may fall
            crew.write(records // 20 + 1)
            time.sleep(0.2)
    proxy.decide = lambda api: None
    crew.processed()
    crew.stop()
    return crew.violations()


@pytest.mark.slow
def test_commit_requests_that_come_late_tear_nothing(cut_off: tuple[Proxy, Crew]) -> None:
    wrong = disturb(*cut_off, times=2, what="delay", apis=(END_TXN,), seed=5, records=400)
    note("R5", "a commit request delayed into later transactions (sample)", 2, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.parametrize("what", ["deafen", "hang up"])
def test_lost_answers_of_commits_are_resolved(cut_off: tuple[Proxy, Crew], what: str) -> None:
    wrong = disturb(*cut_off, times=2, what=what, apis=(END_TXN,), seed=6, records=400)
    note("R6", f"a commit's answer lost: {what} (sample)", 2, len(wrong))
    assert not wrong, wrong


def cuts(proxy: Proxy, crew: Crew, lengths: list[float]) -> list[str]:
    crew.write(400)
    crew.deploy(2)
    crew.processed()
    for index, seconds in enumerate(lengths):
        proxy.cut(seconds, silent=index % 2 == 0)
        for _ in range(5):
            crew.write(50)
            time.sleep(seconds / 5)
        crew.processed(90)
    crew.stop()
    return crew.violations()


@pytest.mark.slow
def test_cut_network_is_got_over(cut_off: tuple[Proxy, Crew]) -> None:
    wrong = cuts(*cut_off, [1.0, 2.5])
    note("R7", "network cut for 1 s (hanging) and 2.5 s (refused) (sample)", 2, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_late_commit_requests(cut_off: tuple[Proxy, Crew]) -> None:
    count = full(200)
    apis = (END_TXN, ADD_OFFSETS, TXN_OFFSET_COMMIT)
    wrong = disturb(*cut_off, times=count, what="delay", apis=apis, seed=50, records=400)
    note("R5", "a commit or offsets request delayed into later transactions", count, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("what", ["deafen", "hang up"])
def test_many_lost_answers(cut_off: tuple[Proxy, Crew], what: str) -> None:
    count = full(50)
    wrong = disturb(*cut_off, times=count, what=what, apis=(END_TXN,), seed=60, records=400)
    note("R6", f"a commit's answer lost: {what}", count, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(10800)
def test_many_cuts(cut_off: tuple[Proxy, Crew]) -> None:
    dice, count = random.Random(7), full(100)
    lengths = [60.0, *(min(60.0, 1.0 + dice.expovariate(1 / 6)) for _ in range(count - 1))]
    wrong = cuts(*cut_off, lengths)
    note("R7", "network cut for 1–60 s", count, len(wrong), longest_s=round(max(lengths), 1))
    assert not wrong, wrong
