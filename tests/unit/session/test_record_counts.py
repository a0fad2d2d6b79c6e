"""What instances report and what a commit says become one application's counts."""

from __future__ import annotations

from typing import Any

from kstreams_repl import StreamsBuilder, Topology
from kstreams_repl.commit.committed_counts import written_counts
from kstreams_repl.commit.offset_metadata import COMMIT_ID, encode
from kstreams_repl.kafka.group_admin import CommittedOffset
from kstreams_repl.runtime.node_counts import NodeCount
from kstreams_repl.session.views.consumer_lag import Remaining
from kstreams_repl.session.views.record_counts import Counts, NodeRate, committed, reported, since
from kstreams_repl.spark.instance_reports import ApplicationReport, InstanceReport, TaskReport
from kstreams_repl.types import TopicPartition


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
