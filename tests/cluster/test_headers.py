"""Stores with headers on a cluster of two workers with standby copies: a host is killed, and its tasks go on in the copies."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.spark.startup.spark_session import stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from kstreams_repl.system.errors import InvalidStateStoreError
from tests import traced
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def test_rows_and_headers_of_a_killed_host_are_those_of_its_copies(broker: Any, cluster: StandaloneCluster, tmp_path: Path) -> None:
    stop_session()
    name = f"app-{uuid.uuid4().hex[:8]}"
    with ks.connect(broker.bootstrap_servers, spark=cluster.master, directory=tmp_path / "session") as session:
        session.topic_configs["retention.ms"] = "-1"
        session.spark.range(2).count()  # waits for the executors, however long they take to start
        for topic in ("in", "out"):
            session.create_topic(f"{name}-{topic}", partitions=4)
        session.produce(f"{name}-in", traced.rows(0, 20_000))
        app = session.deploy(traced.topology(name), name, config={**traced.CONFIG, "num.standby.replicas": 1})
        assert app.wait(180)
        traced.check_tables(app, 20_000)
        settle(lambda: copies(app) == dict.fromkeys((f"0_{n}" for n in range(4)), 0), "standby copies", story=lambda: copies(app))
        before = {slot: report.pid for slot, report in app.reports.instances.items()}
        session.produce(f"{name}-in", traced.rows(20_000, 20_100))
        cluster.kill(1)
        began = time.monotonic()
        session.produce(f"{name}-in", traced.rows(20_100, 20_200))
        assert app.wait(180)
        print(f"\nready again after {time.monotonic() - began:.1f} s")
        after = app.reports.instances
        (moved,) = [slot for slot in before if after[slot].pid != before[slot]]
        assert after[moved].restored <= 4 * 200 + 100, "the copies were used: of four changelogs only what came last was read"
        traced.check_tables(app, 20_200)
        traced.check_output(session, name, 20_200)
        changelog = session.read(f"{name}-traced-changelog", None, key_serde="string", value_serde="long")
        last = {record.key: (record.value, record.timestamp, record.headers) for record in changelog}
        assert last == traced.expected(20_200)
        with pytest.raises(InvalidStateStoreError, match="has no query servers: the rows of store 'traced' are on its hosts"):
            app.store("traced", ks.queries.QueryableStoreTypes.timestamped_key_value_store_with_headers()).get("k1")
        app.stop()


def copies(app: ks.Application) -> dict[str, int]:
    """Lag of each standby copy."""
    return {task: lag for report in app.reports.instances.values() for task, lag in report.standbys.items()}
