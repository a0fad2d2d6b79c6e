"""Topics and stores as Spark DataFrames, on a real broker and real Spark: the values of the DuckDB view."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
CONFIG = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50}


def rows(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_frames_have_the_values_of_the_sql_view(broker: Any, tmp_path: Path) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        now = int(time.time() * 1000) - 60_000  # a window store's changelog is deleted by time
        orders = [(f"k{n % 11}", {"n": n, "to": {"city": "Ulm"}, "parts": [1.5, n]}, now + 7 * n) for n in range(3000)]
        session.produce(topic, orders, partitions=3)
        builder = ks.StreamsBuilder()
        grouped = builder.stream(topic, key_serde="string", value_serde="json").group_by_key()
        grouped.count(store="counts")
        grouped.windowed_by(ks.TimeWindows.of_size(1000)).count(store="windows", retention=5000)
        grouped.aggregate(lambda: {}, lambda key, order, last: order, store="last", value_serde="json")
        app = session.deploy(builder, name, config=CONFIG)
        assert app.wait(120)
        app.pause()
        frame = session.spark_frame(topic, piece=400)
        assert frame.rdd.getNumPartitions() >= 8
        assert rows(frame.toArrow()) == rows(session.sql(f'SELECT * FROM "{topic}"').arrow())
        assert frame.groupBy("key").count().count() == 11
        assert frame.where("to.city = 'Ulm' AND n < 10").count() == 10
        for store in ("counts", "windows", "last"):
            found, seen = app.store(store).spark_frame().toArrow(), app.sql(store).arrow()
            assert found.num_rows > 0 and found.schema.names == seen.schema.names, store
            assert rows(found) == rows(seen), store
        session.produce(topic, orders[:5])
        assert frame.count() == 3000, "the offsets are those of the call"
