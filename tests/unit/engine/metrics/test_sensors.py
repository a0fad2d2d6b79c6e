"""Windowed statistics give what Kafka's give for the same events at the same times."""

from __future__ import annotations

import math

import pytest

from kstreams_repl.engine.metrics.counters import Counter, Reader, Steps
from kstreams_repl.engine.metrics.sensors import Avg, Count, Max, Min, Rate, Sampled, Sensor, Sum, Tally, Total, Window

WINDOW = Window(samples=2, length_ms=1000)


def fed(statistic: Sampled, *events: tuple[int, float]) -> Sampled:
    for now, value in events:
        statistic.record(Tally.of([value]), now)
    return statistic


def test_values_inside_the_window_are_all_counted() -> None:
    assert fed(Sum(WINDOW), (0, 1.0), (500, 2.0), (1500, 4.0)).measure(1500) == 7.0


def test_a_sample_is_forgotten_when_its_last_event_has_left_the_window() -> None:
    statistic = fed(Sum(WINDOW), (0, 1.0), (1500, 4.0))
    assert statistic.measure(1999) == 5.0
    assert statistic.measure(2000) == 4.0
    assert statistic.measure(3500) == 0.0


def test_a_sample_that_overlaps_the_edge_of_the_window_still_counts() -> None:
    """Kafka keeps one sample more than it is told, so that the oldest is not cut."""
    assert fed(Sum(WINDOW), (0, 1.0), (999, 2.0), (1000, 4.0), (2000, 8.0)).measure(2500) == 15.0


def test_samples_are_used_again_in_turn() -> None:
    statistic = fed(Sum(WINDOW), *((1000 * second, 1.0) for second in range(10)))
    assert statistic.measure(9000) == 2.0


def test_avg_of_tallies_weighs_by_their_counts() -> None:
    statistic = Avg(WINDOW)
    statistic.record(Tally(count=3, total=30.0, low=5.0, high=20.0), 0)
    statistic.record(Tally.of([2.0]), 10)
    assert statistic.measure(20) == 8.0


def test_min_and_max_are_the_extremes_of_the_window_only() -> None:
    events = ((0, 50.0), (100, -3.0), (2500, 7.0), (2600, 6.0))
    assert fed(Max(WINDOW), *events).measure(2600) == 7.0
    assert fed(Min(WINDOW), *events).measure(2600) == 6.0


@pytest.mark.parametrize("kind", [Avg, Min, Max])
def test_without_an_event_in_the_window_there_is_no_figure(kind: type[Sampled]) -> None:
    statistic = kind(WINDOW)
    assert math.isnan(statistic.measure(0))
    assert math.isnan(fed(statistic, (0, 1.0)).measure(2000))


def test_rate_of_a_young_sensor_divides_by_all_windows_but_one() -> None:
    """As Kafka's: 10 events in the first 100 ms are not 100 a second."""
    rate = Rate(Count(Window(samples=2, length_ms=1000)))
    for now in range(0, 100, 10):
        rate.record(Tally.of([1.0]), now)
    assert rate.measure(100) == pytest.approx(10 / 1.1)


def test_rate_of_a_full_window_divides_by_the_time_since_its_oldest_sample() -> None:
    rate = Rate(Sum(WINDOW))
    rate.record(Tally.of([300.0]), 0)
    rate.record(Tally.of([300.0]), 1000)
    assert rate.measure(1500) == pytest.approx(600 / 1.5)


def test_rate_falls_to_nothing_when_nothing_happens() -> None:
    rate = Rate(Count(WINDOW))
    rate.record(Tally.of([1.0] * 5), 0)
    assert rate.measure(5000) == 0.0


def test_totals_never_forget() -> None:
    events, values = Total(events=True), Total()
    for now in (0, 10_000, 1_000_000):
        for total in (events, values):
            total.record(Tally.of([2.0, 3.0]), now)
    assert (events.measure(2_000_000), values.measure(2_000_000)) == (6, 15.0)


def test_a_sensor_feeds_all_its_statistics() -> None:
    sensor = Sensor(WINDOW).rate_and_total("process").avg_min_max("latency")
    sensor.record(Tally(count=4, total=10.0, low=1.0, high=4.0), 0)
    sensor.record(Tally(count=0, total=0.0, low=0.0, high=0.0), 1)
    measured = {name: statistic.measure(1000) for name, statistic in sensor.statistics.items()}
    assert measured == {"process-rate": 4.0, "process-total": 4, "latency-avg": 2.5, "latency-min": 1.0, "latency-max": 4.0}


def test_a_reader_sees_each_event_once() -> None:
    counter = Counter()
    reader = Reader(counter)
    assert reader.take() is None
    counter.add(3.0)
    counter.add(1.0)
    assert reader.take() == Tally(2, 4.0, 1.0, 3.0)
    assert reader.take() is None
    counter.add_many(10, 20.0)
    assert reader.take() == Tally(10, 20.0, 2.0, 2.0)


def test_steps_are_the_growth_of_a_number() -> None:
    steps = Steps()
    assert [steps.take(number) for number in (0, 5, 5, 7)] == [None, Tally(5, 5, 1, 1), None, Tally(2, 2, 1, 1)]


def test_an_event_that_is_being_counted_has_no_infinite_extremes() -> None:
    """The writer is another thread: it may have counted an event and not come to its extremes."""
    counter = Counter()
    reader, largest, smallest = Reader(counter), Max(Window()), Min(Window())
    counter.count, counter.total = 2, 6.0
    tally = reader.take()
    assert tally is not None
    for statistic in (largest, smallest):
        statistic.record(tally, 0)
        assert statistic.measure(0) == 3.0
