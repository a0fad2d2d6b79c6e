"""A task's metrics as its processors see them: reading all metrics of the instance, and adding sensors.

A processor gets a `StreamsMetrics` from `context.metrics()`, adds `CustomSensor`s in `init` and calls `record`; the host moves the recorded
values to its registry at intervals. Recording only updates plain numbers. Source: Kafka Streams' StreamsMetrics; names, groups and tags
are those of StreamsMetricsImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from kstreams_repl.engine.metrics.catalogue import INFO, LEVELS, SPECS, level_number
from kstreams_repl.engine.metrics.counters import Counter, Reader
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.metrics_snapshot import Metric
from kstreams_repl.engine.metrics.sensors import Avg, Count, Max, Min, Rate, Statistic, Sum, Total, Window
from kstreams_repl.system.errors import CallError, did_you_mean

STATISTICS: Mapping[str, Callable[[Window], Statistic]] = {
    "avg": Avg,
    "min": Min,
    "max": Max,
    "windowed_sum": Sum,
    "windowed_count": Count,
    "rate": lambda window: Rate(Sum(window)),
    "event_rate": lambda window: Rate(Count(window)),
    "cumulative_sum": lambda window: Total(),
    "cumulative_count": lambda window: Total(events=True),
}
"""Kafka's statistics by name: the first six cover the last `metrics.num.samples` windows; rates are per second."""


@dataclass(frozen=True, slots=True)
class _CustomMetric:
    group: str
    name: str
    tags: tuple[tuple[str, str], ...]
    statistic: str


class CustomSensor:
    """A sensor of a processor. `record` takes a value; each statistic added to the sensor becomes a metric.

    A sensor with a finer level than `metrics.recording.level` neither records nor shows anything.
    """

    def __init__(self, name: str, *, recorded: bool, taken: dict[tuple[object, ...], str]) -> None:
        self.name = name
        self.should_record = recorded
        """Whether `metrics.recording.level` lets the sensor record; check it before a costly measurement."""
        self._counter = Counter()
        self._reader = Reader(self._counter)
        self._metrics: list[_CustomMetric] = []
        self._bound: list[Statistic] = []
        self._taken = taken

    def __repr__(self) -> str:
        return f"CustomSensor({self.name!r}, {self._counter.count} recorded)"

    def record(self, value: float = 1.0) -> None:
        """Record a value.

        Raises:
            CallError: `value` is not a finite number.

        Example:
            >>> import kstreams_repl as ks
            >>> metrics = ks.testing.MockProcessorContext().metrics()
            >>> sensor = metrics.add_sensor("lookup")
            >>> sensor.record(2.5)
        """
        if self.should_record:
            if not isinstance(value, (int, float)) or not isfinite(value):
                raise CallError(f"sensor {self.name!r} expected a finite number, got {value!r}")
            self._counter.add(value)

    def add(self, name: str, statistic: str, *, group: str, tags: Mapping[str, str] | None = None) -> CustomSensor:
        """Add a metric that shows a statistic of the recorded values; return the sensor. The tag ``thread-id`` is added.

        Args:
            statistic: a name of `STATISTICS`: avg, min, max, windowed_sum, windowed_count, rate, event_rate, cumulative_sum,
                cumulative_count.
            group: by convention ``stream-<scope>-metrics``.

        Raises:
            CallError: the statistic does not exist, or a metric of that group, name and tags exists already.

        Example:
            >>> import kstreams_repl as ks
            >>> metrics = ks.testing.MockProcessorContext().metrics()
            >>> sensor = metrics.add_sensor("lookup")
            >>> _ = sensor.add("price", "avg", group="prices")
        """
        if statistic not in STATISTICS:
            hint = did_you_mean(statistic, STATISTICS) or f"one of {', '.join(STATISTICS)}"
            raise CallError(f"sensor {self.name!r} has no statistic {statistic!r}", hint=hint)
        metric = _CustomMetric(_text(group), _text(name), tuple((_text(tag), _text(text)) for tag, text in (tags or {}).items()), statistic)
        key = (metric.group, metric.name, frozenset(metric.tags))
        if (group, name) in SPECS:
            raise CallError(f"metric {name!r} of group {group!r} is a built-in metric", hint="choose another name or group")
        if key in self._taken:
            other = self._taken[key]
            raise CallError(f"metric {name!r} of group {group!r} with these tags exists already in sensor {other!r}")
        self._taken[key] = self.name
        self._metrics.append(metric)
        return self

    def fold(self, registry: Registry, tags: Mapping[str, str], now: int) -> None:
        """Move the values recorded since the last call into the registry's statistics; called by the host.

        Args:
            registry: of the instance.
            tags: of the instance, added to those of each metric.
            now: milliseconds since 1970.

        Example:
            >>> from kstreams_repl.engine.metrics.custom import StreamsMetrics
            >>> from kstreams_repl.engine.metrics.metrics_registry import Registry
            >>> from kstreams_repl.engine.metrics.sensors import Window
            >>> metrics, registry = StreamsMetrics("INFO"), Registry("INFO", Window())
            >>> sensor = metrics.add_sensor("lookup").add("price-max", "max", group="prices")
            >>> sensor.record(2.5)
            >>> sensor.fold(registry, {}, 0)
            >>> registry.snapshot(0).groups[0][2]["price-max"]
            2.5
        """
        if not self.should_record:
            return
        for metric in self._metrics[len(self._bound) :]:
            made = STATISTICS[metric.statistic]
            self._bound.append(registry.shared(metric.group, {**tags, **dict(metric.tags)}, metric.name, made))
        tally = self._reader.take()
        if tally is not None:
            for statistic in self._bound:
                statistic.record(tally, now)


class StreamsMetrics:
    """The metrics of a processor's task, returned by `context.metrics()`.

    Sensors belong to the task: its processors get the same sensor for the same name. Tasks of one instance that add the same metric share
    its values, because their tags are equal, as in Kafka Streams; add a tag with `context.task_id` to tell them apart.

    Args:
        level: `metrics.recording.level`.

    Example:
        >>> metrics = StreamsMetrics("INFO")
        >>> sensor = metrics.add_latency_rate_total_sensor("lookup", "prices", "fetch")
        >>> sensor.record(12.5)
    """

    def __init__(self, level: str) -> None:
        self._level = level
        self._sensors: dict[str, CustomSensor] = {}
        self._taken: dict[tuple[object, ...], str] = {}
        self.read_all: Callable[[], Iterable[Metric]] = tuple
        """Set by the host: reads all metrics of the instance."""

    def metrics(self) -> list[Metric]:
        """Return all current metrics of the instance, built-in and custom: name, group, tags, value and the time of its measurement.

        In a deployed application recorded values are visible after a fraction of a second. Empty during `init` and until the task runs.

        Example:
            >>> import kstreams_repl as ks
            >>> metrics = ks.testing.MockProcessorContext().metrics()
            >>> metrics.metrics()
            []
        """
        return list(self.read_all())

    def add_sensor(self, name: str, level: str = INFO) -> CustomSensor:
        """Return a sensor without statistics, to which `CustomSensor.add` adds some, or the existing sensor of that name.

        Args:
            level: INFO, DEBUG or TRACE; the sensor records if `metrics.recording.level` is this level or finer.

        Raises:
            CallError: the level does not exist.

        Example:
            >>> import kstreams_repl as ks
            >>> metrics = ks.testing.MockProcessorContext().metrics()
            >>> sensor = metrics.add_sensor("lookup")
        """
        if level not in LEVELS:
            raise CallError(f"expected a recording level of {', '.join(LEVELS)}, got {level!r}")
        sensor = self._sensors.get(_text(name))
        if sensor is None:
            recorded = level_number(level) <= level_number(self._level)
            sensor = self._sensors[name] = CustomSensor(name, recorded=recorded, taken=self._taken)
        return sensor

    def add_rate_total_sensor(
        self, scope: str, entity: str, operation: str, level: str = INFO, *, tags: Mapping[str, str] | None = None
    ) -> CustomSensor:
        """Return a sensor with ``<operation>-rate`` (per second) and ``<operation>-total`` of the calls of `record`.

        Args:
            scope: the group is ``stream-<scope>-metrics``, and the tag ``<scope>-id`` contains the entity.
            entity: what is measured: the name of a node or a client.
            operation: the measured operation.
            level: INFO, DEBUG or TRACE, as for `add_sensor`.
            tags: additional tags.

        Example:
            >>> import kstreams_repl as ks
            >>> metrics = ks.testing.MockProcessorContext().metrics()
            >>> metrics.add_rate_total_sensor("lookup", "prices", "fetch").record()
        """
        return self._operation(scope, entity, operation, level, tags, {"rate": "event_rate", "total": "cumulative_count"})

    def add_latency_rate_total_sensor(
        self, scope: str, entity: str, operation: str, level: str = INFO, *, tags: Mapping[str, str] | None = None
    ) -> CustomSensor:
        """Return a sensor as `add_rate_total_sensor`, with ``<operation>-latency-avg`` and ``-latency-max`` of the recorded values, in
        their own unit.

        Example:
            >>> import kstreams_repl as ks
            >>> metrics = ks.testing.MockProcessorContext().metrics()
            >>> metrics.add_latency_rate_total_sensor("lookup", "prices", "fetch").record(12.5)
        """
        kinds = {"latency-avg": "avg", "latency-max": "max", "rate": "event_rate", "total": "cumulative_count"}
        return self._operation(scope, entity, operation, level, tags, kinds)

    def fold(self, registry: Registry, tags: Mapping[str, str], now: int) -> None:
        """Move the values recorded by all sensors into the registry; called by the host, which holds the registry's lock.

        Args:
            registry: of the instance.
            tags: of the instance, added to those of each metric.
            now: milliseconds since 1970.

        Example:
            >>> from kstreams_repl.engine.metrics.custom import StreamsMetrics
            >>> from kstreams_repl.engine.metrics.metrics_registry import Registry
            >>> from kstreams_repl.engine.metrics.sensors import Window
            >>> metrics, registry = StreamsMetrics("INFO"), Registry("INFO", Window())
            >>> sensor = metrics.add_sensor("lookup").add("price-max", "max", group="prices")
            >>> sensor.record(2.5)
            >>> metrics.fold(registry, {}, 0)
            >>> registry.snapshot(0).groups[0][2]["price-max"]
            2.5
        """
        for sensor in list(self._sensors.values()):
            sensor.fold(registry, tags, now)

    def _operation(
        self, scope: str, entity: str, operation: str, level: str, tags: Mapping[str, str] | None, kinds: Mapping[str, str]
    ) -> CustomSensor:
        all_tags = {f"{_text(scope)}-id": entity, **(tags or {})}
        full = ".".join(("external", scope, entity, operation, *(f"{tag}={text}" for tag, text in (tags or {}).items())))
        if full in self._sensors:
            return self._sensors[full]
        sensor = self.add_sensor(full, level)
        for suffix, statistic in kinds.items():
            sensor.add(f"{operation}-{suffix}", statistic, group=f"stream-{scope}-metrics", tags=all_tags)
        return sensor


def _text(word: object) -> str:
    if not isinstance(word, str) or not word:
        raise CallError(f"names, group and tags of a metric must be strings, got {word!r}")
    return word
