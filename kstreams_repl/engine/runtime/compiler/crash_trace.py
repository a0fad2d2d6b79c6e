"""Record which node and record a task is processing, step by step, so that a process that dies in user code leaves its location behind.

A task with a `Trace` reports every step into user code: a source about to decode a record, a node's entry, a punctuation, a store
flush. That costs microseconds per record and node, so a task is traced only after its process has died once
(`host.instance.failures.crash_watchdog`); without a trace the record path does no extra work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.system.types import Headers


class Trace(Protocol):
    """Receives the location of one task."""

    def at(self, node: str | None, topic: str | None, partition: int, offset: int) -> None:
        """Record that the node processes this record. Topic None: no record (a punctuation, a flush). Node None: user code has returned."""


def traced(trace: Trace, node: str, entry: Process, record: RecordContext, work: list[str | None]) -> Process:
    """Return the node's entry, which reports its location, and that of its caller again when it returns.

    Args:
        work: a list with one item, shared by the nodes of a task: the node being processed.
    """
    note = trace.at

    def entry_with_location(key: object, value: object, timestamp: int, headers: Headers) -> None:
        [caller] = work
        work[0] = node
        note(node, record.topic, record.partition, record.offset)
        entry(key, value, timestamp, headers)
        work[0] = caller
        note(caller, record.topic, record.partition, record.offset)

    return entry_with_location


def traced_rows(trace: Trace, node: str, topic: str, partition: int, rows: Iterable[Any]) -> Iterator[Any]:
    """Iterate over a queue's rows, reporting each location before the row is decoded. A row is a `record_queue.Row`."""
    for row in rows:
        trace.at(node, topic, partition, row[5])
        yield row
