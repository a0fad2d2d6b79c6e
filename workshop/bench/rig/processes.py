"""Memory, files and processor time of the measured processes, sampled on a separate thread.

Memory is the sum of resident sets, so pages shared by forked workers count once per worker: an upper bound.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One sample: processor seconds used since the processes began, resident bytes, and the largest number of private bytes of a
    single process."""

    at: float
    cpu: float
    rss: int
    private: int


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all its living descendants."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def resident_and_private(processes: Iterable[psutil.Process]) -> tuple[int, int]:
    """Return the resident bytes of all processes, and the private ones among them: without file pages, such as a store's mapped
    ones."""
    resident = private = 0
    for process in processes:
        try:
            memory = process.memory_info()
        except psutil.Error:  # the process ended after it was listed
            continue
        resident += memory.rss
        private += memory.rss - getattr(memory, "shared", 0)
    return resident, private


def megabytes_in(directory: Path) -> float:
    """Return what the files below a directory occupy on the disk."""
    return round(sum(file.stat().st_blocks * 512 for file in directory.rglob("*") if file.is_file()) / 2**20, 1)


class Sampler(ABC):
    """Takes a sample every half second on its own thread, and one at the beginning and the end of its `with` block."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-sampler", daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._end.wait(_SECONDS):
            self._sample()

    @abstractmethod
    def _sample(self) -> None: ...


class ProcessSampler(Sampler):
    """Samples a changing set of processes while its `with` block runs.

    Args:
        processes: returns the processes to count now; the processor time of processes that ended stays counted.
    """

    def __init__(self, processes: Callable[[], Iterable[psutil.Process]]) -> None:
        super().__init__()
        self._processes = processes
        self._cpu: dict[int, float] = {}
        self._samples: list[ProcessSample] = []

    @property
    def peak_rss_mb(self) -> int:
        return round(max((sample.rss for sample in self._samples), default=0) / 2**20)

    @property
    def peak_private_mb(self) -> int:
        """Return the peak of private memory of a single process."""
        return round(max((sample.private for sample in self._samples), default=0) / 2**20)

    def cpu_between(self, start: float, end: float) -> float:
        """Return the processor seconds between two times (seconds since 1970), interpolated linearly between samples."""
        return round(self._cpu_at(end) - self._cpu_at(start), 2)

    def _cpu_at(self, moment: float) -> float:
        before = self._samples[0]
        for sample in self._samples:
            if sample.at >= moment:
                share = (moment - before.at) / (sample.at - before.at) if sample.at > before.at else 0.0
                return before.cpu + max(0.0, share) * (sample.cpu - before.cpu)
            before = sample
        return before.cpu

    def _sample(self) -> None:
        rss = private = 0
        for process in self._processes():
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    resident, own = resident_and_private([process])
            except psutil.Error:  # the process ended after it was listed
                continue
            rss, private = rss + resident, max(private, own)
            self._cpu[process.pid] = times.user + times.system
        self._samples.append(ProcessSample(time.time(), sum(self._cpu.values()), rss, private))
