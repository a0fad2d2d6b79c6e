"""Counters of an instance outside its tasks: polls, commits, tasks created and closed. A few additions per round."""

from __future__ import annotations

import time

from kstreams_repl.metrics.counters import Counter


class InstanceCounters:
    """Seconds and numbers; written by the polling thread."""

    __slots__ = ("poll", "poll_records", "commit", "created", "closed", "started_ms")

    def __init__(self) -> None:
        self.poll = Counter()
        self.poll_records = Counter()
        self.commit = Counter()
        self.created = 0
        self.closed = 0
        self.started_ms = int(time.time() * 1000)

    def polled(self, seconds: float, records: int) -> None:
        """Count one poll."""
        self.poll.add(seconds)
        if records:
            self.poll_records.add(records)
