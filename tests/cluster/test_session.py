"""A notebook's session with a standalone cluster: `connect(spark="spark://…")`, then deploy, look, edit, pause and resume from the cell."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.spark.startup.spark_session import stop_session
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def topology(topic: str, keep: Any = lambda key, value: True) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string").filter(keep, name="kept")
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    return builder


async def strict(text: str) -> int:
    return int(text)


async def lenient(text: str) -> int:
    return int(text.removeprefix("n"))


def parsing(name: str, function: Any) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    texts = builder.stream(f"{name}-in", key_serde="string", value_serde="string")
    numbers = texts.map_values_async(function, name="parse", on_error="retry", attempts=9, retry_backoff="1h")
    numbers.to(f"{name}-out", key_serde="string", value_serde="long")
    return builder


def test_failed_records_are_tried_and_dropped_on_executors(broker: Any, cluster: StandaloneCluster, tmp_path: Path) -> None:
    """The orders go through the journal: the control directory has none."""
    stop_session()
    name = f"app-{uuid.uuid4().hex[:8]}"
    with ks.connect(broker.bootstrap_servers, spark=cluster.master, directory=tmp_path / "session") as session:
        session.topic_configs["retention.ms"] = "-1"
        for topic in ("in", "out"):
            session.create_topic(f"{name}-{topic}", partitions=2)
        session.spark.range(2).count()  # waits for the executors, however long they take to start
        texts = [("x" if number == 7 else "n" if number % 4 == 0 else "") + str(number) for number in range(40)]
        session.produce(f"{name}-in", [(f"k{number}", text) for number, text in enumerate(texts)])
        settings = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2}
        app = session.deploy(parsing(name, strict), name, config=settings)
        settle(lambda: len(app.retries("parse")) == 11, "the failed records", story=lambda: app)
        assert None not in {report.place for report in app.reports.instances.values()}
        app.edit(parsing(name, lenient))
        settle(lambda: app.status == "running" and len(app.reports.instances) == 2, "the edited application", story=lambda: app)
        assert app.retries("parse").retry_now(timeout=60) == ks.reports.RetryReport(11, 1, 10, 1, 0)
        assert app.retries("parse").drop(timeout=60) == ks.reports.RetryReport(1, 0, 1, 0, 0)
        assert not list((tmp_path / "session").rglob("retries/*"))
        app.stop()
        read = session.read(f"{name}-out", value_serde="long", n=40)
        assert sorted(record.value for record in read) == [number for number in range(40) if number != 7]


def test_an_application_is_deployed_to_a_cluster_from_the_cell(broker: Any, cluster: StandaloneCluster, tmp_path: Path) -> None:
    stop_session()
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    with ks.connect(broker.bootstrap_servers, spark=cluster.master, directory=tmp_path / "session") as session:
        session.topic_configs["retention.ms"] = "-1"
        session.produce(topic, [(f"k{n % 5}", "word", 1000 + n) for n in range(1000)])
        settings = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2}
        app = session.deploy(topology(topic), name, config=settings)
        assert app.wait(180)
        assert app.store("counts").get("k1") == 200
        rows = session.sql("SELECT key, value FROM counts ORDER BY key").fetchall()
        assert rows == [(f"k{n}", 200) for n in range(5)]
        places = {report.place for report in app.reports.instances.values()}
        assert len(places) == 2 and None not in places  # both executors, not this process
        app.edit(topology(topic, lambda key, value: key != "k0"))
        session.produce(topic, [(f"k{n}", "word", 5000) for n in range(5)])
        assert app.wait(180)
        assert [app.store("counts").get(f"k{n}") for n in range(5)] == [200, 201, 201, 201, 201]
        app.pause()
        session.produce(topic, [("k1", "word", 6000)])
        app.resume()
        assert app.wait(180) and app.store("counts").get("k1") == 202
        saved = app.savepoint("on-the-cluster")
        app.stop()
        session.cleanup(name)
        again = session.deploy(topology(topic), name, config=settings, from_savepoint=saved)
        assert again.wait(180) and again.store("counts").get("k1") == 202
