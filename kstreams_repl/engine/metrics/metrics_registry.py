"""All metrics of one instance: sensors and gauges by group and tags.

Not thread-safe: `host/instance/metrics/instance_metrics.py` holds the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan

from kstreams_repl.engine.metrics.catalogue import is_recorded
from kstreams_repl.engine.metrics.metrics_snapshot import MetricGroup, Snapshot
from kstreams_repl.engine.metrics.sensors import Read, Sensor, Statistic, Window

Tags = tuple[tuple[str, str], ...]


class Registry:
    """The sensors and gauges of one instance.

    Args:
        level: INFO, DEBUG or TRACE; metrics of a finer level are not kept.
    """

    def __init__(self, level: str, window: Window) -> None:
        self.level = level
        self.window = window
        self._groups: dict[tuple[str, Tags], dict[str, Statistic | Read]] = {}

    def sensor(self) -> Sensor:
        """Return a new sensor; add statistics to it, then pass it to `add`."""
        return Sensor(self.window)

    def add(self, sensor: Sensor, group: str, tags: Mapping[str, str]) -> Sensor:
        """Add the sensor's statistics that the level allows."""
        metrics = self._group(group, tags)
        for name, statistic in sensor.statistics.items():
            if is_recorded(group, name, self.level):
                metrics[name] = statistic
        return sensor

    def gauge(self, name: str, group: str, tags: Mapping[str, str], read: Read) -> None:
        """Add a gauge whose value is read by `read` at the time of a snapshot."""
        if is_recorded(group, name, self.level):
            self._group(group, tags)[name] = read

    def shared(self, group: str, tags: Mapping[str, str], name: str, make: Callable[[Window], Statistic]) -> Statistic:
        """Return the statistic with this group, tags and name, created if necessary. For custom metrics, not in the catalogue."""
        metrics = self._group(group, tags)
        metric = metrics.get(name)
        if metric is None or callable(metric):
            metric = metrics[name] = make(self.window)
        return metric

    def snapshot(self, now: int) -> Snapshot:
        """Return the value of every metric at a time (epoch ms)."""
        groups: list[MetricGroup] = []
        for (group, tags), metrics in self._groups.items():
            values: dict[str, float | int | str | None] = {}
            for name, metric in metrics.items():
                value = metric() if callable(metric) else metric.measure(now)
                values[name] = None if isinstance(value, float) and isnan(value) else value
            if values:
                groups.append((group, dict(tags), values))
        return Snapshot(now, groups)

    def _group(self, group: str, tags: Mapping[str, str]) -> dict[str, Statistic | Read]:
        return self._groups.setdefault((group, tuple(tags.items())), {})
