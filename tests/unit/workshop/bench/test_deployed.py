"""From reports to rates."""

from __future__ import annotations

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport, TaskReport
from workshop.bench.rig.deployed import MeasuredRun, Settings, commit_time_of, committed_of, stream_began


def measured(*looks: tuple[float, int], began: float = 10.0) -> MeasuredRun:
    at, records = looks[-1]
    return MeasuredRun(records, began, at, 0.0, 0.0, 0, 0, looks)


def test_rate_is_records_over_first_processed_to_last_committed() -> None:
    run = measured((9.0, 0), (12.0, 100), (14.0, 400))
    assert run.seconds == 4.0
    assert run.rate == 100.0


def test_moment_of_a_count_lies_on_the_line_between_two_looks() -> None:
    run = measured((9.0, 0), (12.0, 100), (14.0, 300))
    assert run.time_of(200) == 13.0
    assert run.time_of(50) == 11.0
    assert run.time_of(300) == 14.0


def test_stream_begins_where_its_line_meets_zero_but_not_before_it_was_seen_idle() -> None:
    assert stream_began([(10.0, 0), (12.0, 100), (13.0, 200)], 5.0) == 11.0
    assert stream_began([(11.5, 0), (12.0, 100), (13.0, 200)], 5.0) == 11.5


def test_stream_seen_once_begins_with_the_first_record_of_all() -> None:
    assert stream_began([(10.0, 0), (12.0, 100)], 9.0) == 9.0


def test_committed_counts_one_topic_over_all_tasks() -> None:
    def task(name: str, **committed: int) -> TaskReport:
        return TaskReport(name, 0, 0, 0, 0, {}, {at.replace("_", "-"): offset for at, offset in committed.items()})

    tasks = {"0_0": task("0_0", in_0=5, table_0=9), "0_1": task("0_1", in_1=6, in_table_1=3)}
    told = ApplicationReport(1, {0: InstanceReport(0, "running", 1, 0, tasks=tasks)})
    assert committed_of(told, "in") == 11


def instances(*told: tuple[int, float | None]) -> ApplicationReport:
    reports = {slot: InstanceReport(slot, "running", 1, at_ms, committed_at=at) for slot, (at_ms, at) in enumerate(told)}
    return ApplicationReport(1, reports)


def test_a_look_is_of_the_last_commit_and_before_any_of_the_oldest_word() -> None:
    assert commit_time_of(instances((9000, 8.5), (9500, 8.7))) == 8.7
    assert commit_time_of(instances((9000, None), (9500, None))) == 9.0


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_settings_are_keys_that_an_application_knows(guarantee: str) -> None:
    config = StreamsConfig(Settings(guarantee, instances=3, commit_ms=50).config())
    assert config["processing.guarantee"] == guarantee
    assert config["num.stream.threads"] == 3
    assert config["commit.interval.ms"] == 50
