"""Processor time by thread, from /proc: what the interpreter's thread, the Kafka client's threads, a JVM's stream threads, its collector
and its compiler use, and for how long a thread waited for a processor although it could have run. Linux only; elsewhere all is 0.

A thread is told by its name: librdkafka's begin with `rdk:`, a JVM's with what it is for or, a stream thread's, with the application's id.
Python's threads have no names of their own; the busiest of a worker runs the poll loop.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from workshop.bench.rig.processes import Sampler

POLL_LOOP, STREAM_THREADS, BROKER = "poll_loop", "stream_threads", "broker"
_TICKS = os.sysconf("SC_CLK_TCK")
_NAME_LENGTH = 15
_JVM_PARTS: Mapping[str, tuple[str, ...]] = {
    "gc": ("GC Thread", "G1 ", "VM Thread"),
    "compiler": ("C1 Compiler", "C2 Compiler", "Sweeper"),
    "network": ("kafka-producer-", "kafka-coordinat", "kafka-admin-cli", "consumer_backgr"),
}


@dataclass(frozen=True, slots=True)
class PartTime:
    """Processor seconds of a part, and the seconds for which its threads waited for a processor."""

    cpu: float = 0.0
    queued: float = 0.0

    def __add__(self, other: PartTime) -> PartTime:
        return PartTime(self.cpu + other.cpu, self.queued + other.queued)

    def __sub__(self, other: PartTime) -> PartTime:
        return PartTime(self.cpu - other.cpu, self.queued - other.queued)


PartTimes = Mapping[str, PartTime]


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread: the part that its process belongs to, its process, its id and its name."""

    part: str
    pid: int
    tid: int
    name: str


class ThreadSampler(Sampler):
    """Samples the threads of a changing set of processes while its `with` block runs.

    Args:
        parts: returns the processes to count now, by part.
    """

    def __init__(self, parts: Callable[[], Mapping[str, Iterable[psutil.Process]]]) -> None:
        super().__init__()
        self._parts = parts
        self._latest: dict[Thread, PartTime] = {}
        self._samples: list[tuple[float, dict[Thread, PartTime]]] = []

    def between(self, start: float, end: float) -> dict[Thread, PartTime]:
        """Return the time of each thread between two times (seconds since 1970), interpolated linearly between samples."""
        before, after = self._at(start), self._at(end)
        return {thread: used - before.get(thread, PartTime()) for thread, used in after.items()}

    def _at(self, moment: float) -> dict[Thread, PartTime]:
        at, found = self._samples[0]
        for later, sample in self._samples:
            if later >= moment:
                share = max(0.0, (moment - at) / (later - at)) if later > at else 0.0
                return {thread: _between(found.get(thread, PartTime()), used, share) for thread, used in sample.items()}
            at, found = later, sample
        return found

    def _sample(self) -> None:
        for part, processes in self._parts().items():
            for process in processes:
                with suppress(OSError):  # the process ended after it was listed
                    for task in Path(f"/proc/{process.pid}/task").iterdir():
                        with suppress(OSError):
                            name, used = _read(task)
                            self._latest[Thread(part, process.pid, int(task.name), name)] = used
        self._samples.append((time.time(), dict(self._latest)))


def _between(before: PartTime, after: PartTime, share: float) -> PartTime:
    return PartTime(before.cpu + share * (after.cpu - before.cpu), before.queued + share * (after.queued - before.queued))


def _read(task: Path) -> tuple[str, PartTime]:
    name, _, fields = task.joinpath("stat").read_text(encoding="utf-8", errors="replace").partition("(")[2].rpartition(")")
    user, system = fields.split()[11:13]
    queued = task.joinpath("schedstat").read_text(encoding="ascii").split()[1]
    return name, PartTime((int(user) + int(system)) / _TICKS, int(queued) / 1e9)


def by_part(threads: Mapping[Thread, PartTime], instances: int) -> dict[str, PartTime]:
    """Return our time by part: the poll loops and the other threads of the interpreter, librdkafka, the driver, Spark's JVM, the broker."""
    found: defaultdict[str, PartTime] = defaultdict(PartTime)
    busiest: dict[int, Thread] = {}
    for thread, used in threads.items():
        if thread.part != "workers" or thread.name.startswith("rdk:"):
            continue
        if thread.pid not in busiest or threads[busiest[thread.pid]].cpu < used.cpu:
            busiest[thread.pid] = thread
    loops = sorted(busiest.values(), key=lambda thread: threads[thread].cpu, reverse=True)[:instances]
    for thread, used in threads.items():
        part = {"workers": "python", "jvm": "spark"}.get(thread.part, thread.part)
        if thread in loops:
            part = POLL_LOOP
        elif thread.part == "workers" and thread.name.startswith("rdk:"):
            part = "librdkafka"
        found[part] += used
    return dict(found)


def by_part_of_jvm(threads: Mapping[Thread, PartTime], application: str) -> dict[str, PartTime]:
    """Return Kafka Streams' time by part: stream threads, collector, compiler, network threads, the rest, the broker.

    Args:
        application: its id, with which the names of its stream threads begin.
    """
    found: defaultdict[str, PartTime] = defaultdict(PartTime)
    for thread, used in threads.items():
        found[thread.part if thread.part == BROKER else _part_of_jvm(thread.name, application)] += used
    return dict(found)


def _part_of_jvm(name: str, application: str) -> str:
    for part, names in _JVM_PARTS.items():
        if name.startswith(names):
            return part
    begins = name.split("..", maxsplit=1)[0]  # a newer JVM keeps the beginning and the end of a long name
    return STREAM_THREADS if begins and application[:_NAME_LENGTH].startswith(begins) else "other"


def median_fields(runs: Sequence[tuple[PartTimes, float]], loops: str, count: int, rate: float) -> dict[str, float]:
    """Return the fields of a line: the processors that each part kept busy on average of the runs, and what held its loops back.

    Args:
        runs: times by part, and the seconds of the run.
        loops: the part whose threads process the records. count: number of those threads.
        rate: records per second.
    """
    seconds = sum(lasted for _, lasted in runs)
    names = dict.fromkeys(name for times, _ in runs for name in times)
    total = {name: sum((times.get(name, PartTime()) for times, _ in runs), PartTime()) for name in names}
    fields = {f"{name}_cores": round(used.cpu / seconds, 2) for name, used in total.items()}
    held = total.get(loops, PartTime())
    queued = min(0.99, held.queued / (seconds * count))
    return fields | {
        "busy_percent": round(100 * held.cpu / (seconds * count)),
        "queued_percent": round(100 * queued),
        "without_queue": round(rate / (1 - queued)),
    }
