"""Predefined timestamp extractors: `stream("topic", timestamp_extractor=use_partition_time)`.

An extractor is a function `(record, partition_time) -> ms`; a negative result drops the record and counts it. Without an
extractor the record's own timestamp is used, and a negative one is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kstreams_repl.system.errors import StreamsProcessingError

Extractor = Callable[[Any, int], int]
Times = Callable[[list[int]], list[int]]


def _by_column(times: Times) -> Callable[[Extractor], Extractor]:
    """Say what an extractor makes of a column of records' own timestamps, as far as they are valid."""

    def mark(extractor: Extractor) -> Extractor:
        extractor.column_times = times  # type: ignore[attr-defined]
        return extractor

    return mark


def _now(timestamps: list[int]) -> list[int]:
    return [wall_clock_timestamp(None, -1)] * len(timestamps)


@_by_column(list)
def fail_on_invalid_timestamp(record: Any, partition_time: int) -> int:
    """Return the record's own timestamp.

    Raises:
        StreamsProcessingError: the timestamp is negative.
    """
    timestamp: int = record.timestamp
    if timestamp < 0:
        raise StreamsProcessingError(
            f"a record's timestamp must be >= 0, got {timestamp}",
            hint="use another timestamp_extractor, for example log_and_skip_on_invalid_timestamp",
        )
    return timestamp


@_by_column(list)
def log_and_skip_on_invalid_timestamp(record: Any, partition_time: int) -> int:
    """Return the record's own timestamp; records with a negative one are dropped and counted."""
    return int(record.timestamp)


@_by_column(list)
def use_partition_time_on_invalid_timestamp(record: Any, partition_time: int) -> int:
    """Return the record's own timestamp, or the partition time instead of a negative one.

    Raises:
        StreamsProcessingError: the partition time is not known yet.
    """
    if record.timestamp >= 0:
        return int(record.timestamp)
    if partition_time < 0:
        raise StreamsProcessingError(
            "the first record of a partition has no valid timestamp, so there is no partition time to use",
            hint="use another timestamp_extractor for this topic",
        )
    return partition_time


@_by_column(_now)
def wall_clock_timestamp(record: object, partition_time: int) -> int:
    """Return the time at which the record is read."""
    return int(datetime.now(UTC).timestamp() * 1000)
