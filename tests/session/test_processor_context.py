"""`context.metrics()` and `context.state_dir` of a deployed processor, on a real broker and real Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.types import TaskId
from tests.spark.hosting import settle, spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


@pytest.mark.slow
def test_what_a_processor_measures_is_in_the_applications_metrics_and_its_files_outlive_a_pause(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"

    class Measures(ks.FixedKeyProcessor):
        def init(self, context: Any) -> None:
            super().init(context)
            self.took = context.metrics().add_latency_rate_total_sensor("lookup", "prices", "fetch")
            self.seen = context.state_dir / "seen"
            self.read = False

        def process(self, record: Any) -> None:
            self.took.record(record.value)
            self.read = self.read or any(metric.name == "fetch-total" for metric in self.context.metrics().metrics())
            with self.seen.open("a") as file:
                file.write(f"{record.value}\n")
            self.context.forward(record.with_value(self.read))

    builder = ks.StreamsBuilder()
    values = builder.stream(f"{name}-in", key_serde="string", value_serde="json").process_values(Measures)
    values.to(f"{name}-out", value_serde="json", key_serde="string")
    session.create_topic(f"{name}-out", partitions=1)
    session.produce(f"{name}-in", [("a", 10, 1000), ("b", 30, 1001)], value_serde="json", partitions=1)
    app = session.deploy(builder, name, config={"commit.interval.ms": 50})
    assert app.wait(120)
    settle(lambda: app.metrics.total("fetch-total") == 2, "the sensor in the metrics", 60)
    look = app.metrics.filter(group="stream-lookup-metrics", lookup_id="prices", thread_id=f"{name}-StreamThread-1")
    assert look.value("fetch-latency-max") == 30 and look.value("fetch-latency-avg") == 20
    assert "kafka_streams_stream_lookup_metrics_fetch_total{" in app.metrics.prometheus()
    seen = task_directory(session.client.state_root, name, TaskId(0, 0)) / "files" / "seen"
    assert seen.read_text() == "10\n30\n"
    app.pause()
    session.produce(f"{name}-in", [("a", 50, 1002)], value_serde="json")
    app.resume()
    assert app.wait(120) and seen.read_text() == "10\n30\n50\n"
    assert [record.value for record in session.read(f"{name}-out", value_serde="json")][-1] is True  # the processor read it, too
