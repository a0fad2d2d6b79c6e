"""Processor time by thread, and what a benchmark of more and more instances says about it."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

from workshop.bench.rig.report import render
from workshop.bench.rig.thread_times import PartTime, Thread, ThreadSampler, by_part, by_part_of_jvm, median_fields
from workshop.bench.scale import counts_up_to, partitions_for


def used(part: str, pid: int, name: str, cpu: float, queued: float = 0.0) -> tuple[Thread, PartTime]:
    return Thread(part, pid, int(cpu * 10) + pid * 1000, name), PartTime(cpu, queued)


def test_instances_are_doubled_up_to_the_processors() -> None:
    assert [counts_up_to(number) for number in (1, 2, 3, 16)] == [[1], [1, 2], [1, 2, 3], [1, 2, 4, 8, 16]]


@pytest.mark.parametrize(("counts", "partitions"), [([1], 4), ([1, 2], 4), ([3], 6), ([1, 2, 4, 8, 12], 24)])
def test_every_number_of_instances_shares_the_partitions_evenly(counts: list[int], partitions: int) -> None:
    assert partitions_for(counts) == partitions


def test_a_thread_that_works_is_found_with_its_time() -> None:
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            pass

    worker = threading.Thread(target=work)
    with ThreadSampler(lambda: {"workers": [psutil.Process()]}) as sampler:
        worker.start()
        began = time.time()
        time.sleep(0.8)
        until = time.time()
        ended.set()
        worker.join()
    busiest, found = max(sampler.between(began, until).items(), key=lambda item: item[1].cpu)
    assert busiest.tid == worker.native_id
    assert 0 < found.cpu <= 1.2  # little on a busy machine; a tick of the clock may be counted in full


def test_the_busiest_thread_of_each_worker_is_its_poll_loop() -> None:
    threads = dict(
        [
            used("workers", 1, "python", 5.0, 1.0), used("workers", 1, "python", 0.5), used("workers", 1, "rdk:broker1", 6.0),
            used("workers", 2, "python", 4.0), used("workers", 3, "python", 0.1), used("jvm", 4, "C2 Compiler", 2.0),
            used("driver", 5, "python", 0.4), used("broker", 6, "java", 3.0),
        ]
    )  # fmt: skip
    parts = by_part(threads, instances=2)
    assert parts["poll_loop"] == PartTime(9.0, 1.0)
    assert {name: round(time.cpu, 1) for name, time in parts.items() if name != "poll_loop"} == {
        "python": 0.6, "librdkafka": 6.0, "spark": 2.0, "driver": 0.4, "broker": 3.0,
    }  # fmt: skip


def test_threads_of_a_jvm_are_told_by_their_names() -> None:
    application = "peer-scale-q1-2-1"
    names = {
        application[:15]: 1.0, "peer-sc..read-1": 2.0, "GC Thread#0": 4.0, "G1 Conc#0": 8.0, "C2 CompilerThre": 16.0,
        "kafka-producer-": 32.0, "java": 64.0,
    }  # fmt: skip
    threads = dict(used("jvm", 1, name, cpu) for name, cpu in names.items()) | dict([used("broker", 2, "java", 128.0)])
    parts = {name: time.cpu for name, time in by_part_of_jvm(threads, application).items()}
    assert parts == {"stream_threads": 3.0, "gc": 12.0, "compiler": 16.0, "network": 32.0, "other": 64.0, "broker": 128.0}


def test_time_without_a_processor_is_taken_from_the_loops_of_all_instances() -> None:
    times = {"poll_loop": PartTime(6.0, 8.0), "broker": PartTime(3.0)}
    fields = median_fields([(times, 10.0)], "poll_loop", 2, 1000.0)
    assert fields == {"poll_loop_cores": 0.6, "broker_cores": 0.3, "busy_percent": 30, "queued_percent": 40, "without_queue": 1667}


def test_the_page_shows_both_systems_and_their_processors() -> None:
    common = {"bench": "scale", "unit": "records/s", "efficiency": 1.0, "queued_percent": 10, "busy_percent": 80, "without_queue": 220}
    page = render(
        [
            common | {"case": "q1, 1 instance", "value": 200, "poll_loop_cores": 0.8, "broker_cores": 0.3, "driver_cores": 0.01},
            common | {"case": "q1, 1 instance kafka-streams", "value": 100, "stream_threads_cores": 0.9},
            {"bench": "scale", "case": "q1, 1 instance ratio", "value": 2.0, "unit": "x", "ratio_without_queue": 1.8},
        ]
    )
    figures = "| q1, 1 instance | 200 / 100 | 2.00 | 1 / 1 | 80 / 80 | 10 / 10 | 220 / 220 | 1.8 |"
    assert f"{figures} poll loop 0.8, broker 0.3 / stream threads 0.9 |" in page
