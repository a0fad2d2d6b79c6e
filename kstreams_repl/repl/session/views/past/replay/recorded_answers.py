"""What the functions of asynchronous nodes have answered: durable results, as far as the broker still has them.

A replica takes them instead of calling a function again. Nothing is written to their topic.
"""

from __future__ import annotations

from dataclasses import replace

from kstreams_repl.engine.operators.streams.stream_async import StreamAsync
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.errors import IllegalStateError, UnknownTopicError
from kstreams_repl.system.types import TopicPartition
from kstreams_repl.test_driver.virtual_calls import MemoryResultLog


class RecordedAnswers(MemoryResultLog):
    """Durable results that are read from the broker; further ones stay in memory."""

    def __init__(self, admin: Admin) -> None:
        super().__init__()
        self._admin = admin

    def read(self, partition: TopicPartition) -> tuple[list[tuple[bytes, bytes, int]], int]:
        """Return the rows that there are, with their offsets."""
        if partition not in self.rows:
            rows = self.rows[partition] = []
            try:
                ranges = ranges_of(self._admin, partition.topic, partitions=[partition.partition])
            except UnknownTopicError:  # the node has not run yet
                return super().read(partition)
            for _, batch in read_ranges(self._admin.settings, ranges, isolation="read_uncommitted"):
                rows += [
                    (key, value)
                    for key, value in zip(batch.keys, batch.values, strict=True)
                    if key is not None and value is not None
                ]
        return super().read(partition)


class Uncalled:
    """A task whose asynchronous functions are not called: they are asked only for what no answer is recorded of.

    Attributes:
        spec: the task.
        asked: the nodes whose functions were asked.
    """

    def __init__(self, spec: TaskSpec) -> None:
        self.asked: list[str] = []
        nodes = tuple(self._uncalled(node) for node in spec.subtopology.nodes)
        self.spec = replace(spec, subtopology=replace(spec.subtopology, nodes=nodes))

    def _uncalled(self, node: Node) -> Node:
        if not isinstance(node, ProcessorNode) or not isinstance(node.operator, StreamAsync):
            return node
        operator = node.operator

        async def ask(*given: object) -> object:
            self.asked.append(node.name)
            raise IllegalStateError(f"no answer of asynchronous node {node.name!r} is recorded", hint=_HINT, node=node.name)

        silent = replace(operator, function=ask)
        silent.__dict__["version"] = operator.version  # the recorded answers are those of the function itself
        return replace(node, operator=silent)

    def refuse(self) -> None:
        """Raise if a function was asked.

        Raises:
            IllegalStateError: it was.
        """
        if self.asked:
            raise refused(self.asked[0])


_HINT = (
    "answers of durable nodes are kept until their records are committed; where another call does no harm, allow it: calls=True"
)


def refused(node: str) -> IllegalStateError:
    """Return the error of a question for which a function would have to be called again."""
    text = f"to process the records again, the function of asynchronous node {node!r} would be called again"
    return IllegalStateError(text, hint=_HINT, node=node)
