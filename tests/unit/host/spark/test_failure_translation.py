"""What goes wrong on the driver's disk, as errors of ours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.topology import Topology
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.host.spark.failures import instance_watcher
from kstreams_repl.host.spark.failures.failure_translation import disk_errors
from kstreams_repl.system.errors import ApplicationFailedError, StateStoreError


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """It was a NotADirectoryError or PermissionError of Python's, at the deploy."""
    (tmp_path / "file").write_text("in the way")
    config = {"application.id": "app", "bootstrap.servers": "127.0.0.1:9", "state.dir": str(tmp_path / "file" / "state")}
    with pytest.raises(StateStoreError, match="state directory .*file/state cannot be used") as raised:
        Deployment(Topology().add_source("in", "in"), config)
    assert raised.value.hint and "state.dir" in raised.value.hint


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file", "/usr/bin/java"), ConnectionResetError("gone")])
def test_errors_of_other_places_stay_what_they_are(error: OSError, tmp_path: Path) -> None:
    with pytest.raises(type(error)), disk_errors(tmp_path):
        raise error


def test_a_watcher_that_meets_an_error_of_spark_ends_the_application_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread died, and the application said for ever that it ran."""
    ended: list[Any] = []

    def check(executors: Any) -> None:
        raise OSError("the JVM is gone")

    monkeypatch.setattr(instance_watcher, "_CHECK_SECONDS", 0.0)
    monkeypatch.setattr(instance_watcher.MissingExecutors, "check", check)
    session = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    lease = SimpleNamespace(reports=lambda generation: {})
    run: Any = SimpleNamespace(query=object(), session=session, plan=SimpleNamespace(application_id="app", generation=1), lease=lease)
    instance_watcher._watch(run, lambda: None, lambda *given: ended.append(given))
    (of, reports, cause, error) = ended[0]
    assert of is run and not reports and cause is None
    assert isinstance(error, ApplicationFailedError) and error.hint and isinstance(error.__cause__, OSError)


def test_a_generation_that_cannot_be_started_again_fails_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of Spark's left it paused, without a word."""
    config = {"application.id": "app", "bootstrap.servers": "127.0.0.1:9", "state.dir": str(tmp_path)}
    deployment, run = Deployment(Topology().add_source("in", "in"), config), SimpleNamespace(outdated=False)
    deployment._life.enter(Status.RUNNING, "test")
    monkeypatch.setattr(deployment, "_end", lambda *given: [])

    def start() -> None:
        raise RuntimeError("the JVM is gone")

    monkeypatch.setattr(deployment, "start", start)
    error = deployment._restart(run, "worker processes died")  # type: ignore[arg-type]
    assert isinstance(error, ApplicationFailedError) and "RuntimeError: the JVM is gone" in error.message and error.hint
    deployment._fail(run, error)  # type: ignore[arg-type]
    assert deployment.status is Status.FAILED and deployment.error is error
