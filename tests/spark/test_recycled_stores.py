"""Stores stay open in a worker from one generation to the next, on real Spark and a real broker."""

from __future__ import annotations

import pytest

from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, running

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_an_edit_keeps_the_stores_open(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(1_000))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, 1_000)
    deployment.replace(counting(source, sink))
    running(deployment)
    assert {slot: report.recycled for slot, report in deployment.reports.instances.items()} == {0: 2, 1: 2}
    host.produce(source, numbered(1_000, start=1_000))
    processed(deployment, 2_000)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(2_000))
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == expected_counts(numbered(2_000))
