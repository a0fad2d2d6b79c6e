"""The server's own figures for Prometheus. Labels are routes and stores, never keys or clients."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kstreams_repl.serving.discovery import Discovery
from kstreams_repl.serving.server.access import Traffic
from kstreams_repl.serving.server.changes import ChangelogFeed


def metrics_text(traffic: Traffic, feeds: Mapping[str, ChangelogFeed], discovery: Discovery, hops: int) -> str:
    """Return one page in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Collector(traffic, feeds, discovery, hops))
    return generate_latest(registry).decode()


class _Collector:
    def __init__(self, traffic: Traffic, feeds: Mapping[str, ChangelogFeed], discovery: Discovery, hops: int) -> None:
        self._traffic, self._feeds, self._discovery, self._hops = traffic, feeds, discovery, hops

    def collect(self) -> list[Metric]:
        requests = CounterMetricFamily("kstreams_query_requests", "Requests.", labels=["method", "route", "status"])
        for (method, route, status), number in list(self._traffic.requests.items()):
            requests.add_metric([method, route, str(status)], number)
        seconds = CounterMetricFamily("kstreams_query_seconds", "Seconds spent on requests.", labels=["route"])
        for route, total in list(self._traffic.seconds.items()):
            seconds.add_metric([route], total)
        dropped = CounterMetricFamily("kstreams_query_dropped", "Connections and requests that were dropped.", labels=["reason"])
        for reason, number in list(self._traffic.dropped.items()):
            dropped.add_metric([reason], number)
        hops = CounterMetricFamily("kstreams_query_hops", "Requests sent on to other servers.", value=self._hops)
        active = GaugeMetricFamily("kstreams_query_open_requests", "Requests being answered.", value=sum(self._traffic.open.values()))
        listeners = GaugeMetricFamily("kstreams_query_subscriptions", "Open subscriptions.", labels=["store"])
        for store, feed in list(self._feeds.items()):
            listeners.add_metric([store], feed.listeners)
        number = self._discovery.placement.generation
        generation = GaugeMetricFamily("kstreams_query_generation", "Generation of the application.", value=number)
        return [requests, seconds, dropped, hops, active, listeners, generation]
