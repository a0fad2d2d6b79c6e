"""Applications on a standalone Spark cluster of two executors with separate state directories."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.standalone import SparkCluster
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, running

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def places(host: Host, deployment: object) -> dict[int, str | None]:
    return {slot: report.place for slot, report in deployment.reports.instances.items()}  # type: ignore[attr-defined]


def stores_under(root: Path) -> set[str]:
    return {path.parent.name for path in root.glob("*/executor-*/*/data.mdb")}


def test_instances_run_on_both_executors_and_keep_their_state_apart(cluster: SparkCluster, host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    rows = numbered(4_000)
    host.produce(source, rows)
    deployment = host.deploy(counting(source, sink), repl_epoch_ms=1000)
    processed(deployment, 4_000)
    running(deployment)
    first = places(host, deployment)
    assert len(set(first.values())) == 2
    assert stores_under(cluster.state(0)) | stores_under(cluster.state(1)) == {"0_0", "0_1", "0_2", "0_3"}
    assert not stores_under(cluster.state(0)) & stores_under(cluster.state(1))
    deployment.wait(3.0)
    began = time.monotonic()
    deployment.pause()
    print(f"\npause: {time.monotonic() - began:.3f} s")
    assert places(host, deployment) == first, "epochs went on where the stores are"
    ends = len(host.read(sink))
    host.produce(source, numbered(1_000, start=4_000))
    assert len(host.read(sink)) == ends
    began = time.monotonic()
    deployment.resume()
    processed(deployment, 5_000)
    print(f"resume: {time.monotonic() - began:.3f} s")
    assert places(host, deployment) == first
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(5_000))
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == expected_counts(numbered(5_000))
