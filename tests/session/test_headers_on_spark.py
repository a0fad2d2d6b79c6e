"""Stores with headers on a real broker and real Spark, through a session: read in every way, edited, killed, restored from changelogs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import kstreams_repl as ks
from kstreams_repl.host.instance.state.state_directory import application_directory, state_root
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests import traced
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
TYPES = ks.queries.QueryableStoreTypes


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


class Run:
    """The application with what it was fed."""

    def __init__(self, session: ks.Session) -> None:
        self.session, self.name, self.total = session, f"app-{uuid.uuid4().hex[:8]}", 0
        for topic in ("in", "out"):
            session.create_topic(f"{self.name}-{topic}", partitions=2)
        self.feed(300)
        self.app = session.deploy(traced.topology(self.name), self.name, config=traced.CONFIG)

    def feed(self, count: int) -> None:
        self.session.produce(f"{self.name}-in", traced.rows(self.total, self.total + count))
        self.total += count

    def check(self) -> None:
        """All ways to read on this host agree with what was fed."""
        assert self.app.wait(120)
        want = traced.expected(self.total)
        with self.app.store("traced", TYPES.timestamped_key_value_store_with_headers()).all() as found:
            assert {key: (row.value, row.timestamp, row.headers) for key, row in found} == want
        with self.app.store("traced", TYPES.timestamped_key_value_store()).all() as found:
            assert {key: (row.value, row.timestamp) for key, row in found} == {key: row[:2] for key, row in want.items()}
        with self.app.store("sessions", TYPES.session_store_with_headers()).fetch("k1") as sessions:
            assert [(row.aggregation, row.headers) for _, row in sessions] == [(want["k1"][0], [])]
        traced.check_tables(self.app, self.total)
        traced.check_output(self.session, self.name, self.total)


@pytest.fixture
def run(session: ks.Session) -> Run:
    made = Run(session)
    made.check()
    return made


def test_rows_are_right_after_an_edit_a_kill_and_a_restore(run: Run) -> None:
    app = run.app
    plan = app.edit(traced.topology(run.name, "second"))
    assert plan.diff.code_only
    run.feed(100)
    run.check()
    run.feed(100)
    os.kill(next(iter(app.reports.instances.values())).pid, signal.SIGKILL)
    run.feed(100)
    run.check()
    app.stop()
    shutil.rmtree(application_directory(state_root(app.config), run.name) / "tasks")
    run.feed(100)
    app.resume()
    run.check()
    assert sum(report.restored for report in app.reports.instances.values()) > 0
    changelog = run.session.read(f"{run.name}-traced-changelog", None, key_serde="string", value_serde="long")
    last = {record.key: (record.value, record.timestamp, record.headers) for record in changelog}
    assert last == traced.expected(run.total)
    app.edit(traced.topology(run.name, "third", "json"), migrate={"traced": lambda key, value: value})
    run.check()
    run.feed(100)
    run.check()
    labels = {record.value["label"] for record in run.session.read(f"{run.name}-out", None, value_serde="json")}
    assert labels == {"first", "second", "third"}


def test_values_are_tapped_and_served(run: Run) -> None:
    app = run.app
    ended = threading.Event()

    def feed() -> None:
        while not ended.wait(0.1):
            run.feed(traced.KEYS)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        seen = app.tap("trace", 10, timeout=30)
    finally:
        ended.set()
        feeder.join()
    assert len(seen) == 10 and "live from" in repr(seen)
    for record in seen:
        ((_, before),) = record.value["was"][2]
        number = b"%d" % (int(before) + traced.KEYS)
        assert record.headers == [("n", number.decode())], "of the record, and of the row before; a tap shows bytes as text"
    run.check()
    want = traced.expected(run.total)
    tokens = json.loads(Path((server := app.serve()).token_path).read_text())
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {tokens['look']}"}, trust_env=False, timeout=30) as web:
        for key, (count, timestamp, _) in want.items():
            (row,) = web.get(f"/state/stores/traced/{key}").json()["rows"]
            assert (row["value"], row["timestamp"]) == (count, timestamp)
            assert web.get(f"/state/stores/counts/{key}").json()["value"] == count
            for kind in ("windows", "sessions"):
                found = web.get(f"/state/{kind}/{kind}/{key}").json()["rows"]
                assert sum(row["value"] for row in found) == count, kind
        assert {row["key"]: row["value"] for row in web.get("/state/range/traced").json()["rows"]} == {k: row[0] for k, row in want.items()}
        query = "SELECT count(*), sum(value)::BIGINT FROM traced"
        assert web.get("/sql", params={"q": query}).json()["rows"] == [[traced.KEYS, run.total]]
        with web.stream("GET", "/subscribe/traced") as events:
            lines = events.iter_lines()
            settle(lambda: next(lines).startswith("event: snapshot"), "the rows of now")
            run.feed(1)
            data = next(line for line in lines if line.startswith("data: ") and '"offset"' in line)
            change = json.loads(data[6:])
            key, _, timestamp, _ = traced.rows(run.total - 1, run.total)[0]
            assert (change["key"], change["value"], change["timestamp"]) == (key, want[key][0] + 1, timestamp)
