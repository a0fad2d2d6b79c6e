"""Forks on a real broker and real Spark: a change beside the application, which is dropped without a trace."""

from __future__ import annotations

import time
import uuid
from collections import Counter
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
CONFIG = {
    "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "auto.offset.reset": "earliest", "num.stream.threads": 2,
}  # fmt: skip


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def counting(topic: str, out: str, *, step: int = 1) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string")
    words.foreach(lambda key, value: Path(f"/nowhere/{key}").unlink(missing_ok=True), name="effect")
    counts = words.group_by_key().aggregate(lambda: 0, lambda key, value, so_far: so_far + step, store="counts", value_serde="long")
    counts.to_stream().to(out, key_serde="string", value_serde="long", name="sink")
    return builder


def words(first: int, last: int) -> list[tuple[str, str, int]]:
    return [(f"k{n % 50}", f"w{n}", 1_000 + n) for n in range(first, last)]


def table(session: ks.Session, topic: str) -> dict[str, int]:
    return {record.key: record.value for record in session.read(topic, None, key_serde="string", value_serde="long")}


def traces(session: ks.Session) -> tuple[list[str], list[str], list[str]]:
    """What a fork might leave: topics, groups and files."""
    root = session.directory.path
    files = sorted(str(path.relative_to(root)) for path in root.rglob("*") if "/tasks/" not in str(path) and "/control/" not in str(path))
    return sorted(session.admin.topics()), sorted(session.admin.groups()), files


def test_a_fork_begins_at_a_commit_and_leaves_no_trace(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic, out = f"{name}-in", f"{name}-out"
    session.create_topic(out, partitions=3)
    session.produce(topic, words(0, 500), partitions=2)
    app = session.deploy(counting(topic, out), name, config=CONFIG)
    assert app.wait(120)
    before = traces(session)
    plan = app.fork("twice", counting(topic, out, step=2), dry_run=True)
    assert traces(session) == before and "effect" in repr(plan) and f"{name}.twice-{out}" in repr(plan)
    fork = app.fork("twice", counting(topic, out, step=2))
    assert app.status == "running" and fork.id == f"{name}.twice" and list(session.forks) == [fork.id]
    session.produce(topic, words(500, 700))
    assert app.wait(120)
    expected = dict(Counter(key for key, _, _ in words(0, 700)))
    later = dict(Counter(key for key, _, _ in words(500, 700)))
    settle(lambda: table(session, fork.outputs[out]) == {key: expected[key] + later[key] for key in later}, "the fork's output")
    assert table(session, out) == expected
    assert {key: fork.application.store("counts").get(key) for key in expected} == {k: n + later.get(k, 0) for k, n in expected.items()}
    assert session.admin.partitions(fork.outputs[out]) == 3
    fork.drop()
    fork.drop()
    assert traces(session) == before and not session.forks
    session.produce(topic, words(700, 750))
    assert app.wait(120) and table(session, out) == dict(Counter(key for key, _, _ in words(0, 750)))
