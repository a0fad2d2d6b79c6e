"""A collector of OTLP over HTTP, read by OpenTelemetry's protobuf, and of OpenLineage's events, as far as tests need one: it keeps all."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
    "/api/v1/lineage": json,
}


class Collector:
    """What was exported, oldest first. `url` is its base."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: dict[str, list[Any]] = {path: [] for path in REQUESTS}

    @property
    def spans(self) -> list[Any]:
        scopes = (scope for request in self.requests["/v1/traces"] for each in request.resource_spans for scope in each.scope_spans)
        return [span for scope in scopes for span in scope.spans]

    @property
    def metrics(self) -> list[Any]:
        scopes = (scope for request in self.requests["/v1/metrics"] for each in request.resource_metrics for scope in each.scope_metrics)
        return [metric for scope in scopes for metric in scope.metrics]

    @property
    def lines(self) -> list[str]:
        scopes = (scope for request in self.requests["/v1/logs"] for each in request.resource_logs for scope in each.scope_logs)
        return [record.body.string_value for scope in scopes for record in scope.log_records]

    @property
    def lineage(self) -> list[Any]:
        return self.requests["/api/v1/lineage"]

    def wait(self, done: Callable[[], bool], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < deadline, f"the collector has {({path: len(got) for path, got in self.requests.items()})}"
            time.sleep(0.05)


@contextmanager
def collecting() -> Iterator[Collector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            collector.requests[self.path].append(json.loads(body) if REQUESTS[self.path] is json else REQUESTS[self.path].FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
