"""The slope of memory over time."""

from __future__ import annotations

import pytest

from workshop.bench.memory import MemorySample, per_minute, slope


def test_the_slope_of_points_on_a_line_is_that_of_the_line() -> None:
    assert slope([(0, 1.0), (2, 4.0), (4, 7.0)]) == pytest.approx(1.5)


def test_a_peak_that_goes_away_again_is_no_growth() -> None:
    assert slope([(0, 3.0), (1, 9.0), (2, 3.0)]) == pytest.approx(0.0)


@pytest.mark.parametrize("points", [[], [(1, 5.0)], [(1, 5.0), (1, 6.0)]])
def test_points_at_one_moment_have_no_slope(points: list[tuple[float, float]]) -> None:
    assert slope(points) == 0.0


def test_growth_is_told_in_megabytes_of_private_memory_per_minute() -> None:
    samples = [MemorySample(float(second), 0, second * 2**19) for second in range(120)]
    assert per_minute(samples) == 30.0
