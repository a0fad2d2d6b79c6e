"""Which event time makes a record late: what an operator needs so that records from several partitions lose none.

Each partition may be in order and their mixture is not. A record with timestamp t is lost if the operator has received one at or
beyond `Lateness.of(t)` before; `host.instance.polling.alignment` mixes partitions so that this does not happen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kstreams_repl.engine.topology.nodes import Node, ProcessorNode


@dataclass(frozen=True, slots=True)
class Lateness:
    """When an operator considers a record late.

    Attributes:
        size_ms, advance_ms: its windows start at multiples of `advance_ms`; 1 and 1: the record's own timestamp counts.
        slack_ms: how much later than the end of the record's first window it is still taken, without any grace.
        grace_ms: how much later with the grace. The grace is for records that are out of order in their partition.
    """

    size_ms: int = 1
    advance_ms: int = 1
    slack_ms: int = 0
    grace_ms: int = 0

    def of(self, timestamp: int) -> int:
        """Return the smallest stream time at which a record may be late, without the use of any grace.

        Example:
            >>> hourly = Lateness(size_ms=3_600_000, advance_ms=3_600_000)
            >>> hourly.of(5), hourly.of(3_600_000)
            (3600000, 7200000)
        """
        return ((timestamp - self.size_ms) // self.advance_ms + 1) * self.advance_ms + self.size_ms + self.slack_ms


def lateness_in(nodes: Iterable[Node]) -> list[Lateness]:
    """Return the lateness of each node whose operator drops late records, or emits results without them."""
    collected = []
    for node in nodes:
        if isinstance(node, ProcessorNode):
            lateness: Lateness | None = getattr(node.operator, "lateness", None)
            if lateness is not None:
                collected.append(lateness)
    return collected


def earliest(many: Iterable[Lateness], timestamp: int) -> int:
    """Return the smallest stream time at which a record may be late for any of them."""
    return min(lateness.of(timestamp) for lateness in many)
