"""What is written for Prometheus can be read by the letter of its format, whatever names and texts are inside."""

from __future__ import annotations

import math

import pytest

from kstreams_repl.metrics.prometheus import prometheus_text
from kstreams_repl.metrics.snapshot import Metric, Value
from tests.unit.metrics.prometheus_page import read_page

TASK, CLIENT = "stream-task-metrics", "stream-metrics"


def metric(name: str, value: Value, group: str = TASK, **tags: str) -> Metric:
    return Metric(name, group, {tag.replace("_", "-"): text for tag, text in tags.items()}, value, 1_700_000_000_000)


def test_a_total_is_a_counter_with_its_tags_as_labels() -> None:
    page = read_page(prometheus_text([metric("dropped-records-total", 7, thread_id="a-1", task_id="0_1")], {"application": "a"}))
    assert page.types == {"kafka_stream_task_dropped_records_total": "counter"}
    assert page.samples == [
        ("kafka_stream_task_dropped_records_total", {"application": "a", "thread_id": "a-1", "task_id": "0_1"}, 7.0)
    ]


def test_what_is_called_a_total_and_shrinks_is_a_gauge_without_the_suffix() -> None:
    page = read_page(prometheus_text([metric("restore-remaining-records-total", 7, task_id="0_1")]))
    assert page.types == {"kafka_stream_task_restore_remaining_records": "gauge"}


def test_lines_of_one_name_stand_together() -> None:
    mixed = [metric(name, 1, task_id=task) for task in ("0_0", "0_1") for name in ("repl-lag", "dropped-records-total")]
    assert [sample[0] for sample in read_page(prometheus_text(mixed)).samples] == [
        "kafka_stream_task_dropped_records_total", "kafka_stream_task_dropped_records_total",
        "kafka_stream_task_repl_lag", "kafka_stream_task_repl_lag",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ['a "quoted" name', "back\\slash", "two\nlines", "\\n", "ünïcode", "}{,="])
def test_any_text_comes_back_out_of_a_label(text: str) -> None:
    page = read_page(prometheus_text([metric("repl-lag", 1, processor_node_id=text)]))
    assert page.samples[0][1]["processor_node_id"] == text


def test_a_text_is_information_with_the_value_one() -> None:
    page = read_page(prometheus_text([metric("topology-description", 'line 1\nline "2"', CLIENT, client_id="a")]))
    assert page.samples == [("kafka_stream_topology_description_info", {"client_id": "a", "value": 'line 1\nline "2"'}, 1.0)]


@pytest.mark.parametrize("value", [0, 1.5, -1, 10**15, 1e-9, 1e300, math.inf])
def test_numbers_come_back_out_as_they_were(value: float) -> None:
    assert read_page(prometheus_text([metric("repl-lag", value)])).samples[0][2] == value


def test_no_value_is_not_a_number() -> None:
    assert math.isnan(read_page(prometheus_text([metric("process-latency-avg", None)])).samples[0][2])
