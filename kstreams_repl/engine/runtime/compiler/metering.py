"""The interface for detailed metrics of a task, which is compiled with a `Meter` only if they are recorded.

A `Meter` wraps nodes, stores and senders *while they are built*; without one the record path does no extra work.
"""

from __future__ import annotations

from typing import Protocol

from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.runtime.nodes.collector import RecordCollector
from kstreams_repl.engine.topology.nodes import Node
from kstreams_repl.engine.topology.store_builder import StoreBuilder


class Meter(Protocol):
    """Measures one task (`host.instance.tasks.task_instrumentation`)."""

    def bind(self, services: object) -> None:
        """Set the task's services (record context, clocks); called before anything is built."""

    def entry(self, node: Node, entry: Process, *, terminal: bool) -> Process:
        """Return the node's entry, wrapped to count records."""

    def output(self, node: Node, forward: Process) -> Process:
        """Return the node's forward function, wrapped to count records where that is meaningful, otherwise `forward` itself."""

    def store(self, builder: StoreBuilder, store: object) -> None:
        """Count and time the store's calls, by changing it in place before any node gets it."""

    def collector(self, collector: RecordCollector) -> RecordCollector:
        """Return the collector, wrapped to count what is sent by topic."""
