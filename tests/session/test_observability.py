"""An application on real Spark whose traces, metrics and lineage arrive at their receivers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests.collector import collecting
from tests.spark.hosting import settle, spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def shop(name: str, greeting: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    customers = builder.table(f"{name}-customers", key_serde="string", value_serde="json", store="customers")
    orders = builder.stream(f"{name}-orders", key_serde="string", value_serde="json")
    by_customer = orders.select_key(lambda key, value: value["customer"]).repartition(
        name="by-customer", key_serde="string", value_serde="json"
    )
    joined = by_customer.join(customers, lambda order, customer: {**order, "city": customer["city"], "greeting": greeting})
    joined.to(f"{name}-out", key_serde="string", value_serde="json")
    return builder


def test_a_trace_leads_through_the_join_and_lineage_follows_an_edit(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    session.produce(f"{name}-customers", [("ann", {"city": "Berlin"}, 1000), ("ann", {"city": "Basel"}, 1001)], partitions=1)
    session.produce(f"{name}-orders", [("1", {"customer": "ann", "item": "shoes"}, 2000)], partitions=1)
    with collecting() as collector:
        config = {
            "processing.guarantee": "exactly_once_v2", "max.task.idle.ms": 2000, "repl.otlp.endpoint": collector.url, "repl.trace.rate": 1,
            "repl.otlp.interval.ms": 1000, "repl.openlineage.url": collector.url, "repl.log.level": "INFO",
        }  # fmt: skip
        app = session.deploy(shop(name, "hello"), name, config=config, create_topics=True)
        settle(lambda: len(session.read(f"{name}-out")) == 1, "the joined order", 120)
        app.edit(shop(name, "goodbye"))
        collector.wait(lambda: any(metric.name.endswith("process_total") for metric in collector.metrics), 60)
        app.stop()
        collector.wait(lambda: len(collector.lineage) == 4, 60)
        collector.wait(lambda: len(collector.spans) == 4 and len(collector.lines) > 0, 60)
    spans = {span.name.removeprefix(f"process {name}-"): span for span in collector.spans if span.links or "customers" not in span.name}
    order, joined = spans["orders"], spans["by-customer-repartition"]
    assert joined.trace_id == order.trace_id and joined.parent_span_id == order.span_id
    (update,) = (span for span in collector.spans if span.span_id == joined.links[0].span_id)
    offset = next(each.value.int_value for each in update.attributes if each.key == "messaging.kafka.offset")
    assert update.name == f"process {name}-customers" and offset == _offset_of_basel(session, name)
    assert [event["eventType"] for event in collector.lineage] == ["START", "COMPLETE", "START", "COMPLETE"]
    assert any("restoring -> running" in line for line in collector.lines)


def _offset_of_basel(session: ks.Session, name: str) -> int:
    rows = session.sql(f"""SELECT "offset" FROM "{name}-customers" WHERE value.city = 'Basel'""").fetchall()
    return int(rows[0][0])
