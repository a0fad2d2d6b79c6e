"""How a task lets itself be measured: what it is compiled with when metrics are recorded in detail, and nothing when they are not.

`Meter` wraps nodes, stores and senders *while they are built*; a task without one has no trace of it on the record path.
"""

from __future__ import annotations

from typing import Any, Protocol

from kstreams_repl.operators.base import Process
from kstreams_repl.runtime.collector import RecordCollector
from kstreams_repl.topology.nodes import Node
from kstreams_repl.topology.stores import StoreBuilder


class Meter(Protocol):
    """Measures one task (`instance.task_meter`)."""

    def bind(self, services: Any) -> None:
        """Take the task's services (record context, clocks) before anything is built."""

    def entry(self, node: Node, entry: Process, *, terminal: bool) -> Process:
        """The node's entry, counted."""

    def output(self, node: Node, forward: Process) -> Process:
        """What the node forwards with, counted where that means something; else `forward` itself."""

    def store(self, builder: StoreBuilder, store: Any) -> None:
        """Count and time the store's calls, in place, before a node has seen it."""

    def collector(self, collector: RecordCollector) -> RecordCollector:
        """The collector, counting what is sent by topic."""
