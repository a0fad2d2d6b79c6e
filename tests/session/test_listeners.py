"""Listeners of an application, and its uncaught-exception handler, on a real broker and real Spark."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests.spark.hosting import settle, spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


@pytest.mark.slow
def test_a_failure_is_handed_to_its_handler_which_has_the_application_started_again(session: ks.Session, tmp_path: Path) -> None:
    name, sick = f"app-{uuid.uuid4().hex[:8]}", tmp_path / "sick"
    sick.touch()
    place = str(sick)

    def keep(key: str, value: str) -> bool:
        if value == "poison" and Path(place).exists():
            raise ValueError("poison")
        return True

    builder = ks.StreamsBuilder()
    words = builder.stream(f"{name}-in", key_serde="string", value_serde="string").filter(keep)
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    session.produce(f"{name}-in", [("a", "word", 1000), ("a", "poison", 1001), ("a", "word", 1002)], partitions=1)
    states: list[tuple[str, str]] = []
    errors: list[str] = []

    def uncaught(error: Any) -> str:
        errors.append(str(error))
        sick.unlink()
        return "replace_thread"

    app = session.deploy(builder, name, config={"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50})
    app.listen(uncaught=lambda error: errors.append("of the call that was replaced"))

    def changed(new: str, old: str) -> None:
        states.append((old, new))
        raise RuntimeError("a listener's own mistake")

    listening = app.listen(state=changed, uncaught=uncaught)
    settle(lambda: bool(errors), "the failure", 120)
    settle(lambda: app.status == "running", "the restart", 120)
    assert app.wait(120) and app.store("counts").get("a") == 3
    assert len(errors) == 1 and "poison" in errors[0]
    settle(lambda: states[-1][1] == "running", "the listener to hear of the restart")
    assert ("running", "failed") in states
    listening.close()
    assert f"listeners-{name}" not in {thread.name for thread in threading.enumerate()}
    told = len(states)
    app.stop()
    assert len(states) == told
