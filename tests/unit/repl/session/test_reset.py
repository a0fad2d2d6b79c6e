"""What a reset changes, and what it refuses; the small cluster stands for broker and Spark. On a broker: tests/session."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.system.errors import KStreamsError, UnknownTopicError
from kstreams_repl.system.types import TopicPartition
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession, partition_of

IN = TopicPartition("in", partition_of(b"a"))


@pytest.fixture
def cluster() -> SmallCluster:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("in", "out")])
    cluster.logs[IN] += [(b"a", struct.pack(">q", 1), time) for time in (1_000, 2_000, 3_000, 4_000)]
    return cluster


@pytest.fixture
def session(cluster: SmallCluster, tmp_path: Path) -> SmallSession:
    return SmallSession(cluster, tmp_path)


def deployed(session: SmallSession) -> Any:
    builder = ks.StreamsBuilder()
    counts = builder.stream("in", key_serde="string", value_serde="long").group_by_key(key_serde="string", value_serde="long").count()
    counts.to_stream().to("out", key_serde="string", value_serde="long")
    app: Any = session.deploy(builder, "app", config={"statestore.cache.max.bytes": 0})
    app._core.finish_start()
    return app


def begins(found: Any) -> int:
    """Where the partition that has records begins afterwards."""
    return int(found.offsets[IN][1])


def test_a_running_application_is_not_reset(session: SmallSession, cluster: SmallCluster) -> None:
    deployed(session)
    before = dict(cluster.offsets)
    with pytest.raises(KStreamsError, match="to be stopped, paused or failed, but it is running"):
        session.reset("app")
    assert cluster.offsets == before


def test_a_reset_is_listed_first_and_then_the_application_counts_from_the_start(session: SmallSession, cluster: SmallCluster) -> None:
    deployed(session).stop()
    (changelog,) = [name for name in cluster.topics() if name.endswith("-changelog")]
    before = dict(cluster.offsets)
    found = session.reset("app", dry_run=True)
    assert found.topics == (changelog,) and found.offsets[IN] == (4, 0) and found.directory.exists()
    assert "nothing is changed yet" in repr(found) and cluster.offsets == before and changelog in cluster.topics()
    done = session.reset("app")
    assert done.applied and changelog not in cluster.topics() and cluster.offsets[IN].offset == 0 and not found.directory.exists()
    deployed(session).stop()
    counts = [struct.unpack(">q", value or b"")[0] for _, value, _ in cluster.values("out")]
    assert counts == [1, 2, 3, 4, 1, 2, 3, 4], "state began empty, and what was written stayed"


@pytest.mark.parametrize(
    ("options", "offset"),
    [
        ({"to": "latest"}, 4),
        ({"to": 3}, 3),
        ({"to": 99}, 4),
        ({"shift_by": -1}, 3),
        ({"shift_by": -99}, 0),
        ({"to": "1970-01-01T00:00:02.5Z"}, 2),
        ({"to": "1980-01-01"}, 4),
        ({"input_topics": ["in"]}, 0),
    ],
)
def test_offsets_are_set_within_the_log(session: SmallSession, options: dict[str, Any], offset: int) -> None:
    deployed(session).stop()
    assert begins(session.reset("app", **options, dry_run=True)) == offset


def test_what_cannot_be_reset_is_refused(session: SmallSession) -> None:
    deployed(session).stop()
    with pytest.raises(UnknownTopicError, match="app has no offsets of 'inn'"):
        session.reset("app", input_topics=["inn"])
    with pytest.raises(KStreamsError, match=r"expected to= or shift_by=, got both"):
        session.reset("app", to="latest", shift_by=1)


def test_dropping_stop_offsets_alone_leaves_state_and_offsets(session: SmallSession) -> None:
    deployed(session).stop()
    assert not session.reset("app", delete_stop_offsets=True, dry_run=True), "no run is open, so nothing changes"
    assert session.reset("app", delete_stop_offsets=True, to="earliest", dry_run=True).topics
    assert session.reset("app", delete_stop_offsets=True, state=True, dry_run=True).topics
