"""A host without a broker: topics as lists, tasks that start over from what was committed. For fault tests of the engine alone.

Each partition of the input is a list of `(key, value, timestamp, headers)`; a task reads it from its committed offset. A commit moves
offsets, outputs and stores together; what a task had sent when it failed is forgotten, as a transaction would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.nodes.collector import Send, Site
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.types import Headers, RecordBatch, TaskId, TopicPartition

Row = tuple[bytes | None, bytes | None, int, Headers]


@dataclass(frozen=True, slots=True)
class Sent:
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


@dataclass(slots=True)
class Outbox:
    """What one task sent since its last commit."""

    open: list[Sent] = field(default_factory=list)

    def sender(self, topic: str, site: Site | None = None) -> Send:
        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            self.open.append(Sent(topic, key, value, timestamp, list(headers)))

        return send

    def partitions(self, topic: str) -> int:
        return 1

    def partition_of(self, topic: str, key: bytes) -> int:
        return 0


class Host:
    """One task of one topic partition on LMDB stores.

    Args:
        partition: which one; its environment lives in a directory of its own below `directory`.
        rows: all records of the partition.
    """

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any],
        directory: Path,
        rows: Sequence[Row],
        *,
        topic: str = "in",
        partition: int = 0,
        batch: int = 500,
    ) -> None:
        [self._subtopology] = topology.subtopologies()
        self._config = StreamsConfig({"application.id": "app"} | dict(config))
        self._directory = directory / f"0_{partition}"
        self._log = list(enumerate(rows))
        self._at = TopicPartition(topic, partition)
        self._batch = batch
        self.committed_offset = 0
        self.committed: list[Sent] = []
        self.dropped: dict[str, int] = {}
        self.stream_times: list[int] = []

    def run(self) -> None:
        """Start a task at the committed offset and run it to the end, committing after each batch; its error ends it uncommitted."""
        environment = LmdbEnvironment(self._directory, map_bytes=1 << 30)
        try:
            self._run(environment)
        finally:
            environment.close()

    def _run(self, environment: LmdbEnvironment) -> None:
        outbox = Outbox()
        [source] = [node.name for node in self._subtopology.nodes if isinstance(node, SourceNode)]
        spec = TaskSpec("app", self._subtopology, TaskId(0, self._at.partition), {self._at: source}, self._config)
        task = StreamTask(spec, environment=environment, collector=outbox, wall_clock=lambda: 0)
        task.initialize()
        task.set_lag(self._at, 0)
        waiting = [entry for entry in self._log if entry[0] >= self.committed_offset]
        for first in range(0, len(waiting), self._batch):
            entries = waiting[first : first + self._batch]
            keys, values, timestamps, headers = ([row[i] for _, row in entries] for i in range(4))
            offsets = [offset for offset, _ in entries]
            task.add_records(self._at, RecordBatch(keys, values, timestamps, offsets, headers))  # type: ignore[arg-type]
            while task.process(100):
                task.punctuate_stream_time()
                self.stream_times.append(task.services.clock.now)
            plan = task.prepare_commit()
            task.post_commit(environment.commit_id + 1, {})
            self.committed_offset = plan.offsets[self._at]
            self.committed += outbox.open
            outbox.open.clear()
        for reason, count in task.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def skip(self, offset: int) -> None:
        """Take one record out, as an operator does who resets the group's offset past it; the others keep their offsets."""
        self._log = [entry for entry in self._log if entry[0] != offset]

    def sent_to(self, topic: str) -> list[Sent]:
        return [sent for sent in self.committed if sent.topic == topic]
