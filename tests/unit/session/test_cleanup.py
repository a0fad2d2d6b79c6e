"""What a cleanup takes, and what it leaves to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.kafka.admin import NewTopicSpec
from tests.unit.session.small_cluster import PARTITIONS, SmallCluster, SmallSession

CHANGELOGS = ("orders-totals-changelog", "orders-eu-totals-changelog", "orders-jvm-totals-changelog")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallSession:
    """Beside `orders`: `orders-eu`, which another kernel has deployed, and `orders-jvm`, an application of Kafka Streams itself."""
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in (*CHANGELOGS, "in")])
    cluster.create_topics([NewTopicSpec(f"{name}-journal", 1) for name in ("orders", "orders-eu")])
    monkeypatch.setattr(cluster, "groups", lambda: ("orders", "orders-jvm"))
    return SmallSession(cluster, tmp_path)


def test_a_cleanup_leaves_what_is_of_an_application_that_this_session_has_not_seen(session: SmallSession) -> None:
    """It took the changelogs of every application whose name begins with this one's: their state was gone."""
    found = session.cleanup("orders", confirm=True)
    assert found.topics == ("orders-totals-changelog", "orders-journal")
    assert set(session.admin.topics()) == {*CHANGELOGS[1:], "orders-eu-journal", "in"}
    assert "orders-eu-totals-changelog, orders-jvm-totals-changelog may be another application's and stay" in repr(found)


def test_a_cleanup_takes_what_is_its_own_for_sure(session: SmallSession) -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string").group_by_key().count(store="eu-totals")
    app: Any = session.deploy(builder, "orders")
    app._finish_start()
    app.stop()
    assert "orders-eu-totals-changelog" in session.cleanup("orders").topics
