"""What the benchmark of growing stores runs, and whether a store was kept over a kill, as it reads from the reports."""

from __future__ import annotations

import pytest

from kstreams_repl import serdes
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport, TaskReport
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.testing import TopologyTestDriver
from workshop.bench import state_growth
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.workloads import Topics
from workshop.bench.state_growth import COUNT, REKEYED, WINDOW, Shape, restored_of

MILLION = 1_000_000


def told(restored: int, tasks: int = 2) -> InstanceReport:
    of = {f"0_{number}": TaskReport(f"0_{number}", 0, 0, 0, 0) for number in range(tasks)}
    return InstanceReport(0, "running", 1, 1, restored=restored, tasks=of)


def test_stores_that_were_kept_restore_what_came_since_their_last_commit() -> None:
    assert restored_of({0: told(316), 1: told(0)}, 10 * MILLION, 100) == 316


def test_small_stores_may_restore_a_commit_of_every_key() -> None:
    assert restored_of({0: told(250), 1: told(250)}, 500, 100) == 500


def test_a_store_that_was_deleted_is_an_error() -> None:
    with pytest.raises(KStreamsError, match="instance 1 restored 6,000,000 records .* 5,000,000 keys .* deleted"):
        restored_of({0: told(0), 1: told(6 * MILLION)}, 10 * MILLION, 100)


def test_an_instance_answers_for_the_keys_of_its_own_tasks() -> None:
    with pytest.raises(KStreamsError, match="deleted"):
        restored_of({0: told(3 * MILLION, tasks=1)}, 10 * MILLION, 100)
    assert restored_of({0: told(3 * MILLION, tasks=4)}, 10 * MILLION, 100) == 3 * MILLION


@pytest.mark.parametrize("case", [COUNT, REKEYED, WINDOW])
def test_every_shape_counts_each_key_in_each_of_its_stores(case: str) -> None:
    shape = Shape(case, stores=2, nodes=3)
    with TopologyTestDriver(shape.topology(Topics("in", "", "out")), {"application.id": "growing"}) as driver:
        topic = driver.create_input_topic("in", serdes.bytes, serdes.bytes)
        for key, value, _ in shape.rows(4, 6):
            topic.pipe_input(key, value, 5)
        results = driver.create_output_topic("out", serdes.bytes, serdes.long).read_records()
    counts = {record.key: record.value for record in results}
    assert len(results) == 2 * 10 and len(counts) == 4 and sum(counts.values()) == 10


def test_what_is_rekeyed_is_counted_behind_its_repartition() -> None:
    committed = {"in-0": 9, "growing-counts-0-repartition-0": 4, "growing-counts-0-repartition-1": 3}
    task = TaskReport("1_0", 0, 0, 0, 0, {}, committed)
    report = ApplicationReport(1, {0: InstanceReport(0, "running", 1, 0, tasks={"1_0": task})})
    assert state_growth._repartitioned(report) == 7


def test_a_shape_is_named_by_what_is_unusual() -> None:
    assert Shape().named(Settings(), 1000) == "count, 1,000 keys"
    assert Shape(REKEYED, 2, 10, 16).named(Settings(cache_bytes=0)) == "rekeyed, record cache of 0 bytes, 2 stores, 10 nodes, 16 partitions"
