"""The history of the alignment benchmark: in order in each partition, in the shapes that it names."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kstreams_repl.testing import TopologyTestDriver
from workshop.bench.alignment import SHAPES, main, times_of, topology
from workshop.bench.rig.workloads import Topics

DAY = 86_400_000


@pytest.mark.parametrize("shape", SHAPES)
def test_every_partition_is_in_order(shape: str) -> None:
    times = times_of(shape, 4, 4_000)
    assert all(stamps == sorted(stamps) for stamps in times)
    assert 3_000 <= sum(map(len, times)) <= 4_000


def test_the_shapes_are_what_they_are_called() -> None:
    skewed, empty, gap = (times_of(shape, 4, 13_000) for shape in ("skewed", "empty", "gap"))
    assert [len(stamps) for stamps in skewed] == [10_000, 1_000, 1_000, 1_000]
    assert [bool(stamps) for stamps in empty] == [True, False, True, True]
    assert max(later - earlier for earlier, later in zip(gap[1], gap[1][1:], strict=False)) > DAY


def test_its_windows_have_no_grace() -> None:
    driver = TopologyTestDriver(topology(Topics("in", output="out"), 0, 3_600_000), {})
    values = driver.create_input_topic("in", "string", "string")
    values.pipe_records([("k", "g", 1), ("k", "g", 3_600_000), ("k", "g", 2)])
    assert driver.dropped == 1
    driver.close()


def test_a_peer_that_counts_by_the_hour_is_not_compared_with_other_windows() -> None:
    done = CliRunner().invoke(main, ["--peer", "kafka-streams", "--window", "60000"])
    assert done.exit_code == 2 and "the peer counts by the hour" in done.output
