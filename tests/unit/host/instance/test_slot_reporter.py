"""How often an instance is reported: several times a second while it works, once a second at rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.topology import Topology
from kstreams_repl.host.instance.epochs.lifecycle import RunnerLifecycle
from kstreams_repl.host.instance.reports import slot_reporter
from kstreams_repl.host.instance.reports.slot_reporter import SlotReporter
from tests.unit.host.instance.rig import Client, instance_of


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(slot_reporter, "time", clock)
    return clock


class Reports:
    """What a reporter writes for one instance; `run` calls it five times a second, as the poll loop does."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.served = 0
        self.at: list[float] = []
        self.instance = instance_of(Topology().add_source("in", "in"), Client())
        board: Any = SimpleNamespace(serve=self._serve)
        self.instance.taps = self.instance.retries = board
        control: Any = SimpleNamespace(report=lambda content, soon: self.at.append(clock.now))
        self.reporter = SlotReporter(self.instance.plan, 0, control, "driver", RunnerLifecycle("app", 0, 1), {})

    def _serve(self, *given: object) -> None:
        self.served += 1

    def run(self, seconds: float) -> int:
        before = len(self.at)
        for _ in range(round(5 * seconds)):
            self.clock.now += 0.2
            self.reporter.report_running(self.instance)
        return len(self.at) - before


def test_an_instance_without_records_is_reported_once_a_second_after_a_while(clock: Clock) -> None:
    reports = Reports(clock)
    assert reports.run(5) == 25
    assert 9 <= reports.run(10) <= 12
    assert reports.served == 75, "taps are served at each call"


@pytest.mark.parametrize("counter", ["records", "commits"])
def test_work_is_reported_at_once(clock: Clock, counter: str) -> None:
    reports = Reports(clock)
    reports.run(60)
    setattr(reports.instance.counters, counter, 1)
    assert reports.run(0.2) == 1 and reports.run(4) == 20


def test_records_that_wait_are_reported_at_once(clock: Clock) -> None:
    reports = Reports(clock)
    reports.run(60)
    reports.instance.counters.polled(0.1, 3)
    assert reports.run(0.2) == 1


@pytest.mark.parametrize("helper", ["updater", "standbys", "snapshotter", "calls"])
def test_an_instance_whose_threads_do_something_is_never_at_rest(clock: Clock, helper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = Reports(clock)
    monkeypatch.setattr(reports.reporter, "figures", lambda instance, nodes: {})
    monkeypatch.setattr(reports.reporter, "add_progress", lambda progress, instance: None)
    setattr(reports.instance, helper, SimpleNamespace(progress=None))
    assert reports.run(60) == 300
