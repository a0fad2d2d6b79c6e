"""On a cluster even the look at what is wanted needs the broker: an outage is waited for wherever it is met."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.journal_channel import JournalInstanceControl
from kstreams_repl.host.instance.epochs.epoch_handover import Epoch
from kstreams_repl.host.instance.epochs.instance_runner import _Runner
from kstreams_repl.host.instance.initialization.task_initialization import Interrupted
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.kafka.transactional import TransactionDoubtError
from kstreams_repl.system.errors import BrokerUnavailableError


class _Journal:
    """Stands where the follower does: what was read holds, and whether the broker answers is up to the test."""

    def __init__(self) -> None:
        self.wanted = Signal.RUN
        self.away = False
        self.looks = 0
        self.states: list[str] = []
        self.writer = self

    def refresh(self) -> None:
        self.looks += 1
        if self.away:
            raise BrokerUnavailableError("listing offsets: the broker is away")

    def signal(self, generation: int) -> Signal:
        return self.wanted

    def send(self, report: Any) -> None:
        self.states.append(report.state)


def run(monkeypatch: pytest.MonkeyPatch, directory: Path, journal: _Journal, opening: Callable[[], None]) -> EpochResult:
    follower: Any = journal
    control = JournalInstanceControl(follower, 1, 0, executor="host-a")
    plan: Any = SimpleNamespace(application_id="app", config=StreamsConfig({"application.id": "app"}), generation=1)
    monkeypatch.setattr(_Runner, "_open", lambda self: opening())
    return _Runner(plan, 0, control, "host-a", None, Epoch(time.monotonic() + 2), None).run()


def test_a_doubtful_commit_is_recovered_from_when_the_broker_is_away_at_the_look_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    journal = _Journal()

    def opening() -> None:
        journal.away = True
        raise TransactionDoubtError("committing: no answer")

    told = run(monkeypatch, tmp_path, journal, opening)
    assert (told.state, told.failure) == ("running", None)
    assert set(journal.states) == {"recovering"}


def test_a_broker_that_is_away_at_the_first_look_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    journal, opened = _Journal(), []
    journal.away = True
    told = run(monkeypatch, tmp_path, journal, lambda: opened.append(1))
    assert (told.state, told.failure, opened) == ("running", None, [])
    assert journal.looks > 1 and set(journal.states) == {"recovering"}


def test_a_pause_that_ends_a_take_over_is_told_when_the_broker_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    journal = _Journal()

    def opening() -> None:
        journal.away, journal.wanted = True, Signal.PAUSE
        raise Interrupted("the application is to pause or stop")

    told = run(monkeypatch, tmp_path, journal, opening)
    assert (told.state, told.failure, journal.states) == ("paused", None, ["paused"])


def test_a_stop_that_was_read_before_the_broker_went_away_ends_the_instance(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    journal = _Journal()

    def opening() -> None:
        journal.away, journal.wanted = True, Signal.STOP
        raise TransactionDoubtError("committing: no answer")

    assert run(monkeypatch, tmp_path, journal, opening).state == "stopped"
