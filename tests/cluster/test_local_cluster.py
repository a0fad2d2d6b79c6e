"""``local-cluster[2,1,1024]``: two executors that Spark starts by itself, one slot each, under one state directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.spark.startup.spark_session import get_session, stop_session
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, running

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def host(broker: Any, tmp_path: Path) -> Iterator[Host]:
    stop_session()
    try:
        made = Host(broker, get_session("local-cluster[2,1,1024]"), tmp_path)
        yield made
        made.close()
    finally:
        stop_session()


def test_two_executors_share_a_state_directory_and_no_store(host: Host, tmp_path: Path) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(2_000))
    deployment = host.deploy(counting(source, sink), num_standby_replicas=1)
    processed(deployment, 2_000)
    running(deployment)
    places = [report.place for report in deployment.reports.instances.values()]
    assert len(set(places)) == 2
    stores = sorted(path.parent.name for path in (tmp_path / "state").glob("*/executor-*/*/data.mdb"))
    assert set(stores) == {"0_0", "0_1", "0_2", "0_3"}
    assert not list((tmp_path / "state").glob("*/tasks/*")), "nothing lies where local Spark keeps it"
    deployment.pause()
    host.produce(source, numbered(1_000, start=2_000))
    deployment.resume()
    processed(deployment, 3_000)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(3_000))
