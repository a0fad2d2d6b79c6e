"""Check that keys are in the partitions that a join expects: compare each input's last records with Java's partitioner.

librdkafka's producers use another hash than Java's unless they are configured otherwise. A join of such a topic with one written
by Java, or with a repartition topic (a foreign-key join has two), then misses most rows without an error. The check covers topics
with several partitions that have to be co-partitioned. It runs in parallel to the deploy, which waits for it at most
`PATIENCE_SECONDS` more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from kstreams_repl.engine.partitioning import murmur2
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.system.errors import KStreamsError

PATIENCE_SECONDS = 0.3
SETTING = "repl.copartition.check"
_KEYS = 200
_ENOUGH = 10
_MISPLACED = 0.2
_LOG = logging.getLogger("kstreams_repl.repl.session")


@dataclass(frozen=True, slots=True)
class KeySample:
    """Keys of a topic's last records, with their partitions."""

    partitions: int
    places: Mapping[bytes, int] = field(default_factory=dict)

    @property
    def misplaced(self) -> int:
        """Return how many keys are in another partition than Java's producer would choose."""
        return sum((murmur2(key) & 0x7FFFFFFF) % self.partitions != partition for key, partition in self.places.items())

    @property
    def is_elsewhere(self) -> bool:
        return len(self.places) >= _ENOUGH and self.misplaced > _MISPLACED * len(self.places)


class CopartitionCheck:
    """A check of the inputs of a topology, on a thread of its own. It sends no request when there is nothing to compare."""

    def __init__(self, admin: Admin, topology: Topology, *, wanted: bool = True) -> None:
        self.warnings: list[str] = []
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._late = False
        self.patience = PATIENCE_SECONDS
        counts = admin.topics() if wanted else {}
        internal = set(topology.internal_topics)
        self._groups = [group for group in topology.copartition_groups() if _several(group, internal, counts)]
        if not self._groups:
            self._done.set()
            return
        threading.Thread(target=self._check, args=(admin, counts, internal), name="copartitioning", daemon=True).start()

    def wait(self) -> list[str]:
        """Return the warnings. A check that takes longer than `PATIENCE_SECONDS` more logs them when it completes."""
        self._done.wait(self.patience)
        with self._lock:
            self._late = not self._done.is_set()
        return [] if self._late else list(self.warnings)

    def _check(self, admin: Admin, counts: Mapping[str, int], internal: set[str]) -> None:
        try:
            topics = {topic for group in self._groups for topic in group if topic in counts and topic not in internal}
            samples = sampled(admin, {topic: counts[topic] for topic in topics})
            self.warnings = [line for group in self._groups for line in warnings_of(group, samples, internal)]
        except KStreamsError as error:  # the check must not fail a deploy, which contacts the broker itself
            _LOG.info("the partitions of the inputs were not checked: %s", error)
        finally:
            with self._lock:
                self._done.set()
            if self._late:
                for line in self.warnings:
                    _LOG.warning("%s", line.removeprefix("warning: "))


def sampled(admin: Admin, topics: Mapping[str, int]) -> dict[str, KeySample]:
    """Return the keys of the last records of each topic."""
    ranges = []
    for topic, count in topics.items():
        share = max(5, _KEYS // count)
        ranges += [OffsetRange(item.partition, max(item.start, item.end - share), item.end) for item in ranges_of(admin, topic)]
    places: dict[str, dict[bytes, int]] = {topic: {} for topic in topics}
    for partition, batch in read_ranges(admin.settings, ranges):
        places[partition.topic].update((bytes(key), partition.partition) for key in batch.keys if key is not None)
    return {topic: KeySample(topics[topic], found) for topic, found in places.items()}


def warnings_of(group: frozenset[str], samples: Mapping[str, KeySample], internal: set[str]) -> list[str]:
    """Return one line for each topic of a co-partitioned group whose keys are partitioned differently from its join partners."""
    mine = {topic: samples[topic] for topic in sorted(group) if topic in samples}
    elsewhere = [topic for topic, sample in mine.items() if sample.is_elsewhere]
    if len(elsewhere) == len(mine) and not group & internal and _agree(list(mine.values())):
        return []  # another partitioner, but the same one for all of them
    lines = []
    for topic in elsewhere:
        sample, others = mine[topic], sorted(group - {topic} - internal)
        joined = f"is joined by key with {', '.join(others)}" if others else "is joined by key with a repartition topic"
        lines.append(
            f"warning: {sample.misplaced} of {len(sample.places)} keys of {topic!r} do not lie in the partition where Java's producer and "
            f"Kafka Streams put them (murmur2), and {topic!r} {joined}: rows that belong together may not meet. "
            f"Re-key it: builder.stream({topic!r}).repartition(), for a table .to_table() behind it; or write it with "
            f"partitioner=murmur2_random. If its partitioner is meant so: config={{{SETTING!r}: False}}"
        )
    return lines


def _agree(samples: list[KeySample]) -> bool:
    """Return whether keys that several topics share lie in the same partition of each."""
    places: dict[bytes, set[int]] = {}
    for sample in samples:
        for key, partition in sample.places.items():
            places.setdefault(key, set()).add(partition)
    return all(len(partitions) == 1 for partitions in places.values())


def _several(group: frozenset[str], internal: set[str], counts: Mapping[str, int]) -> bool:
    return len(group) > 1 and any(counts.get(topic, 0) > 1 for topic in group - internal)
