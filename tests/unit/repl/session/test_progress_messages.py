"""What is said about things that take their time."""

from __future__ import annotations

import pytest

from kstreams_repl.repl.session import progress_messages
from kstreams_repl.repl.session.progress_messages import PolledStep


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress_messages.time, "monotonic", lambda: now[0])
    return now


def test_what_takes_longer_than_a_second_is_said_once_and_once_when_it_is_done(clock: list[float]) -> None:
    said: list[str] = []
    patience = PolledStep(said.append, "it starts", "it runs")
    for clock[0], busy in ((0.5, True), (1.5, True), (2.5, True), (3.0, False), (4.0, False)):
        patience.update(busy)
    assert said == ["it starts …", "it runs (3.0 s)"]


def test_what_is_done_within_a_second_is_not_spoken_of(clock: list[float]) -> None:
    said: list[str] = []
    patience = PolledStep(said.append, "it starts", "it runs")
    for clock[0], busy in ((0.5, True), (0.9, False), (9.0, False)):
        patience.update(busy)
    assert said == []
