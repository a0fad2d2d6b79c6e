"""The criterion for a load that is held."""

from __future__ import annotations

import pytest

from kstreams_repl.system.types import TopicPartition
from workshop.bench.lag_trend import LagTrend, lag_of

PARTITIONS = [TopicPartition("in", number) for number in range(2)]


def trend(growth: float, *, load: int = 10_000, reached: int = 10_000) -> LagTrend:
    return LagTrend(load, reached, [(second, 1000 + round(growth * second) + 300 * (second % 2)) for second in range(60)])


@pytest.mark.parametrize(("growth", "held"), [(0, True), (90, True), (110, False), (5_000, False), (-200, True)])
def test_a_load_is_held_if_less_than_a_percent_of_it_is_left_behind(growth: float, held: bool) -> None:
    assert trend(growth).slope == pytest.approx(growth, abs=1)
    assert trend(growth).held is held


def test_the_bound_grows_with_the_load() -> None:
    assert trend(110, load=12_000, reached=12_000).held is True
    assert trend(110, load=12_000).threshold == 120


@pytest.mark.parametrize("growth", [0, 5_000])
def test_of_a_load_that_the_producer_did_not_reach_nothing_is_said(growth: float) -> None:
    assert trend(growth, reached=9_700).held is None
    assert trend(growth, reached=9_900).held is not None


def test_one_sample_is_no_trend() -> None:
    assert LagTrend(1000, 1000, [(0, 5)]).held is None


def test_a_partition_without_a_commit_counts_with_all_its_records() -> None:
    ends = {PARTITIONS[0]: 10, PARTITIONS[1]: 7}
    assert lag_of(ends, {}) == 17
    assert lag_of(ends, {PARTITIONS[0]: 4, PARTITIONS[1]: 7}) == 6


def test_a_commit_behind_the_last_record_is_no_negative_lag() -> None:
    assert lag_of({PARTITIONS[0]: 10, PARTITIONS[1]: 7}, {PARTITIONS[0]: 12, PARTITIONS[1]: 5}) == 2
