"""Metrics in Prometheus' text exposition format, version 0.0.4.

A metric's name is its group and name with underscores, ``kafka_stream_thread_commit_total``; tags are labels. Metrics that only grow are
counters and end in ``_total``, the others are gauges and do not. A text (a version, a state) becomes a gauge of 1 with the text in the
label ``value``, as is the convention for such information.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isinf, isnan

from kstreams_repl.metrics.catalogue import description
from kstreams_repl.metrics.snapshot import Metric, Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NO_COUNTERS = ("remaining-records-total", "size-bytes-total")
"""Named totals in Kafka Streams, but they can also decrease."""
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


def prometheus_text(metrics: Iterable[Metric], labels: Mapping[str, str] | None = None) -> str:
    """Return the metrics as one page; metrics of one name are grouped below their HELP and TYPE lines.

    Args:
        labels: additional labels of every metric (the application's name).
    """
    families: dict[str, list[str]] = {}
    heads: dict[str, str] = {}
    for metric in metrics:
        name = metric_name(metric.group, metric.name)
        tags = {**(labels or {}), **metric.tags}
        value: Value = metric.value
        kind = "counter" if name.endswith("_total") and not metric.name.endswith(_NO_COUNTERS) else "gauge"
        if kind == "gauge":
            name = name.removesuffix("_total")
        if isinstance(value, str):
            name, tags, value = f"{name}_info", {**tags, "value": value}, 1
        if name not in families:
            heads[name] = f"# HELP {name} {_escaped_help(description(metric.group, metric.name))}\n# TYPE {name} {kind}\n"
        inside = ",".join(f'{_label(tag)}="{_escaped(text)}"' for tag, text in tags.items())
        families.setdefault(name, []).append(f"{name}{{{inside}}} {_number(value)}\n")
    return "".join(heads[name] + "".join(lines) for name, lines in sorted(families.items()))


def metric_name(group: str, name: str) -> str:
    """Return the Prometheus name: ``stream-thread-metrics``, ``commit-total`` -> ``kafka_stream_thread_commit_total``.

    Example:
        >>> metric_name("stream-task-metrics", "dropped-records-total")
        'kafka_stream_task_dropped_records_total'
    """
    return "kafka_" + _NOT_IN_A_NAME.sub("_", f"{group.removesuffix('-metrics')}_{name}")


def _label(tag: str) -> str:
    found = _NOT_IN_A_NAME.sub("_", tag)
    return f"_{found}" if found[:1].isdigit() else found


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
