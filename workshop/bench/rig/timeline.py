"""Where the time of a record goes: when it passes each step of its instance's loop and commit, and of a bare client's transaction.

`Stamps` is the function of a topology: in the worker's process it notes the time at the failpoints between the steps. All processes of
a machine share the clock.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kstreams_repl.engine.commit import failpoints

_POINTS = {"F1": "polled", "F3": "commit begun", "F4": "acknowledged", "F5": "offsets added", "F7": "committed"}
STEPS = ("sent", "polled", "processed", "commit begun", "acknowledged", "offsets added", "committed", "read")
"""In order: sent by the caller, taken from our consumer, given to the function, all output with the client, ...; *read*: at the reader of
committed output. A reader may have a record before the commit's answer has arrived."""

Times = dict[str, int]


class Stamps:
    """Passes values on, which are the times at which they were sent, and writes to a file when one passed which step.

    Args:
        directory: for the files, one per process.
        every: write this share of the records, chosen by the time at which they were sent.
    """

    def __init__(self, directory: Path, every: int = 1) -> None:
        self._directory = str(directory)
        self._every = every
        self._times: Times = {}
        self._open: list[tuple[int, int, int]] = []
        self._hooked = False

    def __call__(self, value: bytes) -> bytes:
        if not self._hooked:
            self._hook()
        sent = int(value)
        if sent % self._every == 0:
            now = time.perf_counter_ns()
            self._open.append((sent, self._times.get("polled", now), now))
        return value

    def _hook(self) -> None:
        self._hooked = True
        for point, step in _POINTS.items():
            failpoints.hook(point, self._at(step))
        failpoints.hook("F8", self._write)

    def _at(self, step: str) -> Any:
        def note() -> None:
            self._times[step] = time.perf_counter_ns()

        return note

    def _write(self) -> None:
        later = [self._times.get(step, 0) for step in STEPS[3:-1]]
        with open(f"{self._directory}/{os.getpid()}", "a", encoding="ascii") as file:
            file.writelines(" ".join(map(str, (*row, *later))) + "\n" for row in self._open)
        self._open.clear()


def read_stamps(directory: Path, read: Mapping[int, int]) -> list[Times]:
    """Return the times of the records in the files of a directory.

    Args:
        read: when each record arrived, by the time at which it was sent.
    """
    rows = [list(map(int, line.split())) for file in directory.iterdir() for line in file.read_text(encoding="ascii").splitlines()]
    return [dict(zip(STEPS, (*row, read[row[0]]), strict=True)) for row in rows if row[0] in read]


def slowest(records: Sequence[Times], share: float = 0.01) -> Sequence[Times]:
    """Return the slowest records, at least one."""
    ordered = sorted(records, key=lambda times: times["read"] - times["sent"])
    return ordered[-max(1, int(share * len(ordered))) :]


def medians(records: Iterable[Times], steps: Sequence[str] = STEPS) -> dict[str, float]:
    """Return the median of each step in ms, from the step before; a step that did not happen is left out."""
    found: dict[str, list[float]] = {step: [] for step in steps[1:]}
    for times in records:
        happened = [step for step in steps if times.get(step)]
        for before, step in zip(happened, happened[1:], strict=False):
            found[step].append((times[step] - times[before]) / 1e6)
    return {step: round(statistics.median(taken), 2) for step, taken in found.items() if taken}
