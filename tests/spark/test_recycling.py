"""Stores stay open in a worker from one generation to the next."""

from __future__ import annotations

import pytest

from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_an_edited_application_keeps_its_stores_open(host: Host) -> None:
    source, sink = host.topic("in", 1), host.topic("out", 1)
    host.produce(source, numbered(1_000))
    deployment = host.deploy(counting(source, sink), num_stream_threads=1)
    processed(deployment, 1_000)
    deployment.replace(counting(source, sink))
    deployment.start()
    host.produce(source, numbered(1_000, start=1_000))
    processed(deployment, 2_000)
    assert deployment.reports.instances[0].recycled == 1
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(2_000))
