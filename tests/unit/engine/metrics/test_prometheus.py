"""What is written for Prometheus can be read by the letter of its format, whatever names and texts are inside."""

from __future__ import annotations

import math
import re

import pytest

from kstreams_repl.engine.metrics.catalogue import SPECS, STATE_ID
from kstreams_repl.engine.metrics.metrics_snapshot import Metric, Value
from kstreams_repl.engine.metrics.prometheus import prometheus_text
from tests.unit.engine.metrics.contract import TAGS
from tests.unit.engine.metrics.dashboards import FACTS, selectors, without_data, without_meaning
from tests.unit.engine.metrics.prometheus_page import read_page

TASK, CLIENT = "stream-task-metrics", "stream-metrics"


def metric(name: str, value: Value, group: str = TASK, **tags: str) -> Metric:
    return Metric(name, group, {tag.replace("_", "-"): text for tag, text in tags.items()}, value, 1_700_000_000_000)


def test_a_total_is_a_counter_with_its_tags_as_labels() -> None:
    page = read_page(prometheus_text([metric("dropped-records-total", 7, thread_id="a-1", task_id="0_1")], {"application": "a"}))
    name, tags = "kafka_streams_stream_task_metrics_dropped_records", {"application": "a", "thread_id": "a-1", "task_id": "0_1"}
    assert page.types == {name: "gauge", f"{name}_total": "counter"}
    assert page.samples == [(name, tags, 7.0), (f"{name}_total", tags, 7.0)]


def test_a_total_does_not_take_the_name_of_another_metric() -> None:
    page = read_page(prometheus_text([metric("size-total", 7), metric("size", 1)]))
    assert [(name, value) for name, _, value in page.samples] == [
        ("kafka_streams_stream_task_metrics_size", 1.0), ("kafka_streams_stream_task_metrics_size_total", 7.0),
    ]  # fmt: skip


def test_what_is_called_a_total_and_shrinks_is_a_gauge_without_the_suffix() -> None:
    page = read_page(prometheus_text([metric("restore-remaining-records-total", 7, task_id="0_1")]))
    assert page.types == {"kafka_streams_stream_task_metrics_restore_remaining_records": "gauge"}


def test_lines_of_one_name_stand_together() -> None:
    mixed = [metric(name, 1, task_id=task) for task in ("0_0", "0_1") for name in ("repl-lag", "dropped-records-total")]
    assert [sample[0] for sample in read_page(prometheus_text(mixed)).samples] == [
        f"kafka_streams_stream_task_metrics_{name}"
        for name in ("dropped_records", "dropped_records_total", "repl_lag")
        for _ in range(2)
    ]


@pytest.mark.parametrize("text", ['a "quoted" name', "back\\slash", "two\nlines", "\\n", "ünïcode", "}{,="])
def test_any_text_comes_back_out_of_a_label(text: str) -> None:
    page = read_page(prometheus_text([metric("repl-lag", 1, processor_node_id=text)]))
    assert page.samples[0][1]["processor_node_id"] == text


def test_a_text_is_information_with_the_value_one() -> None:
    page = read_page(prometheus_text([metric("topology-description", 'line 1\nline "2"', CLIENT, client_id="a")]))
    assert page.samples == [
        ("kafka_streams_stream_metrics", {"client_id": "a", "topology_description": 'line 1\nline "2"'}, 1.0)
    ]


@pytest.mark.parametrize("value", [0, 1.5, -1, 10**15, 1e-9, 1e300, math.inf])
def test_numbers_come_back_out_as_they_were(value: float) -> None:
    assert read_page(prometheus_text([metric("repl-lag", value)])).samples[0][2] == value


def test_no_value_is_not_a_number() -> None:
    assert math.isnan(read_page(prometheus_text([metric("process-latency-avg", None)])).samples[0][2])


def test_public_dashboards_find_every_metric_that_exists_here() -> None:
    every = [
        Metric(spec.name, spec.group, {tag.replace(STATE_ID, f"lmdb-{STATE_ID}"): "x" for tag in TAGS[spec.group]},
               "x" if spec.unit == "text" else 1, 0)
        for spec in SPECS.values()
    ]  # fmt: skip
    empty = {metric for metric, _ in without_data(prometheus_text(every, {"application": "a"}))}
    assert len(selectors()) > 60
    assert empty == {metric for metric, _ in selectors() if without_meaning(metric)}


def test_names_of_micrometer_follow_by_the_rule_in_the_documentation() -> None:
    page = (FACTS.parents[2] / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rule = re.search("regex: '(.+)'", page)
    assert rule
    names = ("kafka_streams_stream_thread_metrics_process_rate", "kafka_streams_stream_metrics_alive_stream_threads")
    wanted = ["kafka_stream_thread_process_rate", "kafka_stream_alive_stream_threads"]
    assert [re.sub(rule[1], r"kafka_\1_\2", name) for name in names] == wanted


@pytest.mark.parametrize(("tag", "label"), [
    ("lmdb-state-id", "rocksdb_state_id"), ("lmdb-window-state-id", "rocksdb_window_state_id"),
    ("in-memory-state-id", "in_memory_state_id"), ("task-id", "task_id"),
])  # fmt: skip
def test_stores_on_disk_have_the_labels_that_legends_use(tag: str, label: str) -> None:
    page = read_page(prometheus_text([Metric("estimate-num-keys", "stream-state-metrics", {tag: "counts"}, 7, 0)]))
    assert page.samples == [("kafka_streams_stream_state_metrics_estimate_num_keys", {label: "counts"}, 7.0)]
