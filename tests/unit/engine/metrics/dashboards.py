"""What public dashboards of Kafka Streams ask Prometheus for, and what a page of ours answers.

tests/data/kafka_streams_dashboards.tsv has the selectors of Confluent's jmx-monitoring-stacks: dashboard, version of the JMX exporter,
metric, labels that selectors and legends use (`a|b`: one of them), aggregation. Labels that a scrape adds are left out.
"""

from __future__ import annotations

import csv
from math import isnan
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kstreams_repl.engine.metrics.prometheus import metric_name
from tests.unit.engine.metrics.contract import ABSENT

MISPRINTED = "kafka_streams_stream_state_metrics_put_if_absent_rate_rate"
"""Of ksqlDB cluster for exporter 0.x: no application has it; the version for 1.x asks for the right name."""
FACTS = Path(__file__).resolve().parents[3] / "data/kafka_streams_dashboards.tsv"


def selectors() -> dict[tuple[str, str], str]:
    """Return the dashboards that use it for each (metric, labels)."""
    found: dict[tuple[str, str], str] = {}
    with FACTS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            found.setdefault((row["metric"], row["labels"]), f"{row['dashboard']} for exporter {row['jmx_exporter']}")
    return found


def without_meaning(metric: str) -> bool:
    """Return whether docs/reference/metrics.md says why this metric does not exist, or nothing has this name."""
    return metric == MISPRINTED or metric in {metric_name(group, name) for group, name in ABSENT}


def without_data(text: str) -> set[tuple[str, str]]:
    """Return the selectors that find no number on a page."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (metric, labels)
        for metric, labels in selectors()
        if not any(
            sample.name == metric
            and not isnan(sample.value)
            and all(any(sample.labels.get(one) for one in wanted.split("|")) for wanted in labels.split(",") if wanted)
            for sample in samples
        )
    }
