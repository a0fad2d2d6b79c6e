"""What is seen of an instance's asynchronous nodes: figures for reports, and metrics by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kstreams_repl.engine.calls.node_caller import NodeCaller
from kstreams_repl.engine.metrics.catalogue import ASYNC, NODE_ID
from kstreams_repl.engine.metrics.counters import Reader, Steps
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.sensors import record, scaled
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.system.types import JsonObject

_MS = 1000.0


def call_figures(instance: Instance) -> dict[str, JsonObject]:
    """Return for each asynchronous node what its calls do now; empty without such nodes."""
    found: dict[str, JsonObject] = {}
    for task in instance.tasks:
        calls = task.task.calls
        for node in () if calls is None else calls.nodes:
            figures = found.setdefault(node.name, {"in_flight": 0, "waiting": 0, "to_retry": 0, "failed": 0})
            figures["waiting"] += len(node.entries) - len(node.parked)
            figures["to_retry"] += len(node.parked)
            figures["failed"] += node.failed
    for name, caller in {} if instance.calls is None else list(instance.calls.callers.items()):
        figures = found.setdefault(name, {"in_flight": 0, "waiting": 0, "to_retry": 0, "failed": 0})
        times = caller.times
        figures["in_flight"] = caller.running
        figures["waiting"] = max(0, figures["waiting"] - caller.running)
        figures["repeats"] = caller.repeats
        figures["breaker"] = caller.breaker_state
        figures["latency_ms"] = round(times.total / times.count * _MS, 1) if times.count else None
    return found


class CallMetrics:
    """The metrics of an instance's asynchronous nodes.

    Args:
        tags: of the instance.
    """

    def __init__(self, registry: Registry, tags: Mapping[str, str]) -> None:
        self._registry, self._tags = registry, tags
        self._figures: dict[str, JsonObject] = {}
        self._callers: dict[str, NodeCaller] = {}
        self._feeds: dict[str, list[Callable[[int], None]]] = {}

    def fold(self, instance: Instance, now: int) -> None:
        """Take the counts since the last call, of nodes that were not there before from the start."""
        if instance.calls is None:
            return
        self._figures = call_figures(instance)
        for name, caller in list(instance.calls.callers.items()):
            if self._callers.get(name) is not caller:
                self._callers[name] = caller
                self._watch(name, caller)
        for feeds in self._feeds.values():
            for feed in feeds:
                feed(now)

    def _watch(self, name: str, caller: NodeCaller) -> None:
        tags = {**self._tags, NODE_ID: name}
        registry = self._registry
        for metric, figure in (("in-flight", "in_flight"), ("waiting", "waiting"), ("to-retry", "to_retry")):
            registry.gauge(f"repl-calls-{metric}", ASYNC, tags, lambda figure=figure: self._figures.get(name, {}).get(figure, 0))  # type: ignore[misc]
        if caller.breaker_state is not None:
            registry.gauge("repl-breaker-state", ASYNC, tags, lambda: self._callers[name].breaker_state or "")
        times = registry.add(registry.sensor().rate_and_total("repl-call").avg_and_max("repl-call-latency"), ASYNC, tags)
        reader = Reader(caller.times)
        feeds = self._feeds[name] = [lambda now: record(times, scaled(reader.take(), _MS), now)]
        counts: Mapping[str, Callable[[], int]] = {
            "repl-call-failures": lambda: caller.failures,
            "repl-call-timeouts": lambda: caller.timeouts,
            "repl-call-repeats": lambda: caller.repeats,
        }
        for metric, read in counts.items():
            sensor, steps = registry.add(registry.sensor().rate_and_total(metric), ASYNC, tags), Steps()
            feeds.append(lambda now, sensor=sensor, steps=steps, read=read: record(sensor, steps.take(read()), now))  # type: ignore[misc]
