"""A driver process of its own on a cluster: its clients see what its executors report."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.spark.startup.spark_session import stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from tests.cluster.test_session import topology
from tests.session.test_detached import connected, counts
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_detached_application_runs_in_executors_and_outlives_its_session(
    broker: Any, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    stop_session()
    name = f"app-{uuid.uuid4().hex[:8]}"
    exact = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2}
    with connected(broker, tmp_path, cluster.master) as session:
        session.produce(f"{name}-in", [(f"k{n % 5}", "word", 1000 + n) for n in range(100)])
        app = session.deploy(topology(f"{name}-in"), name, config=exact, detached=True)
        assert app.wait(180) and app.status == "running"
        assert len({report.place for report in app.reports.instances.values()}) == 2
    with connected(broker, tmp_path) as session:  # a notebook without a master
        app = session.attach(name)
        assert session.detached == {name: "running"} and app.status == "running"
        app.edit(topology(f"{name}-in", lambda key, value: key != "k0"))
        session.produce(f"{name}-in", [(f"k{n}", "word", 5000) for n in range(5)])
        settle(lambda: counts(app) == {"k0": 20, **{f"k{n}": 21 for n in range(1, 5)}}, "the counts", story=lambda: counts(app))
        assert None not in {report.place for report in app.reports.instances.values()}
        app.pause()
        app.stop()
        assert not cluster.executors(0) and not cluster.executors(1)
