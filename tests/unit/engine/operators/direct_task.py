"""A task as the host runs it: records in batches, one changelog record per key and commit, restarts from the same stores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.nodes.collector import Send, Site
from kstreams_repl.engine.runtime.task import CommitPlan, StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.system.types import Headers, RecordBatch, TaskId, TopicPartition


class DirectTask:
    """The first sub-topology as one task; `sent` keeps (topic, key, value, timestamp) of all it sends, changelogs left out."""

    def __init__(self, topology: Any, **settings: Any) -> None:
        self._sub = next(sub for sub in topology.subtopologies() if not sub.global_)
        self._internal = frozenset(topology.internal_topics)
        base = {"application.id": "app", "default.key.serde": serdes.string, "default.value.serde": serdes.json}
        self._config = StreamsConfig(base | {"statestore.cache.max.bytes": 0} | settings)
        self._environment = MemoryEnvironment()
        self._offset = self._commits = 0
        self._plan: CommitPlan | None = None
        self.sent: list[tuple[str, bytes | None, bytes | None, int]] = []
        self.task = self._start()

    def sender(self, topic: str, site: Site | None = None) -> Send:
        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            if not topic.endswith("-changelog"):
                self.sent.append((topic, key, value, timestamp))

        return send

    def partitions(self, topic: str) -> int:
        return 1

    def partition_of(self, topic: str, key: bytes) -> int:
        return 0

    def _start(self) -> StreamTask:
        sources = [node for node in self._sub.nodes if isinstance(node, SourceNode)]
        partitions = {TopicPartition(topic, 0): node.name for node in sources for topic in node.topics}
        spec = TaskSpec("app", self._sub, TaskId(0, 0), partitions, self._config, self._internal)
        task = StreamTask(spec, environment=self._environment, collector=self, wall_clock=lambda: 0)
        if self._plan is not None:
            for at, time in self._plan.partition_times.items():
                task.set_partition_time(at, time)
            task.set_metadata(self._plan.metadata)
        task.initialize()
        return task

    def pipe(self, topic: str, records: Iterable[tuple[Any, Any, int]]) -> None:
        """One batch, processed to its end without a commit."""
        rows = list(records)
        offsets = list(range(self._offset, self._offset + len(rows)))
        self._offset += len(rows)
        keys = [serdes.string.serialize(key) for key, _, _ in rows]
        values = [serdes.json.serialize(value) for _, value, _ in rows]
        self.task.add_records(TopicPartition(topic, 0), RecordBatch(keys, values, [at for _, _, at in rows], offsets))
        for at in self.task.group.queues:
            self.task.set_lag(at, 0)
        while self.task.process(1000):
            pass

    def commit(self) -> CommitPlan:
        self._plan = self.task.prepare_commit()
        self._commits += 1
        self.task.post_commit(self._commits, {})
        return self._plan

    def restart(self, beside: CommitPlan | None = None) -> None:
        """A new task over the committed stores, with what was committed beside the offsets; `beside`: by that commit instead."""
        self._environment.rollback()
        self._plan = beside or self._plan
        self.task = self._start()

    def take(self) -> list[tuple[str, bytes | None, bytes | None, int]]:
        sent, self.sent = self.sent, []
        return sent
