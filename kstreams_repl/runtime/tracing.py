"""How a task tells where it is at work, step by step, so that a process that dies in user code leaves the place behind.

A task with a `Trace` writes one before every step into user code: a source that is about to read a record, a node's entry, a punctuation,
a store that is flushed. It costs microseconds per record and node, so a task has one only after its process has died once
(`instance.crash_watch`); without one there is no trace of it on the record path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from kstreams_repl.operators.base import Process
from kstreams_repl.runtime.record_context import RecordContext


class Trace(Protocol):
    """Takes the place of one task."""

    def at(self, node: str | None, topic: str | None, partition: int, offset: int) -> None:
        """The node is at work on that record; no topic: on none (a punctuation, a flush). No node: user code is left."""


def traced(trace: Trace, node: str, entry: Process, record: RecordContext, work: list[str | None]) -> Process:
    """The node's entry, telling its place; and that of its caller again when it returns.

    Args:
        work: one cell, shared by the nodes of a task: which of them is at work.
    """
    at = trace.at

    def entry_with_place(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        [caller] = work
        work[0] = node
        at(node, record.topic, record.partition, record.offset)
        entry(key, value, timestamp, headers)
        work[0] = caller
        at(caller, record.topic, record.partition, record.offset)

    return entry_with_place


def traced_rows(trace: Trace, node: str, topic: str, partition: int, rows: Iterable[Any]) -> Iterator[Any]:
    """A queue's rows: each tells its place when it is about to be decoded. A row is `record_queue._Row`."""
    for row in rows:
        trace.at(node, topic, partition, row[5])
        yield row
