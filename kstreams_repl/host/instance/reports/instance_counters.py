"""Counters of an instance outside its tasks: polls, commits, records, tasks created and closed. A few additions per round."""

from __future__ import annotations

import time

from kstreams_repl.engine.metrics.counters import Counter


class InstanceCounters:
    """Seconds and numbers since the take-over; written by the polling thread.

    Attributes:
        first_at, committed_at: when it began to process its first records, and when it last committed any (seconds since 1970).
    """

    __slots__ = ("poll", "poll_records", "commit", "created", "closed", "started_ms", "records", "commits", "first_at", "committed_at")

    def __init__(self) -> None:
        self.poll = Counter()
        self.poll_records = Counter()
        self.commit = Counter()
        self.created = 0
        self.closed = 0
        self.started_ms = int(time.time() * 1000)
        self.records = 0
        self.commits = 0
        self.first_at: float | None = None
        self.committed_at: float | None = None

    def polled(self, seconds: float, records: int) -> None:
        """Count one poll."""
        self.poll.add(seconds)
        if records:
            self.poll_records.add(records)

    def committed(self, seconds: float) -> None:
        """Count one commit."""
        self.commit.add(seconds)
        self.commits += 1
        self.committed_at = time.time()
