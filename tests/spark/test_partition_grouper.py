"""A partition grouper of the user's decides which partitions one task reads, deployed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kstreams_repl.system.types import TopicPartition
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(180)]


class InPairs:
    """Partitions 2n and 2n + 1 of all topics belong to task n."""

    def group(self, partitions_per_topic: Mapping[str, int]) -> list[set[TopicPartition]]:
        groups: dict[int, set[TopicPartition]] = {}
        for topic, count in partitions_per_topic.items():
            for number in range(count):
                groups.setdefault(number // 2, set()).add(TopicPartition(topic, number))
        return [groups[number] for number in sorted(groups)]


@pytest.mark.slow
def test_two_tasks_read_four_partitions_in_pairs_and_go_on_after_a_restart(host: Host) -> None:
    source, sink = host.topic("in", 4), host.topic("out", 4)
    rows = numbered(800)
    for number in range(2):
        host.produce(source, rows[400 * number : 400 * (number + 1)])
        deployment = host.deployment(counting(source, sink), num_stream_threads=1, **{"partition.grouper": InPairs()})
        deployment.start()
        processed(deployment, 400 * (number + 1))
        tasks = deployment.reports.instances[0].tasks
        assert {name: sorted(report.committed) for name, report in tasks.items()} == {
            "0_0": [f"{source}-0", f"{source}-1"],
            "0_1": [f"{source}-2", f"{source}-3"],
        }
        deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(rows)
    assert host.admin.partitions(f"{deployment.application_id}-counts-changelog") == 2
