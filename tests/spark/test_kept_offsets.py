"""An application whose offsets the broker has forgotten while it was at rest goes on where it was.

Slow: a broker removes a group only when its members have left. tests/kafka/test_forgotten_offsets.py tries the same without Spark.
"""

from __future__ import annotations

import pytest

from kstreams_repl.host.spark.deployment import Deployment
from tests.spark.hosting import Host, numbered, passing, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def _values(host: Host, sink: str) -> list[int]:
    return sorted(int(value or b"") for _, value in host.read(sink))


def _forget(host: Host, deployment: Deployment) -> None:
    """As the broker does a week after the last commit."""
    assert host.admin.delete_groups([deployment.application_id]) == (deployment.application_id,)
    assert not host.admin.committed_offsets(deployment.application_id)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_another_kernel_goes_on_after_a_stop(host: Host, reset: str) -> None:
    source, sink = host.topic("in"), host.topic("out")
    first = host.deployment(passing(source, sink), auto_offset_reset=reset).start()
    settle(lambda: len(first.reports.committed) == 4, "every partition's beginning to be chosen", story=lambda: first.reports)
    host.produce(source, numbered(500))
    processed(first, 500)
    first.stop()
    _forget(host, first)
    host.produce(source, numbered(500, start=500))
    second = host.deploy(passing(source, sink), auto_offset_reset=reset)
    processed(second, 1_000)
    second.stop()
    assert _values(host, sink) == list(range(1_000))


def test_a_stop_may_outlast_the_offsets_again_and_again(host: Host) -> None:
    """A pause cannot: the driver is still a member of the group, whose offsets the broker therefore keeps."""
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(passing(source, sink))
    for part in range(3):
        host.produce(source, numbered(300, start=300 * part))
        processed(deployment, 300 * (part + 1))
        deployment.pause()
        assert len(host.admin.members(deployment.application_id)) == 1
        deployment.stop()
        _forget(host, deployment)
        deployment.start()
    deployment.stop()
    assert _values(host, sink) == list(range(900))


def test_a_topic_that_was_made_anew_is_read_from_its_beginning(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(200))
    deployment = host.deploy(passing(source, sink))
    processed(deployment, 200)
    deployment.stop()
    host.admin.delete_topics([source])
    host.admin.create_topic(source, 4)
    host.admin.delete_groups([deployment.application_id])
    host.produce(source, numbered(100, start=200))
    deployment.start()
    processed(deployment, 100)
    deployment.stop()
    assert _values(host, sink) == list(range(300))
