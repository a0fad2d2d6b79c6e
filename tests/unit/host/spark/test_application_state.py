"""States of an application: one table, and errors that list the last transitions; a restart without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.topology import Topology
from kstreams_repl.host.spark.application_state import ApplicationLife, Status
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.system.errors import DeployError, IllegalStateTransitionError, KStreamsError, StreamsProcessingError

ALLOWED = {
    ("created", "running"), ("created", "stopped"),
    ("running", "restarting"), ("running", "paused"), ("running", "stopped"), ("running", "failed"),
    ("restarting", "running"), ("restarting", "paused"), ("restarting", "failed"),
    ("paused", "running"), ("paused", "stopped"), ("stopped", "running"), ("failed", "running"), ("failed", "stopped"),
}  # fmt: skip
WAYS = {"created": [], "running": ["running"], "restarting": ["running", "restarting"], "paused": ["running", "paused"],
        "stopped": ["stopped"], "failed": ["running", "failed"]}  # fmt: skip


def life_in(state: str) -> ApplicationLife:
    life = ApplicationLife("app")
    for step in WAYS[state]:
        life.enter(Status(step), f"on the way to {state}")
    return life


@pytest.mark.parametrize(("here", "there"), list(itertools.product(WAYS, WAYS)))
def test_only_the_transitions_of_the_table_are_made(here: str, there: str) -> None:
    life = life_in(here)
    if (here, there) in ALLOWED:
        life.enter(Status(there), "wanted")
        assert life.state == there
        return
    with pytest.raises(IllegalStateTransitionError, match=f"app is {here} and cannot become {there}; transitions so far: created"):
        life.enter(Status(there), "wanted")
    assert life.state == here


class Run:
    """A generation without Spark."""

    def __init__(self, silent: list[int]) -> None:
        self.plan: Any = SimpleNamespace(generation=1, application_id="app", config={})
        self.session: Any = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="python"))
        self.lease: Any = SimpleNamespace(signal=lambda generation, signal: True)
        self.query: Any = SimpleNamespace(await_progress=lambda seconds: None)
        self.silent = silent
        self.ended: list[str] = []
        self.confirmed = self.outdated = False

    def await_end(self) -> None: ...

    def end(self, signal: Any, seconds: float) -> list[int]:
        self.ended.append(str(signal))
        self.query = None
        return self.silent


@pytest.fixture
def running(tmp_path: Path) -> Callable[..., tuple[Any, Run]]:
    def make(*silent: int) -> tuple[Any, Run]:
        config = {"application.id": "app", "bootstrap.servers": "127.0.0.1:9", "state.dir": str(tmp_path)}
        deployment: Any = Deployment(Topology().add_source("in", "in"), config)
        deployment._life.enter(Status.RUNNING, "generation 1 started")
        deployment._run = run = Run(list(silent))
        return deployment, run

    return make


DEATH = "Job aborted: Python worker exited unexpectedly (crashed)"


def test_a_generation_whose_workers_died_is_restarted(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, run = running()
    seen: list[tuple[str, str]] = []

    def start() -> None:
        seen.append((deployment.status, deployment._life.state))
        deployment._life.enter(Status.RUNNING, "generation 2 started")

    monkeypatch.setattr(deployment, "start", start)
    deployment._ended(run, [], DEATH, None)
    assert seen == [("running", "restarting")]
    assert (deployment.status, run.ended, run.outdated) == ("running", ["paused"], True)
    assert len(deployment.restarts.history) == 1


def test_an_application_that_cannot_be_restarted_has_failed(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, run = running()

    def start() -> None:
        raise DeployError("no slots")

    monkeypatch.setattr(deployment, "start", start)
    deployment._ended(run, [], DEATH, None)
    assert (deployment.status, str(deployment.error), run.ended) == ("failed", "no slots", ["paused", "stopped"])


def test_an_interrupted_restart_leaves_the_application_paused(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment, run = running()

    def start() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(deployment, "start", start)
    with pytest.raises(KeyboardInterrupt):
        deployment._ended(run, [], DEATH, None)
    assert deployment.status is Status.PAUSED


def test_a_failed_instance_ends_the_others_and_its_error_is_kept(running: Any) -> None:
    deployment, run = running()
    report = {"state": "failed", "failure": {"error": "StreamsProcessingError", "message": "a user's function raised"}}
    deployment._ended(run, [report], None, None)
    assert deployment.status is Status.FAILED and isinstance(deployment.error, StreamsProcessingError)
    deployment._ended(run, [report], None, None)  # the watcher of a run that has been ended changes nothing
    assert run.ended == ["stopped"]


def test_an_instance_that_does_not_answer_is_named_and_the_pause_is_not_resumed_warm(running: Any) -> None:
    deployment, run = running(1)
    with pytest.raises(KStreamsError, match="instance 1"):
        deployment.pause()
    assert deployment.status is Status.PAUSED and not run.confirmed
    deployment.stop()
    assert deployment.status is Status.STOPPED
