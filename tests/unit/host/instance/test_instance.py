"""The end of an instance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.topology import Topology
from kstreams_repl.host.instance.state.state_updater import StateUpdater
from tests.unit.host.instance.rig import Client, instance_of


def refusing(name: str, said: list[str]) -> Any:
    def close() -> None:
        said.append(name)
        raise RuntimeError(name)

    return SimpleNamespace(close=close)


def test_everything_is_let_go_of_though_what_runs_beside_it_cannot_be_closed() -> None:
    """Its stores stayed open, and the next take-over in this process met them."""
    said: list[str] = []
    client: Any = Client()
    client.close = lambda: said.append("consumer")
    instance = instance_of(Topology().add_source("in", "in"), client)
    (task,) = instance.tasks
    instance.clients.fence.close = instance.clients.producer.close = instance.clients.producer.purge = lambda *seconds: None  # type: ignore[method-assign]
    instance.snapshotter, instance.standbys = refusing("snapshots", said), refusing("standbys", said)
    with pytest.raises(RuntimeError, match="snapshots"):
        instance.close()
    assert said == ["snapshots", "standbys", "consumer"] and task.environment.closed  # type: ignore[attr-defined]


def test_stores_of_restoring_tasks_are_closed_though_the_consumer_is_not() -> None:
    said: list[str] = []
    environment = SimpleNamespace(close=lambda: said.append("stores"))
    life = SimpleNamespace(enter=lambda state, why: None)
    task: Any = SimpleNamespace(spec=SimpleNamespace(task_id="0_0"), changelogs=(), environment=environment, life=life)
    StateUpdater("app-0", refusing("restore", said), [task]).close()
    assert said == ["restore", "stores"]
