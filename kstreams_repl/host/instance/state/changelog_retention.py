"""Retention of the changelogs of windows, sessions and joins, by stream time.

A broker deletes records of such a changelog by its own clock, while event time may be years old. So these topics are kept for
ever (`topology.internal_topics.changelog_config`), and the instance itself deletes records that no restore needs. Steps are
numbered as in docs/design/014-event-time.md:

1. When the local store writes a commit, note the end of the changelog with the store's observed time: every record before that
   end has at most that time (`note`).
2. Once observed time has passed all segments that can hold that time, the end becomes the *floor*: everything before it is
   expired.
3. Commit the floor with the input offsets (`entries`), under the id of the topic.
4. Delete records only up to a committed floor (`deletable`), at intervals.
5. A restore begins at the committed floor at the earliest. If a log begins after both the floor and the local position, another
   party deleted records: `check_whole` raises.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kstreams_repl.engine.commit.offset_metadata import OffsetMetadata
from kstreams_repl.engine.runtime.metadata_names import hashed
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.layers.segments import segment_interval_ms
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.system.errors import TaskCorruptedError
from kstreams_repl.system.types import TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.instance")
_LONG = struct.Struct(">q")
_DAY_MS = 86_400_000
_NOTES_PER_SEGMENT = 8

FLOOR = "repl.k."
"""Prefix of the floors' names in the processor metadata."""


def floor_name(log: ChangelogPartition, topic_ids: Mapping[str, str]) -> str:
    """Return the floor's name in the metadata; it changes when the topic is deleted and recreated."""
    return FLOOR + hashed(f"{log.store.name}@{topic_ids.get(log.partition.topic, '')}")


def floors_of(
    logs: Iterable[ChangelogPartition], committed: Iterable[OffsetMetadata], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Return the committed floors of one task's logs; logs without a committed floor are left out."""
    entries: dict[str, int] = {}
    for metadata in committed:
        for name, number in metadata.entries.items():
            entries[name] = max(number, entries.get(name, number))
    named = {log.partition: floor_name(log, topic_ids) for log in logs if log.is_timed}
    return {partition: entries[name] for partition, name in named.items() if name in entries}


def check_whole(environment: Environment, log: ChangelogPartition, first: int, floor: int | None) -> None:
    """Refuse to restore a store from a log that begins after what the store still needs: after its floor if its records expire,
    else after its first record. The records before that are deleted.

    Where no floor was ever committed (an earlier release, or Kafka Streams), it is not known what is missing: a warning shows the
    offsets.

    Raises:
        TaskCorruptedError: records that the store needs were deleted.
    """
    position = environment.positions.get(str(log.partition), 0) if log.store.persistent else 0
    if position >= first or not (log.keeps_all or log.is_timed):
        return
    if log.keeps_all:
        floor = 0
    if floor is None:
        _LOG.warning(
            "the changelog %s of store %s begins at offset %d: %d records were deleted, by the broker's clock, before the application "
            "managed their retention. Their windows are missing in the store, unless they had expired by stream time. "
            "Hint: reset the application to rebuild its state from its input",
            log.partition, log.store.name, first, first - position,
        )  # fmt: skip
    elif first > floor:
        needed = max(floor, position)
        local = f"the local copy ends at {position}" if position else "there is no local copy"
        which = "" if log.keeps_all else " that are within its retention by stream time"
        setting = "cleanup.policy must be compact" if log.keeps_all else "retention.ms and retention.bytes must not bound it"
        raise TaskCorruptedError(
            f"the changelog {log.partition} of store {log.store.name} begins at offset {first}, but the store needs its records from "
            f"{needed} on: {first - needed} were deleted{which}, and {local}",
            hint=f"reset the application, so that it rebuilds its state from its input; check the settings of this topic: its {setting}",
            store=log.store.name,
            topic=log.partition.topic,
            partition=log.partition.partition,
            task=str(log.task),
        )


@dataclass(slots=True)
class _Log:
    log: ChangelogPartition
    name: str
    retention: int
    interval: int
    floor: int = 0
    notes: list[tuple[int, int]] = field(default_factory=list)
    """(end of the log, the store's observed time), ascending."""

    def note(self, end: int, observed: int) -> None:
        """Note a log's end with the store's observed time, and advance the floor."""
        notes = self.notes
        if len(notes) > 1 and observed - notes[-2][1] < self.interval // _NOTES_PER_SEGMENT:
            notes[-1] = end, observed
        elif notes and notes[-1][1] == observed:
            notes[-1] = end, observed
        else:
            notes.append((end, observed))
        live = max(observed - self.retention, 0) // self.interval * self.interval
        while notes[0][1] < live:
            self.floor = max(self.floor, notes.pop(0)[0])


class ChangelogFloors:
    """The floors of one task.

    Args:
        logs: of the task's stores.
        floors: the last committed ones.
    """

    def __init__(
        self, logs: Iterable[ChangelogPartition], topic_ids: Mapping[str, str], floors: Mapping[TopicPartition, int] | None = None
    ) -> None:
        self._logs: dict[TopicPartition, _Log] = {}
        known = floors or {}
        for log in logs:
            if log.is_timed:
                retention = _DAY_MS if log.store.retention_ms is None else log.store.retention_ms
                self._logs[log.partition] = _Log(
                    log, floor_name(log, topic_ids), retention, segment_interval_ms(retention), known.get(log.partition, 0)
                )
        self._ends: dict[TopicPartition, int] = {}
        self._open: dict[TopicPartition, int] = {}
        self._deleted: dict[TopicPartition, int] = dict(known)
        self.deletable: dict[TopicPartition, int] = {}
        """Committed floors of logs that still have records before them."""

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The logs whose ends `written` needs."""
        return frozenset(self._logs)

    def written(self, ends: Mapping[TopicPartition, int]) -> None:
        """Take the end offsets of logs after a commit."""
        self._ends.update((log, end) for log, end in ends.items() if log in self._logs)

    def note(self, environment: Environment) -> None:
        """Run steps 1 and 2. Call after the local stores wrote the commit, when their attributes are current."""
        ends, self._ends = self._ends, {}
        for partition, end in ends.items():
            observed = environment.attribute(f"{self._logs[partition].log.store.name}/observed-time")
            if observed is not None:
                self._logs[partition].note(end, _LONG.unpack(observed)[0])

    def entries(self) -> dict[str, int]:
        """Run step 3: return the entries of the next commit."""
        self._open = {partition: log.floor for partition, log in self._logs.items()}
        return {log.name: log.floor for log in self._logs.values()}

    def committed(self, included: bool = True) -> None:
        """Run step 4, after a commit succeeded.

        Args:
            included: whether the commit contained the entries.
        """
        if included:
            self.deletable = {log: floor for log, floor in self._open.items() if floor > self._deleted.get(log, 0)}

    def deleted(self, floors: Mapping[TopicPartition, int]) -> None:
        """Note that the records below these floors were deleted."""
        self._deleted.update((log, floor) for log, floor in floors.items() if log in self._logs)
        self.deletable = {log: floor for log, floor in self.deletable.items() if floor > self._deleted.get(log, 0)}
