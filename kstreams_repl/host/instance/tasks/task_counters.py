"""Counters of a task at every recording level: a few additions per slice, batch and commit; no per-record work.

The age of records is *sampled*: one record per slice, the last one processed. Its age at the end of the slice is the latency at
its source node, and at the terminal nodes of a sub-topology without record caches. Behind a cache, records are forwarded at the
commit, so there the first and the last sampled record of the commit count, when the caches are flushed.
"""

from __future__ import annotations

import time

from kstreams_repl.engine.metrics.counters import Counter
from kstreams_repl.engine.runtime.task import StreamTask
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.system.types import TopicPartition


class TaskCounters:
    """The counters of one task. Written by the thread that holds the task."""

    __slots__ = (
        "process", "slices", "punctuate", "commit_age", "source_ages", "terminal_age", "consumed", "terminals", "cached",
        "_record", "_sources", "_oldest", "_newest",
    )  # fmt: skip

    def __init__(self, task: StreamTask) -> None:
        spec = task.spec
        self.process = Counter()
        """Seconds per record, one mean for each slice."""
        self.slices = Counter()
        """Records per slice."""
        self.punctuate = Counter()
        self.commit_age = Counter()
        self.terminal_age = Counter()
        self.consumed: dict[TopicPartition, int] = dict.fromkeys(spec.partitions, 0)
        nodes = spec.subtopology.nodes
        self.source_ages: dict[str, Counter] = {node.name: Counter() for node in nodes if isinstance(node, SourceNode)}
        parents = {parent for node in nodes if not isinstance(node, SourceNode) for parent in node.parents}
        self.terminals = tuple(node.name for node in nodes if node.name not in parents)
        self.cached = spec.config["statestore.cache.max.bytes"] > 0 and any(s.caching for s in spec.subtopology.stores)
        self._record = task.record
        self._sources = {(partition.topic, partition.partition): self.source_ages[name] for partition, name in spec.partitions.items()}
        self._oldest: int | None = None
        self._newest = 0

    def sliced(self, count: int, seconds: float) -> None:
        """Count a slice of `count` records that has just been processed."""
        self.process.add_many(count, seconds)
        self.slices.add(count)
        record = self._record
        source = self._sources.get((record.topic, record.partition))  # type: ignore[arg-type]
        if source is None:
            return
        stamp = record.timestamp
        age = time.time() * 1000 - stamp
        source.add(age)
        if not self.cached:
            self.terminal_age.add(age)
        self._newest = stamp
        if self._oldest is None:
            self._oldest = stamp

    def flushed(self) -> None:
        """Take the ages of sampled records after the caches were flushed for a commit."""
        if self.cached and self._oldest is not None:
            now = time.time() * 1000
            self.terminal_age.add(now - self._oldest)
            self.terminal_age.add(now - self._newest)

    def committed(self) -> None:
        """Take the ages of processed records, which are now visible."""
        if self._oldest is not None:
            now = time.time() * 1000
            self.commit_age.add(now - self._oldest)
            self.commit_age.add(now - self._newest)
            self._oldest = None
