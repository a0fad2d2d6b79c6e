"""The server's own figures for Prometheus. Labels are routes and stores, never keys or clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kstreams_repl.engine.metrics.prometheus import Series, exposition
from kstreams_repl.serving.remote.discovery import Discovery
from kstreams_repl.serving.server.access import Traffic
from kstreams_repl.serving.server.changes import ChangelogFeed


def metrics_text(traffic: Traffic, feeds: Mapping[str, ChangelogFeed], discovery: Discovery, hops: int) -> str:
    """Return one page in Prometheus' text format."""
    return exposition(_series(traffic, feeds, discovery, hops))


def _series(traffic: Traffic, feeds: Mapping[str, ChangelogFeed], discovery: Discovery, hops: int) -> Iterator[Series]:
    def counter(name: str, text: str, value: float, **labels: str) -> Series:
        return Series(f"kstreams_query_{name}_total", "counter", text, labels or None, float(value))

    def gauge(name: str, text: str, value: float, **labels: str) -> Series:
        return Series(f"kstreams_query_{name}", "gauge", text, labels or None, float(value))

    for (method, route, status), number in list(traffic.requests.items()):
        yield counter("requests", "Requests.", number, method=method, route=route, status=str(status))
    for route, total in list(traffic.seconds.items()):
        yield counter("seconds", "Seconds spent on requests.", total, route=route)
    for reason, number in list(traffic.dropped.items()):
        yield counter("dropped", "Connections and requests that were dropped.", number, reason=reason)
    yield counter("hops", "Requests sent on to other servers.", hops)
    yield gauge("open_requests", "Requests being answered.", sum(traffic.open.values()))
    for store, feed in list(feeds.items()):
        yield gauge("subscriptions", "Open subscriptions.", feed.listeners, store=store)
    yield gauge("generation", "Generation of the application.", discovery.placement.generation)
