"""Event-time alignment over two hosts, whose instances tell each other their times through the application's journal."""

from __future__ import annotations

import collections
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.host.spark.startup.spark_session import stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

HOUR = 3_600_000
BEGAN = 1_700_000_000_000 // HOUR * HOUR
PARTITIONS = 4
RECORDS = 80_000


@pytest.mark.parametrize("aligned", [True, False])
def test_a_day_in_order_in_each_partition_is_counted_by_the_hour(
    broker: Any, cluster: StandaloneCluster, tmp_path: Path, aligned: bool
) -> None:
    """One partition has ten times the records of the others. Without alignment most of them are late behind the repartition."""
    stop_session()
    name = f"app-{uuid.uuid4().hex[:8]}"
    dice = random.Random(7)
    shares = [10, 1, 1, 1]
    rows = []
    for partition, share in enumerate(shares):
        count = RECORDS * share // sum(shares)
        times = sorted(dice.randrange(24 * HOUR) for _ in range(count))
        key = next(key for key in map(str, range(1_000)) if partition_for_key(key.encode(), PARTITIONS) == partition)
        rows += [(key, f"u{dice.randrange(20)}", BEGAN + at) for at in times]
    expected = collections.Counter((user, at // HOUR * HOUR) for _, user, at in rows)
    with ks.connect(broker.bootstrap_servers, spark=cluster.master, directory=tmp_path / "session") as session:
        session.topic_configs["retention.ms"] = "-1"
        session.spark.range(2).count()  # waits for the executors, however long they take to start
        session.create_topic(f"{name}-in", partitions=PARTITIONS)
        session.produce(f"{name}-in", rows, key_serde="string", value_serde="string")
        builder = ks.StreamsBuilder()
        users = builder.stream(f"{name}-in", key_serde="string", value_serde="string").select_key(lambda key, user: user)
        hours = users.group_by_key(key_serde="string", value_serde="string").windowed_by(ks.TimeWindows.of_size_with_no_grace("1 h"))
        hours.count(store="hours", retention="2 d")
        config = {
            "num.stream.threads": 2, "processing.guarantee": "exactly_once_v2", "auto.offset.reset": "earliest",
            **({} if aligned else {"repl.alignment.drift.ms": -1}),
        }  # fmt: skip
        app = session.deploy(builder, name, config=config)
        assert app.wait(300) and app.reports.remote
        counted = session.sql("SELECT key, window_start, value FROM hours").df()
        found = {(row.key, int(row.window_start.timestamp() * 1000)): row.value for row in counted.itertuples()}
        app.stop()
    lost = len(rows) - sum(found.values())
    print(f"\n{lost} of {len(rows)} lost")
    assert found == expected if aligned else lost > len(rows) // 10
