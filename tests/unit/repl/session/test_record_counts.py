"""What instances report and what a commit says become one application's counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernel_ext.live.live_picture import LivePicture
from kstreams_repl import StreamsBuilder, Topology
from kstreams_repl.engine.commit.committed_counts import written_counts
from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, encode
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport, TaskReport
from kstreams_repl.pictures.graph.picture import Picture, picture_of
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.repl.session.views.counts.consumer_lag import Remaining
from kstreams_repl.repl.session.views.counts.record_counts import Counts, NodeRate, Rates, committed, reported, since
from kstreams_repl.repl.session.views.picture.picture_overlay import numbers_of, silent
from kstreams_repl.system.types import TopicPartition
from tests.unit.repl.session.small_cluster import SmallCluster, SmallSession


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", name="read").select_key(lambda key, value: value, name="key").repartition(name="by-value").filter(
        lambda key, value: True, name="kept"
    ).to("out", name="write")
    return builder.build()


def instance(slot: int, lag: int, **nodes: Any) -> InstanceReport:
    named = {name.replace("_", "-"): figures for name, figures in nodes.items()}
    task = TaskReport(f"0_{slot}", 0, lag, 0, 0, lags={f"in-{slot}": lag}, committed={f"in-{slot}": 1})
    return InstanceReport(slot, "running", 1, 1, tasks={task.task: task}, nodes=named)


def test_counts_of_instances_are_added_and_the_input_is_not_what_the_application_wrote_itself() -> None:
    made = topology()
    (inner,) = (name for name in made.nodes if "source" in name.lower())
    told = [
        instance(0, 3, read=[10, 10, 2.5, {}], kept=[4, 1, 1.0, {"late": 1}], **{inner: [4, 4, 1.0, {}]}),
        instance(1, 0, read=[5, 4, 1.0, {"deserialization": 1}]),
    ]
    counts = reported(made, ApplicationReport(1, {one.slot: one for one in told}))
    assert counts.nodes["read"] == NodeRate(15, 14, 3.5, {"deserialization": 1})
    assert counts.nodes["kept"] == NodeRate(4, 1, 1.0, {"late": 1})
    assert (counts.records, counts.per_second, counts.lag) == (15, 3.5, 3)
    assert "write" not in counts.nodes


def test_a_lag_that_one_instance_does_not_know_is_unknown() -> None:
    counts = reported(topology(), ApplicationReport(1, {0: instance(0, 3), 1: instance(1, -1)}))
    assert counts.lag == -1


def test_what_a_version_has_counted_is_told_apart_and_a_node_that_began_again_counts_whole() -> None:
    now = reported(topology(), ApplicationReport(1, {0: instance(0, 3, read=[10, 9, 2.5, {"late": 3}], kept=[4, 1, 1.0, {}])}))
    mine = since(topology(), now, {"read": NodeCount(6, 6, {"late": 3}), "kept": NodeCount(5, 1)})
    assert mine.nodes == {"read": NodeRate(4, 3, 2.5), "kept": NodeRate(4, 1, 1.0)}
    assert (mine.records, mine.lag, mine.per_second) == (4, 3, 2.5)


def test_at_rest_the_counts_are_those_of_the_commit() -> None:
    def offset(**counts: NodeCount) -> CommittedOffset:
        return CommittedOffset(7, encode(1, {COMMIT_ID: 3}, written_counts(counts)))

    places = [TopicPartition("in", number) for number in range(2)]
    rest = Remaining(
        {places[0]: offset(read=NodeCount(5, 5), gone=NodeCount(9, 9)), places[1]: offset(read=NodeCount(2, 2))},
        {places[0]: 1000, places[1]: 0},
    )
    counts = committed(topology(), rest, Counts())
    assert counts.nodes == {"read": NodeRate(7, 7)} and (counts.records, counts.lag) == (7, 1000)


def test_records_in_asynchronous_nodes_are_counted_and_their_node_is_not_silent() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="read").map_values_async(str, name="ask").to("out")
    made = builder.build()
    calls = {"ask": {"in_flight": 50, "waiting": 90, "to_retry": 10, "failed": 3}}
    told = InstanceReport(0, "running", 1, 1, nodes={"read": [200, 200, 0.0, {}], "ask": [200, 0, 0.0, {}]}, calls=calls)
    counts = reported(made, ApplicationReport(1, {0: told}))
    assert counts.waiting == 150 and counts.table().note.endswith("150 waiting for calls")
    app: Any = SimpleNamespace(topology=made, status="running")
    assert silent(app, counts) == {}
    done = reported(made, ApplicationReport(1, {0: replace(told, calls={})}))
    assert done.waiting == 0 and list(silent(app, done)) == ["ask"]


def test_the_rate_of_the_application_is_that_of_its_sources() -> None:
    """The header took the last report's rate, the nodes an average of four seconds: 0/s beside 7,849/s."""
    rates, made = Rates(), topology()
    rates.smoothed(made, Counts({"read": NodeRate(0, 0, 0.0)}), 10.0)
    counts = rates.smoothed(made, Counts({"read": NodeRate(300, 300, 0.0)}), 12.0)
    assert counts.nodes["read"].per_second == counts.per_second == 150.0


def test_the_header_shows_the_lag_and_rate_of_the_counts() -> None:
    """The header of a paused application said lag 0, from the last report, and its text 100, from the offsets."""
    counts = Counts({"read": NodeRate(5, 5, 2.5)}, {"in-0": 100}, 5, 2.5)

    class Drawn(Application):
        def picture(self) -> Picture:
            return picture_of(topology(), title="app")

        def __repr__(self) -> str:
            return "app"

    core: Any = SimpleNamespace(
        name="app", client=SimpleNamespace(closed=False), status="paused", stale=(), detached=False, error=None, counts=counts,
    )  # fmt: skip
    core.current, core.handle = core, Drawn(core)
    live = LivePicture(core.handle, lambda changed: None)
    live.refresh()
    assert [point[1:] for point in live.state["history"]] == [[2.5, 100]]


def test_after_the_session_is_closed_the_counts_are_those_of_the_last_commit(tmp_path: Path) -> None:
    """They were those of whatever was asked last: an earlier pause, or the reports before the stop."""
    builder = StreamsBuilder()
    builder.stream("in", name="read", key_serde="string", value_serde="string").to("out", key_serde="string", value_serde="string")
    cluster = SmallCluster()
    with SmallSession(cluster, tmp_path) as session:
        for topic in ("in", "out"):
            cluster.create_topic(topic, 2)
        app = session.deploy(builder, "app").pause()
        assert app.counts.records == 0
        cluster.logs[TopicPartition("in", 0)] += [(b"k", b"v", 1)] * 5
        app.resume()
    cluster.offsets.clear()  # nobody answers any more
    assert (app.counts.records, app.counts.lag) == (5, 0) and "stopped, 5 records, lag 0" in repr(app)


def test_dropped_records_are_in_the_text_of_the_application_and_a_failed_one_says_that_its_records_are_committed() -> None:
    """1,259 of 3,440 were dropped as late, or were in the dead letters, and only the picture said so; 0 records beside 896 outputs."""
    rates = {"read": NodeRate(9, 9, 0.0, {"deserialization": 1}), "kept": NodeRate(9, 2, 0.0, {"expired window": 4})}
    counts = Counts({**rates, "key": NodeRate(9, 3, 0.0, {"expired window": 3})}, {"in-0": 0}, 9)
    assert counts.dropped == {"deserialization": 1, "expired window": 7}
    app: Any = SimpleNamespace(topology=topology(), status="running", versions=[], counts=counts)
    assert numbers_of(app, counts) == ", 9 records, lag 0, 1 dropped: deserialization, 7 late"
    assert "0 behind, 1 dropped: deserialization, 7 late\n" in counts.table().note
    app.status = "failed"
    assert numbers_of(app, counts).startswith(", 9 records committed, lag 0, ")
