"""Another topology in the place of the one that runs, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstreams_repl.engine.topology import Topology
from kstreams_repl.host.spark.application_state import Status
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.system.errors import DeployError


def test_an_edit_whose_pause_an_instance_does_not_answer_leaves_the_application_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It raised, and left the application at rest without a word of that."""
    old, new = Topology().add_source("in", "in"), Topology().add_source("other", "in")
    deployment = Deployment(old, {"application.id": "app", "bootstrap.servers": "127.0.0.1:9", "state.dir": str(tmp_path)})
    deployment._life.state = Status.RUNNING
    started: list[object] = []

    def pause() -> Deployment:
        deployment._life.state = Status.PAUSED
        raise DeployError("instance 0 of app did not answer")

    def start() -> Deployment:
        deployment._life.state = Status.RUNNING
        started.append(deployment.topology)
        return deployment

    monkeypatch.setattr(deployment, "pause", pause)
    monkeypatch.setattr(deployment, "start", start)
    with pytest.raises(DeployError, match="did not answer"):
        deployment.replace(new)
    assert deployment.status is Status.RUNNING and started == [old]
