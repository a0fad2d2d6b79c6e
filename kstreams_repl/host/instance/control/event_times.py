"""The event times that the instances of a generation report to each other, for alignment (`host.instance.polling.alignment`).

On one host: a row of numbers per slot in a file of the control directory, which costs microseconds. Across hosts: a field of the
reports in the journal, a few times a second.
"""

from __future__ import annotations

import json
import os
import struct
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kstreams_repl.host.instance.control.channel import ReportedTimes
from kstreams_repl.host.instance.control.journal_follower import Follower
from kstreams_repl.host.journal.journal_records import InstanceHeartbeat

FIELD = "event_times"
"""Name of the field in a report."""
class FileTimes:
    """`channel.PeerTimes` of instances on one host. A row: when it was reported (monotonic ns; 0: never), then a number per group.

    Args:
        slots: number of instances. groups: numbers in a row.
    """

    def __init__(self, path: Path, slot: int, slots: int, groups: int) -> None:
        self._row = struct.Struct(f"={groups + 1}q")
        self._slot, self._slots = slot, slots
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        weakref.finalize(self, os.close, self._file)

    def report(self, times: Sequence[int]) -> None:
        with suppress(OSError):  # a full disk: the others wait no longer than for an instance that has died
            os.pwrite(self._file, self._row.pack(time.monotonic_ns(), *times), self._slot * self._row.size)

    def others(self) -> list[ReportedTimes | None]:
        size = self._row.size
        content = os.pread(self._file, size * self._slots, 0).ljust(size * self._slots, b"\0")
        now = time.monotonic_ns()
        rows = (self._row.unpack_from(content, slot * size) for slot in range(self._slots) if slot != self._slot)
        return [(times, (now - at) / 1e9) if at else None for at, *times in rows]


class JournalTimes:
    """`channel.PeerTimes` of instances on several hosts.

    Attributes:
        reported: what the next report of this instance contains.
    """

    def __init__(self, follower: Follower, generation: int, slot: int, slots: int) -> None:
        self._follower = follower
        self._generation = generation
        self._others = [other for other in range(slots) if other != slot]
        self.reported: Sequence[int] | None = None
        self._read: dict[int, tuple[InstanceHeartbeat, Sequence[int] | None, float]] = {}

    def report(self, times: Sequence[int]) -> None:
        self.reported = list(times)

    def others(self) -> list[ReportedTimes | None]:
        now = time.monotonic()
        found: list[ReportedTimes | None] = []
        for slot in self._others:
            report = self._follower.state.reports.get(slot)
            if report is not None and report.generation == self._generation:
                if slot not in self._read or self._read[slot][0] is not report:
                    self._read[slot] = (report, _times_in(report), now)
            _, times, at = self._read.get(slot, (None, None, 0.0))
            found.append(None if times is None else (times, now - at))
        return found


def _times_in(report: InstanceHeartbeat) -> Sequence[int] | None:
    try:
        times = json.loads(report.figures or "{}").get(FIELD)
    except (ValueError, AttributeError):
        return None
    return times if isinstance(times, list) and all(isinstance(each, int) for each in times) else None
