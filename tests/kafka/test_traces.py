"""Traces: from an order through a repartition topic and a join to the update that made the customer's row, and on to the consumer."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.host.telemetry import RecordTracer, exported_logs
from tests.collector import Collector, collecting

pytestmark = pytest.mark.kafka

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"
"""Of a producer's trace; W3C's own example."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


class Shop:
    """Orders by number, re-keyed by customer and joined with the customers' table."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.admin, self.settings, self.name, self.directory = admin, settings, name, directory
        self.orders, self.customers, self.out = f"{name}-orders", f"{name}-customers", f"{name}-out"
        for topic in (self.orders, self.customers, self.out):
            admin.create_topic(topic, 1)

    def write(self, topic: str, *rows: tuple[str, str], parent: str | None = None) -> None:
        producer = make_producer(self.settings)
        headers = None if parent is None else [("traceparent", parent.encode()), ("mine", b"1")]
        for key, value in rows:
            producer.produce(topic, value.encode(), key.encode(), headers=headers)
        assert producer.flush(20) == 0
        producer.close()

    def run(self, wanted: int, *, until: Callable[[], bool] = lambda: True, **config: Any) -> list[tuple[str, Any]]:
        """Run until so many records are in the output; return their values and headers."""
        builder = StreamsBuilder()
        customers = builder.table(self.customers, key_serde="string", value_serde="string", store="customers")
        orders = builder.stream(self.orders, key_serde="string", value_serde="string")
        by_customer = orders.select_key(lambda key, value: value.split()[0]).repartition(
            name="by-customer", key_serde="string", value_serde="string"
        )
        joined = by_customer.join(customers, lambda order, customer: f"{order} {customer}")
        joined.to(self.out, key_serde="string", value_serde="string")
        full = StreamsConfig({
            "application.id": self.name, "bootstrap.servers": self.settings.bootstrap_servers, "state.dir": str(self.directory),
            "processing.guarantee": "exactly_once_v2", **config,
        })  # fmt: skip
        plan = make_plan(builder.build(), full, self.settings, admin=self.admin, generation=1, state_root=self.directory)
        FileChannel(Path(plan.control_directory)).signal(plan.generation, Signal.RUN)
        cache, deadline = InstanceCache(), time.monotonic() + 60
        try:
            while len(rows := self.read()) < wanted or not until():
                control = FileInstanceControl(plan.control_directory, plan.generation, 0)
                result = run_instance(plan, 0, until=time.monotonic() + 0.5, control=control, cache=cache)
                assert result.failure is None, result.failure
                assert time.monotonic() < deadline, rows
        finally:
            cache.close()
        return rows

    def read(self) -> list[tuple[str, Any]]:
        batches = [batch for _, batch in read_ranges(self.settings, ranges_of(self.admin, self.out, settled=True))]
        headers = [own for batch in batches for own in batch.headers or [None] * len(batch)]
        return list(zip([(value or b"").decode() for batch in batches for value in batch.values], headers, strict=True))


@pytest.fixture
def shop(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Shop:
    return Shop(admin, settings, name, tmp_path)


def attributes(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


def test_an_order_leads_to_the_update_that_made_the_row_it_joined(shop: Shop, collector: Collector) -> None:
    shop.write(shop.customers, ("ann", "Berlin"), ("ben", "Bern"))
    shop.write(shop.customers, ("ann", "Basel"))
    shop.write(shop.orders, ("1", "ann shoes"), parent=f"{PARENT}-01")
    ((value, headers),) = shop.run(1, **{"repl.trace.rate": 1, "repl.otlp.endpoint": collector.url, "max.task.idle.ms": 1000})
    assert value == "ann shoes Basel"
    prefix = f"process {shop.name}-"
    spans = {(span.name.removeprefix(prefix), attributes(span)["messaging.kafka.offset"]): span for span in collector.spans}
    order, joined = spans[("orders", 0)], spans[("by-customer-repartition", 0)]
    assert order.trace_id.hex() == joined.trace_id.hex() == PARENT.split("-")[1]
    assert order.parent_span_id.hex() == PARENT.split("-")[2] and joined.parent_span_id == order.span_id
    (link,) = joined.links
    assert (link.trace_id, link.span_id) == (spans[("customers", 2)].trace_id, spans[("customers", 2)].span_id), "Basel, not Berlin"
    assert [each.value.string_value for each in link.attributes] == ["customers"]
    parents = [text for name, text in headers if name == "traceparent"]
    assert parents == [f"00-{joined.trace_id.hex()}-{joined.span_id.hex()}-01".encode()], "a consumer goes on with the trace"
    assert ("mine", b"1") in headers
    for span in collector.spans:
        assert all(span.start_time_unix_nano <= event.time_unix_nano <= span.end_time_unix_nano for event in span.events)
    assert len(joined.events) >= 2, "the nodes that it passed"


@pytest.mark.slow
def test_a_row_that_another_record_has_replaced_since_leads_nowhere(shop: Shop, collector: Collector) -> None:
    shop.write(shop.customers, ("ann", "Berlin"), parent=f"{PARENT}-01")
    shop.write(shop.customers, ("ann", "Basel"))
    shop.write(shop.orders, ("1", "ann shoes"), parent=f"{PARENT}-01")
    shop.run(1, **{"repl.trace.rate": 0, "repl.otlp.endpoint": collector.url, "max.task.idle.ms": 1000})
    assert sorted(span.name.rpartition("-")[2] for span in collector.spans) == ["customers", "orders", "repartition"]
    assert not any(span.links for span in collector.spans)


@pytest.mark.slow
def test_a_share_is_traced_what_a_producer_left_out_is_not_and_the_output_is_the_same(shop: Shop, collector: Collector) -> None:
    shop.write(shop.customers, *((f"c{number}", str(number)) for number in range(50)))
    orders = [(str(number), f"c{number % 50} {number}") for number in range(1000)]
    shop.write(shop.orders, *orders[:500])
    shop.write(shop.orders, *orders[500:], parent=f"{PARENT}-00")
    rows = shop.run(1000, **{"repl.trace.rate": 0.05, "repl.otlp.endpoint": collector.url, "max.task.idle.ms": 1000})
    assert [value for value, _ in rows] == [f"{order} {number % 50}" for number, (_, order) in enumerate(orders)]
    traced = [attributes(span)["messaging.kafka.offset"] for span in collector.spans if span.name.endswith("-orders")]
    assert traced == list(range(0, 500, 20))
    assert sum(any(name == "traceparent" for name, _ in headers or ()) for _, headers in rows) == 25 + 500


@pytest.mark.slow
def test_metrics_arrive_under_their_names_in_prometheus(shop: Shop, collector: Collector) -> None:
    shop.write(shop.customers, ("ann", "Basel"))
    shop.write(shop.orders, ("1", "ann shoes"), ("2", "ann hat"))
    name = "kafka_streams_stream_thread_metrics_process_total"

    def processed() -> list[Any]:
        """One customer's record, two orders, and those of the repartition topic."""
        return [point for metric in collector.metrics if metric.name == name for point in metric.sum.data_points if point.as_double == 5]

    def aged() -> list[Any]:
        """Figures of the age of records with an example."""
        ages = [metric for metric in collector.metrics if metric.name.endswith("_record_e2e_latency_max")]
        return [point for metric in ages for point in metric.gauge.data_points if point.exemplars]

    settings = {"repl.otlp.endpoint": collector.url, "repl.otlp.interval.ms": 1000, "repl.trace.rate": 1}
    shop.run(2, until=lambda: len(processed()) > 0 and len(aged()) > 0, **settings)
    labels = {each.key: each.value.string_value for each in processed()[0].attributes}
    assert labels["application"] == shop.name and labels["thread_id"].endswith("-1")
    totals = [metric.sum for metric in collector.metrics if metric.name == name]
    assert all(each.is_monotonic for each in totals)
    begins = {point.start_time_unix_nano for each in totals for point in each.data_points}
    assert len(begins) == 1, "a sum goes on over the runs of its slot"
    spans = {(span.trace_id, span.span_id): span for span in collector.spans}
    for point in aged():
        (example,) = point.exemplars
        node = next(each.value.string_value for each in point.attributes if each.key == "processor_node_id")
        span = spans[(example.trace_id, example.span_id)]
        (at,) = (event.time_unix_nano for event in span.events if event.name == node)
        assert at == example.time_unix_nano
        assert example.as_double == pytest.approx(at / 1e6 - attributes(span)["kstreams.timestamp"])


def test_a_collector_that_is_away_does_not_hold_up_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The exporter would repeat its request for as long as its timeout allows."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # nobody listens there
        tracer = RecordTracer("app", 1.0, f"http://127.0.0.1:{reserved.getsockname()[1]}", 50)
        record = RecordContext()
        tracer.start("0_0", record).end(None)
        tracer.close()
    assert any("aborting retry" in message for message in caplog.messages), caplog.messages


def test_log_lines_arrive_and_end_with_the_block(collector: Collector) -> None:
    log = logging.getLogger("kstreams_repl.host.instance")
    with exported_logs(collector.url, "app", "WARNING"):
        log.warning("seen %d", 1)
        log.info("too low")
    log.warning("too late")
    assert collector.lines == ["seen 1"]


@pytest.mark.slow
def test_without_a_rate_nothing_is_traced_and_headers_pass_as_they_are(shop: Shop, collector: Collector) -> None:
    shop.write(shop.customers, ("ann", "Basel"))
    shop.write(shop.orders, ("1", "ann shoes"), parent=f"{PARENT}-01")
    ((_, headers),) = shop.run(1, **{"repl.otlp.endpoint": collector.url, "max.task.idle.ms": 1000})
    assert headers == [("traceparent", f"{PARENT}-01".encode()), ("mine", b"1")] and not collector.spans
