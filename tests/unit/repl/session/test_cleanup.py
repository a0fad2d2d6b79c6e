"""What a cleanup takes, and what it leaves to others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kernel_ext.live import side_panel
from kstreams_repl.host.instance.control.control_files import write_whole
from kstreams_repl.host.instance.control.file_channel import LEASE
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.application.starting.journal_lookup import deployed_names
from kstreams_repl.repl.session.topics import read
from kstreams_repl.system.errors import BrokerUnavailableError, KStreamsError, TopicInUseError, UnknownTopicError
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession

CHANGELOGS = ("orders-totals-changelog", "orders-eu-totals-changelog", "orders-jvm-totals-changelog")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallSession:
    """TopicRecord `orders`: `orders-eu`, which another kernel has deployed, and `orders-jvm`, an application of Kafka Streams itself."""
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in (*CHANGELOGS, "in")])
    cluster.create_topics([NewTopicSpec(f"{name}-journal", 1) for name in ("orders", "orders-eu")])
    monkeypatch.setattr(cluster, "groups", lambda: ("orders", "orders-jvm"))
    return SmallSession(cluster, tmp_path)


def test_a_cleanup_leaves_what_is_of_an_application_that_this_session_has_not_seen(session: SmallSession) -> None:
    """It took the changelogs of every application whose name begins with this one's: their state was gone."""
    found = session.cleanup("orders")
    assert found.topics == ("orders-totals-changelog", "orders-journal")
    assert set(session.admin.topics()) == {*CHANGELOGS[1:], "orders-eu-journal", "in"}
    assert "orders-eu-totals-changelog, orders-jvm-totals-changelog may belong to another application and stay" in repr(found)


def test_a_cleanup_takes_what_is_its_own_for_sure(session: SmallSession) -> None:
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string").group_by_key().count(store="eu-totals")
    app: Any = session.deploy(builder, "orders")
    app._core.finish_start()
    app.stop()
    assert "orders-eu-totals-changelog" in session.cleanup("orders", dry_run=True).topics


@pytest.mark.slow
def test_a_cleanup_leaves_topics_of_the_users_that_are_called_like_internal_ones(session: SmallSession) -> None:
    """It took them: a table's topic that is called `orders-changelog`, the input of the application, a journal that is none."""
    cluster: Any = session.admin
    users = ("orders-changelog", "orders-db-changelog", "bills-journal", "notes-journal")
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in users[:3]])
    cluster.create_topics([NewTopicSpec(users[3], 1, {"cleanup.policy": "delete"})])
    builder = ks.StreamsBuilder()
    builder.stream("orders-db-changelog", key_serde="string").group_by_key().count(store="totals")
    app: Any = session.deploy(builder, "orders")
    app._core.finish_start()
    app.stop()
    found = session.cleanup("orders")
    assert found.topics == ("orders-totals-changelog", "orders-journal")
    for name in ("bills", "notes"):
        session.cleanup(name)
    assert set(users) <= set(cluster.topics())
    assert deployed_names(session) == ["orders-eu"]


def test_topics_of_the_users_that_are_called_like_internal_ones_are_listed(
    session: SmallSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were hidden, from `session.topics()` and the panel."""
    cluster: Any = session.admin
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("db-changelog", "orders-changelog", "audit-journal")])
    monkeypatch.setattr(read, "ranges_of", lambda admin, topic, **more: ())
    shown = ["audit-journal", "db-changelog", "in", "orders-changelog"]
    assert sorted(row[0] for row in session.topics().rows) == shown
    assert sorted(row["name"] for row in side_panel._topics(session) if not row["internal"]) == shown
    assert len(session.topics(internal=True).rows) == len(cluster.topics())

    def refused(*asked: Any) -> Any:
        raise BrokerUnavailableError("listing groups: the broker refused")

    monkeypatch.setattr(cluster, "groups", refused)
    monkeypatch.setattr(cluster, "topic_configs", refused)
    assert "in" in [row[0] for row in session.topics().rows], "a user who may not ask for more sees topics"


@pytest.mark.slow
def test_a_cleanup_leaves_topics_of_the_users_of_an_application_that_was_not_attached(session: SmallSession, tmp_path: Path) -> None:
    """It took the input: only of an application that this session had deployed or attached was it known what it reads."""
    cluster: Any = session.admin
    users = ("orders-db-changelog", "orders-out-changelog", "orders-all-changelog")
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in users])
    builder = ks.StreamsBuilder()
    stream = builder.stream(users[:1], key_serde="string")
    stream.merge(builder.stream(["in", users[2]], key_serde="string")).to(users[1])
    stream.group_by_key().count(store="totals")
    app: Any = session.deploy(builder, "orders")
    app._core.finish_start()
    app.stop()
    found = SmallSession(cluster, tmp_path).cleanup("orders")
    assert found.topics == ("orders-totals-changelog", "orders-journal")


def test_what_another_kernel_runs_is_not_cleaned_up(session: SmallSession, tmp_path: Path) -> None:
    """Its topics and its state were taken from under it."""
    control = tmp_path / "state" / "orders" / "control"
    control.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as kernel:
        write_whole(control / LEASE, {"generation": 1, "signal": "running", "pid": kernel.pid})
        with pytest.raises(KStreamsError, match=f"orders is running, driven by process {kernel.pid}") as refused:
            session.cleanup("orders")
        assert refused.value.hint
        os.utime(control / LEASE, (1.0, 1.0))
        assert session.cleanup("orders", dry_run=True), "the number came round: that process is another one"
        kernel.communicate(b"\n")
    write_whole(control / LEASE, {"generation": 1, "signal": "running", "pid": kernel.pid})
    assert session.cleanup("orders", dry_run=True), "it was killed"
    write_whole(control / LEASE, {"generation": 1, "signal": "running", "pid": os.getpid()})
    with pytest.raises(KStreamsError, match="is running"):
        session.cleanup("orders")
    write_whole(control / LEASE, {"generation": 1, "signal": "stopped", "pid": os.getpid()})
    assert session.cleanup("orders").applied


def test_a_topic_that_nobody_uses_is_deleted(session: SmallSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """`session.delete_topic` was a bare AttributeError: a topic could not be corrected."""
    cluster: Any = session.admin
    offsets = {"orders-jvm": {"in"}}
    monkeypatch.setattr(
        cluster, "committed_offsets",
        lambda group, partitions=None, stable=True: {at: 1 for at in partitions if at.topic in offsets.get(group, ())}, raising=False,
    )  # fmt: skip
    with pytest.raises(TopicInUseError, match="topic 'in' is used by orders-jvm") as refused:
        session.delete_topic("in")
    assert refused.value.applications == ("orders-jvm",) and "session.cleanup('orders-jvm'" in str(refused.value)
    offsets.clear()
    builder = ks.StreamsBuilder()
    builder.stream("in", key_serde="string").to("out")
    cluster.create_topics([NewTopicSpec("out", PARTITIONS)])
    app: Any = session.deploy(builder, "copy")
    app._core.finish_start()
    app.stop()
    for topic in ("in", "out", "copy-journal"):
        if topic in cluster.topics():
            with pytest.raises(TopicInUseError, match="copy"):
                session.delete_topic(topic)
    session.cleanup("copy")
    session.delete_topic("in")
    assert "in" not in cluster.topics()
    with pytest.raises(UnknownTopicError, match="no topic 'in'"):
        session.delete_topic("in")
