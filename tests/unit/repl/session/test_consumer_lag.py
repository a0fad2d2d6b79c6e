"""What is not processed yet: records behind the committed offsets, and records in asynchronous nodes, which the offsets have passed."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, Topology
from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, encode
from kstreams_repl.engine.runtime.metadata_names import WAITING
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.repl.session.views.counts.consumer_lag import remaining, tasks_of
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallCounter


def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", name="read").map_values_async(str, name="ask", on_error="retry", retry_backoff="1h").repartition(
        name="again"
    ).map_values_async(str, name="tell").to("out")
    return builder.build()


def cluster(*, processed: int, waiting: dict[TopicPartition, int]) -> Any:
    found: Any = SmallCluster()
    for topic in ("in", "app-again-repartition", "out"):
        found.create_topic(topic, PARTITIONS)
    for at, log in found.logs.items():
        log += [(b"k", b"v", 1)] * 10
        held = {WAITING: waiting[at]} if at in waiting else {}
        found.offsets[at] = CommittedOffset(processed, encode(1, {COMMIT_ID: 3, **held}))
    return found, SmallCounter()


def test_records_in_asynchronous_nodes_remain_although_their_offsets_are_committed() -> None:
    """`wait()` returned True while 200 of 200 calls were in flight."""
    held = {TopicPartition("in", 0): 3, TopicPartition("app-again-repartition", 1): 4}
    assert remaining(*cluster(processed=10, waiting=held), "app", topology()).total == 7
    assert remaining(*cluster(processed=10, waiting={}), "app", topology()).total == 0
    found = remaining(*cluster(processed=5, waiting=held), "app", topology())
    assert (found.waiting, sum(found.records.values())) == (7, 20)


def test_a_tasks_partitions_are_those_of_one_number() -> None:
    known = {"in": 2, "app-again-repartition": 3}
    assert tasks_of(topology(), "app", known) == {
        **{TaskId(0, number): [TopicPartition("in", number)] for number in range(2)},
        **{TaskId(1, number): [TopicPartition("app-again-repartition", number)] for number in range(3)},
    }


@pytest.mark.parametrize("known", [{}, {"out": 2}])
def test_topics_that_do_not_exist_have_no_task(known: dict[str, int]) -> None:
    assert tasks_of(topology(), "app", known) == {}
