"""What a console sees of an application: a group with a member, its offsets and lag."""

from __future__ import annotations

import pytest

from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.types import TopicPartition
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def test_a_running_application_is_a_member_of_its_group_and_commits_beside_it(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(400))
    deployment = host.deploy(counting(source, sink), num_stream_threads=1)
    group = deployment.application_id
    settle(lambda: host.admin.members(group) == ((f"{group}-driver", "127.0.0.1"),), "the member", story=lambda: host.admin.members(group))
    host.produce(source, numbered(400, start=400))
    processed(deployment, 800)
    deployment.pause()
    assert len(host.admin.members(group)) == 1
    offsets = host.admin.committed_offsets(group)
    assert sum(offset.offset for at, offset in offsets.items() if at.topic == source) == 800
    assert isinstance(offsets[TopicPartition(source, 0)], CommittedOffset)
    deployment.stop()
    assert host.admin.members(group) == ()
    assert decoded(host.table(sink)) == expected_counts(numbered(800))
