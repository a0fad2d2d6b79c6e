"""Traces, log lines and metrics to an OpenTelemetry collector, by OTLP over HTTP, with OpenTelemetry's own SDK.

Its environment variables hold: ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or ``repl.otlp.endpoint``), headers, certificates, resource attributes,
``OTEL_TRACES_SAMPLER`` and so on. Spans and attributes are named by its conventions for Kafka; ``traceparent`` in a record's headers is
W3C's, as OpenTelemetry's instrumentation of Kafka clients writes and reads it. Source: W3C Trace Context.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.metrics_snapshot import Metric
from kstreams_repl.engine.metrics.prometheus import Series, series_of
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.system.extras import extras
from kstreams_repl.system.log_context import OFF
from kstreams_repl.system.types import Headers, RecordBatch

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span, SpanContext

PARENT, STATE = "traceparent", "tracestate"
_LENGTH = 55
_LAST_SECONDS = 1.0
"""How long the end of an instance may wait for a collector that is away."""
_AGE = "kafka_streams_stream_processor_node_metrics_record_e2e_latency_max"
Exemplars = dict[tuple[str, str], tuple["SpanContext", int, float]]
"""(task, node) -> the last span that passed it, when (ns), and the record's age then (ms)."""


class RecordTracer:
    """`engine.runtime.record_spans.Tracer` of one instance.

    A record that carries a `traceparent` is traced if its producer sampled it. Of the others each n-th offset of a partition begins a
    trace, n being one through the rate, as long as no more than `limit` have begun within this second.

    Args:
        rate: share of the records without a `traceparent` that begin a trace; 0: none.
        limit: most traces that begin in a second.
        endpoint: base URL of a collector; None: as the environment says.
    """

    def __init__(self, application_id: str, rate: float, endpoint: str | None, limit: int) -> None:
        with extras():
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        self._every = round(1 / rate) if rate else 0
        self._group, self._limit, self._left, self._second = application_id, limit, limit, 0
        self.exemplars: Exemplars = {}
        self._provider = TracerProvider(resource=_resource(application_id), shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(_at(endpoint, "traces"))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("kstreams_repl")

    def choose(self, batch: RecordBatch, *, internal: bool) -> Sequence[int]:
        every, offsets, headers = self._every, batch.offsets, batch.headers
        begins: Iterable[int] = ()
        if every and not internal:
            dense = offsets[-1] - offsets[0] == len(offsets) - 1
            begins = self._within_limit(
                range(-offsets[0] % every, len(offsets), every)
                if dense
                else [index for index, offset in enumerate(offsets) if offset % every == 0]
            )
        if headers is None:
            return list(begins)
        flags = {index: flag for index, own in enumerate(headers) if own and (flag := _sampled(own)) is not None}
        return sorted({index for index in begins if index not in flags} | {index for index, sampled in flags.items() if sampled})

    def _within_limit(self, indices: Sequence[int]) -> Sequence[int]:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._left = second, self._limit
        taken = indices[: self._left]
        self._left -= len(taken)
        return taken

    def start(self, task: str, record: RecordContext) -> RecordSpan:
        from opentelemetry.trace import SpanKind

        text = {name: value.decode("ascii", "replace") for name, value in record.headers if name in (PARENT, STATE) and value}
        span = self._tracer.start_span(
            f"process {record.topic}",
            context=_propagator().extract(text),
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.consumer.group.name": self._group,
                "messaging.destination.name": record.topic or "",
                "messaging.destination.partition.id": str(record.partition),
                "messaging.kafka.offset": record.offset,
                "kstreams.task": task,
                "kstreams.timestamp": record.timestamp,
            },
        )
        return RecordSpan(span, task, record, self.exemplars)

    def close(self) -> None:
        """Send what is left, and end the sending thread."""
        _shut_down(self._provider, self._exporter)


class RecordSpan:
    """`engine.runtime.record_spans.Span`."""

    __slots__ = ("_span", "_task", "_timestamp", "_exemplars", "context", "headers", "_passed")

    def __init__(self, span: Span, task: str, record: RecordContext, exemplars: Exemplars) -> None:
        from opentelemetry.trace import set_span_in_context

        self._span, self.context = span, span.get_span_context()
        self._task, self._timestamp, self._exemplars = task, record.timestamp, exemplars
        self._passed: list[tuple[str, int]] = []
        carrier: dict[str, str] = {}
        _propagator().inject(carrier, set_span_in_context(span))
        kept = [(name, value) for name, value in record.headers if name not in (PARENT, STATE)]
        self.headers: Headers = [*kept, *((name, value.encode()) for name, value in carrier.items())]

    def passed(self, node: str) -> None:
        self._passed.append((node, time.time_ns()))

    def read(self, store: str, writer: SpanContext) -> None:
        self._span.add_link(writer, {"kstreams.store": store})

    def end(self, error: BaseException | None) -> None:
        from opentelemetry.trace import Status, StatusCode

        span = self._span
        for node, at in self._passed:
            span.add_event(node, timestamp=at)
            self._exemplars[(self._task, node)] = (self.context, at, at / 1e6 - self._timestamp)
        self._passed.clear()
        if error is not None:
            span.record_exception(error)
            span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()


def tracer_of(config: StreamsConfig, application_id: str) -> RecordTracer | None:
    """Return the tracer of an instance; None: nothing is traced."""
    rate = config["repl.trace.rate"]
    return None if rate is None else RecordTracer(application_id, rate, config["repl.otlp.endpoint"], config["repl.trace.limit"])


@contextmanager
def exported_logs(endpoint: str | None, application_id: str, level: str) -> Iterator[None]:
    """Send the package's log lines of a level and above to a collector during this block; without an endpoint, or OFF, none."""
    if endpoint is None or level == OFF:
        yield
        return
    with extras():
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.instrumentation.logging.handler import LoggingHandler
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    provider = LoggerProvider(_resource(application_id), shutdown_on_exit=False)
    exporter = OTLPLogExporter(_at(endpoint, "logs"))
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    handler = LoggingHandler(logging.getLevelName(level), provider)
    package = logging.getLogger("kstreams_repl")
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
        _shut_down(provider, exporter)


def _shut_down(provider: Any, exporter: Any) -> None:
    """End a provider; if its collector is away, the exporter repeats what is left for no longer than `_LAST_SECONDS`."""
    enough = threading.Timer(_LAST_SECONDS, exporter.shutdown)
    enough.start()
    try:
        provider.shutdown()
    finally:
        enough.cancel()


class MetricsSender:
    """Sends an instance's metrics to a collector, by their names in Prometheus; the ages of records with a traced record as exemplar."""

    def __init__(self, application_id: str, endpoint: str) -> None:
        with extras():
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        self._exporter, self._resource = OTLPMetricExporter(_at(endpoint, "metrics")), _resource(application_id)
        self._began, self._labels = time.time_ns(), {"application": application_id}

    def send(self, metrics: Iterable[Metric], exemplars: Exemplars) -> None:
        """Send the present values. A collector that is away is told of in the log, by the SDK.

        Args:
            exemplars: what a `RecordTracer` has collected since the last time; taken out.
        """
        traced = {at: exemplars.pop(at) for at in list(exemplars)}
        self._exporter.export(_metrics_data(series_of(metrics, self._labels), self._resource, self._began, traced))


def sender_of(config: StreamsConfig, application_id: str) -> MetricsSender | None:
    """Return what sends an instance's metrics; None: no collector gets them."""
    endpoint = config["repl.otlp.endpoint"]
    return None if endpoint is None else MetricsSender(application_id, endpoint)


def _metrics_data(series: Iterable[Series], resource: Resource, began: int, traced: Exemplars) -> MetricsData:
    """Return the series as OpenTelemetry's SDK exports them: counters are sums since the start, all others gauges."""
    from opentelemetry.sdk.metrics import Exemplar, export
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now, families = time.time_ns(), dict[tuple[str, str, str], list[export.NumberDataPoint]]()
    for one in series:
        points = families.setdefault((one.name, one.kind, one.help), [])
        labels = dict(one.labels or {})
        span = traced.get((labels.get("task_id", ""), labels.get("processor_node_id", ""))) if one.name == _AGE else None
        examples = [] if span is None else [Exemplar({}, span[2], span[1], span[0].span_id, span[0].trace_id)]
        points.append(export.NumberDataPoint(labels, began, now, float(one.value or 0), examples))
    cumulative = export.AggregationTemporality.CUMULATIVE
    measured = [
        export.Metric(name, text, "", export.Sum(points, cumulative, True) if kind == "counter" else export.Gauge(points))
        for (name, kind, text), points in families.items()
    ]
    scope = export.ScopeMetrics(InstrumentationScope("kstreams_repl"), measured, "")
    return export.MetricsData([export.ResourceMetrics(resource, [scope], "")])


def _resource(application_id: str) -> Resource:
    from opentelemetry.sdk.resources import Resource

    return Resource.create({"service.name": application_id})


def _at(endpoint: str | None, what: str) -> str | None:
    return None if endpoint is None else f"{endpoint.rstrip('/')}/v1/{what}"


@cache
def _propagator() -> TextMapPropagator:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _sampled(headers: Headers) -> bool | None:
    """Return whether the producer sampled the record; None: it is in no trace."""
    parent = next((value for name, value in headers if name == PARENT), None)
    try:
        return None if parent is None or len(parent) < _LENGTH else bool(int(parent[53:_LENGTH], 16) & 1)
    except ValueError:
        return None
