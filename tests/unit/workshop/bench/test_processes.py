"""Processor time of measured processes."""

from __future__ import annotations

import time

import psutil

from workshop.bench.rig.processes import ProcessSampler


def test_processor_time_before_the_first_sample_is_not_counted() -> None:
    """A clock that starts before the second sample once counted what a process had used before as a negative time."""
    _use_processor(0.3)
    began = time.time()
    with ProcessSampler(lambda: [psutil.Process()]) as sampler:
        first = time.time()
        _use_processor(0.3)
    assert 0.2 <= sampler.cpu_between(began, time.time()) < _used()
    assert 0.1 <= sampler.cpu_between(first, time.time()) < _used()


def _used() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


def _use_processor(seconds: float) -> None:
    begun = time.thread_time()
    while time.thread_time() - begun < seconds:
        pass
