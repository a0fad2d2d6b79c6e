"""The query server's page shows the numbers of the notebook's picture: both are made by the same functions, from `app.counts`."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, StreamsConfig
from kstreams_repl.engine.commit.committed_counts import written_counts
from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, encode
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
from kstreams_repl.host.journal.journal_records import DesiredState
from kstreams_repl.host.journal.journal_records import encode as encoded
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.repl.session.views.picture.served_application import ServedApplication
from kstreams_repl.system.types import TopicPartition
from tests.unit.repl.session.small_cluster import SmallCluster


@pytest.fixture
def served(tmp_path: Path) -> tuple[ServedApplication, Any]:
    builder = StreamsBuilder()
    builder.stream("in", name="read").filter(lambda key, value: True, name="kept").to("out", name="write")
    journal, cluster = JournalState(), SmallCluster()
    cluster.create_topic("in", 2)
    journal.apply(*encoded(DesiredState(1, "running", 1, 1)), 0)
    plan: Any = SimpleNamespace(application_id="app", topology=builder.build(), settings=cluster.settings, control_directory=str(tmp_path))
    config = StreamsConfig({"application.id": "app", "state.dir": str(tmp_path / "state")})
    follower: Any = SimpleNamespace(state=journal)
    admin: Any = cluster
    task = {
        "records": 289, "lag": 4, "lags": {"in-0": 4}, "buffered": 0, "stream_time": 0, "dropped": {"expired window": 577},
        "committed": {"in-0": 3480},
    }  # fmt: skip
    nodes = {"read": [3480, 3480, 7.0, {}], "kept": [3480, 2903, 7.0, {"expired window": 577}], "write": [2903, 2903, 7.0, {}]}
    report = {"generation": 1, "slot": 0, "pid": 1, "at_ms": 1, "state": "running", "records": 289, "tasks": {"0_0": task}, "nodes": nodes}
    (tmp_path / "report-1-0.json").write_text(json.dumps(report))
    return ServedApplication(plan, config, admin, follower, in_files=True), cluster


def test_the_page_shows_what_the_notebook_shows(served: tuple[ServedApplication, Any]) -> None:
    """The header took the records since the last take-over (289), and drops and lags were left out."""
    whole, line = served[0].picture()
    assert line == "app, running, 1 instance, 3,480 records, lag 4, 577 late, 7 records/s"
    assert whole.marks["node:read"].lines == ("3,480 records", "7 records/s", "lag 4")
    assert whole.marks["node:kept"].lines == ("3,480 in, 2,903 out", "7 records/s", "577 records late")


def test_a_paused_application_shows_the_counts_and_the_lag_of_its_commit(served: tuple[ServedApplication, Any]) -> None:
    app, cluster = served
    app._follower.state.apply(*encoded(DesiredState(1, "paused", 1, 1)), 1)
    at = TopicPartition("in", 0)
    cluster.offsets[at] = CommittedOffset(5, encode(1, {COMMIT_ID: 3}, written_counts({"read": NodeCount(5, 5)})))
    cluster.logs[at] += [(b"k", b"v", 1)] * 5
    whole, line = app.picture()
    assert line == "app, paused, 1 instance, 5 records, lag 0, 0 records/s"
    assert whole.marks["node:read"].lines == ("5 records", "lag 0")
