"""A real `StreamTask` on a real topology, with its inputs, clock and outputs in the test's hands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.nodes.collector import Send, Site
from kstreams_repl.engine.runtime.queues.columnar_queue import LOOP_THRESHOLD
from kstreams_repl.engine.runtime.task import CommitPlan, StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.types import Headers, RecordBatch, TaskId, TopicPartition

Sent = tuple[str, bytes | None, bytes | None, int, Headers, int | None]
DEFAULTS = {
    "application.id": "app",
    "default.key.serde": serdes.string,
    "default.value.serde": serdes.json,
    "statestore.cache.max.bytes": 0,
}


class Outbox:
    """A record collector that keeps everything; every topic has `count` partitions."""

    def __init__(self, count: int = 1) -> None:
        self.sent: list[Sent] = []
        self.count = count

    def sender(self, topic: str, site: Site | None = None) -> Send:
        def send(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            self.sent.append((topic, key, value, timestamp, list(headers), partition))

        return send

    def partitions(self, topic: str) -> int:
        return self.count

    def partition_of(self, topic: str, key: bytes) -> int:
        return len(key) % self.count

    def to(self, topic: str) -> list[tuple[bytes | None, bytes | None, int]]:
        return [(key, value, timestamp) for name, key, value, timestamp, _, _ in self.sent if name == topic]


class Rig:
    """One task over all sub-topologies of a topology: `pipe` adds records and sets the lag to 0, `run` processes what is ready."""

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any] | None = None,
        *,
        partition: int = 0,
        environment: Any = None,
        partitions: int = 1,
        lags_known: bool = True,
        loop_threshold: int = LOOP_THRESHOLD,
        calls: Any = None,
        part: int = 0,
        outbox: Outbox | None = None,
        internal: frozenset[str] = frozenset(),
    ) -> None:
        self.now = 0
        self.outbox = outbox or Outbox(partitions)
        subtopologies = [sub for sub in topology.subtopologies() if not sub.global_][part:]
        assert len(subtopologies) == 1 or part or outbox, "a rig runs one sub-topology"
        self.inputs = {
            TopicPartition(topic, partition): node.name
            for node in subtopologies[0].nodes
            if isinstance(node, SourceNode)
            for topic in node.topics
        }
        own = StreamsConfig(DEFAULTS | dict(config or {}))
        spec = TaskSpec("app", subtopologies[0], TaskId(part, partition), self.inputs, own, internal_topics=internal)
        self.environment = environment or MemoryEnvironment()
        self.task = StreamTask(
            spec, environment=self.environment, collector=self.outbox, wall_clock=lambda: self.now, loop_threshold=loop_threshold
        )
        if self.task.calls is not None:
            self.task.calls.attach(calls())
        self.task.initialize()
        self.partition = partition
        self._offsets: dict[str, int] = {}
        self._commits = 0
        if lags_known:
            for at in self.inputs:
                self.task.set_lag(at, 0)

    def pipe(self, topic: str, *rows: tuple[Any, ...]) -> Rig:
        """Add `(key, value, timestamp)` rows; bytes go as they are, other values through the default serdes."""
        first = self._offsets.get(topic, 0)
        self._offsets[topic] = first + len(rows)
        batch = RecordBatch(
            [row[0] if isinstance(row[0], bytes) else serdes.string.serialize(row[0]) for row in rows],
            [row[1] if isinstance(row[1], bytes) else serdes.json.serialize(row[1]) for row in rows],
            [row[2] for row in rows],
            list(range(first, first + len(rows))),
            [row[3] if len(row) > 3 else None for row in rows] if any(len(row) > 3 for row in rows) else None,
        )
        self.task.add_records(TopicPartition(topic, self.partition), batch)
        return self

    def run(self, most: int = 1_000_000) -> int:
        return self.task.process(most)

    def commit(self) -> CommitPlan:
        plan = self.task.prepare_commit()
        self._commits += 1
        self.task.post_commit(self._commits, {})
        return plan


def recording(seen: list[Any], *sources: str, then: Callable[[Any, Any, int], None] | None = None) -> Topology:
    """A topology of one node behind all sources that keeps (key, value, timestamp)."""
    from kstreams_repl.engine.processor import Processor

    class Keep(Processor):
        def process(self, record: Any) -> None:
            seen.append((record.key, record.value, record.timestamp))
            if then is not None:
                then(record.key, record.value, record.timestamp)

    topology = Topology()
    for source in sources:
        topology.add_source(f"from-{source}", source)
    return topology.add_processor("keep", Keep, *(f"from-{source}" for source in sources))


def keys(seen: Iterable[tuple[Any, ...]]) -> str:
    """The keys seen, as one word."""
    return "".join(str(row[0]) for row in seen)
