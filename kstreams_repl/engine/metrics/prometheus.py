"""Metrics in Prometheus' text exposition format, version 0.0.4.

Names and labels are those of the Prometheus JMX exporter with the rules of Confluent's monitoring stacks, for which public dashboards of
Kafka Streams are written: ``kafka_streams_stream_thread_metrics_process_rate``, tags are labels. A total has both spellings of that
exporter: ``_total`` (before 1.0, here a counter) and without the suffix (since then, a gauge). A text (a version, a state) is a gauge of
1 named as the group, with the text in a label named as the metric; so are the numbers of threads, with their value.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from math import isinf, isnan
from typing import NamedTuple

from kstreams_repl.engine.metrics.catalogue import CLIENT, description
from kstreams_repl.engine.metrics.metrics_snapshot import Metric, Value

_NO_COUNTERS = ("remaining-records-total", "size-bytes-total")
"""Named totals in Kafka Streams, but they can also decrease."""
_ALSO_LABELS = ("alive-stream-threads", "failed-stream-threads")
_ON_DISK = re.compile(r"lmdb-(window-|session-)?state-id")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


def prometheus_text(metrics: Iterable[Metric], labels: Mapping[str, str] | None = None) -> str:
    """Return the metrics as one page; metrics of one name are grouped below their HELP and TYPE lines.

    Args:
        labels: additional labels of every metric (the application's name).
    """
    return exposition(series_of(metrics, labels))


def series_of(metrics: Iterable[Metric], labels: Mapping[str, str] | None = None) -> list[Series]:
    """Return the metrics by their names and labels in Prometheus; see `prometheus_text`."""
    measured = tuple(metrics)
    taken = {metric_name(metric.group, metric.name) for metric in measured}
    series = []
    for metric in measured:
        value = 1 if isinstance(metric.value, str) else metric.value
        for name, kind, tags in _forms(metric, taken):
            text = metric.group if name == metric_name(metric.group) else description(metric.group, metric.name)
            series.append(Series(name, kind, text, {_label(tag): of for tag, of in {**(labels or {}), **tags}.items()}, value))
    return series


class Series(NamedTuple):
    """One number of a page, with the type and the help of its family."""

    name: str
    kind: str
    help: str
    labels: Mapping[str, str] | None
    value: Value


def exposition(series: Iterable[Series]) -> str:
    """Return a page: the series of one name below their HELP and TYPE lines."""
    families: dict[str, list[str]] = {}
    for one in series:
        lines = families.setdefault(one.name, [f"# HELP {one.name} {_escaped_help(one.help)}\n# TYPE {one.name} {one.kind}\n"])
        inside = ",".join(f'{label}="{_escaped(text)}"' for label, text in (one.labels or {}).items())
        labels = "" if one.labels is None else f"{{{inside}}}"
        lines.append(f"{one.name}{labels} {_number(one.value)}\n")
    return "".join("".join(lines) for _, lines in sorted(families.items()))


def _forms(metric: Metric, taken: Container[str]) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield name, type and tags of each series of a metric.

    Args:
        taken: names of other metrics, which a total without its suffix does not take.
    """
    name, short = metric_name(metric.group, metric.name), metric_name(metric.group, metric.name.removesuffix("-total"))
    if isinstance(metric.value, str) or (metric.group == CLIENT and metric.name in _ALSO_LABELS):
        yield metric_name(metric.group), "gauge", {**metric.tags, metric.name: str(metric.value)}
    if isinstance(metric.value, str):
        return
    if name.endswith("_total") and not metric.name.endswith(_NO_COUNTERS):
        yield name, "counter", metric.tags
    if name == short or short not in taken:
        yield short, "gauge", metric.tags


def metric_name(group: str, name: str = "") -> str:
    """Return the Prometheus name; without `name`, that of the group's texts.

    Example:
        >>> metric_name("stream-task-metrics", "dropped-records-total")
        'kafka_streams_stream_task_metrics_dropped_records_total'
    """
    return _NOT_IN_A_NAME.sub("_", f"kafka_streams_{group}_{name}" if name else f"kafka_streams_{group}")


def _label(tag: str) -> str:
    """Return the label of a tag. Dashboards name stores on disk by the labels of RocksDB's, Kafka Streams' default."""
    label = _NOT_IN_A_NAME.sub("_", f"rocksdb-{tag.removeprefix('lmdb-')}" if _ON_DISK.fullmatch(tag) else tag)
    return f"_{label}" if label[:1].isdigit() else label


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: Value) -> str:
    if value is None or isinstance(value, str) or isnan(value):
        return "NaN"
    if isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
