"""Workloads and their records."""

from __future__ import annotations

import pytest

from kstreams_repl import serdes
from kstreams_repl.testing import TopologyTestDriver
from workshop.bench.restore import changelog_rows
from workshop.bench.rig import workloads
from workshop.bench.rig.workloads import Topics
from workshop.bench.state_growth import grown_rows


def test_records_are_the_same_in_a_list_and_one_by_one() -> None:
    assert workloads.input_rows(50, 7) == list(workloads.stream_rows(50, 7))


def test_growing_state_holds_every_key_before_any_is_seen_again() -> None:
    rows = list(grown_rows(20, 10))
    assert len(rows) == 30
    assert len({key for key, _, _ in rows[:20]}) == 20
    assert {key for key, _, _ in rows[20:]} <= {key for key, _, _ in rows[:20]}


def test_changelog_rows_are_counts_that_the_store_reads() -> None:
    assert [serdes.long.deserialize(value) for _, value, _ in changelog_rows(3, 2)] == [1, 2, 3]


@pytest.mark.parametrize("workload", list(workloads.WORKLOADS))
def test_workload_runs_over_topics_of_other_names(workload: str) -> None:
    topics = Topics("in", "users", "out")
    with TopologyTestDriver(workloads.topology(workload, topics)) as driver:
        if workload == "join":
            table = driver.create_input_topic("users", serdes.bytes, serdes.bytes)
            for key, value, timestamp in workloads.table_rows(5):
                table.pipe_input(key, value, timestamp)
        stream = driver.create_input_topic("in", serdes.bytes, serdes.bytes)
        for key, value, timestamp in workloads.input_rows(600, 5):
            stream.pipe_input(key, value, timestamp)
        out = driver.create_output_topic("out", serdes.bytes, serdes.bytes)
        assert len(out.read_records()) == (99 if workload == "stateless" else 600)
