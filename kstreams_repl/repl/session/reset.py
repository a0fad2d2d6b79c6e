"""`Reset`: an application begins again at chosen offsets, with empty state. Kafka Streams' application reset tool.

Numbered: 1. take control of the application, which fences every instance that may still run, and drop the stop offsets of an open
bounded run if asked · 2. delete the repartition and changelog topics · 3. delete the local state · 4. commit the new offsets. A reset that
was interrupted is repeated from the start. The journal and the versions stay.

Source: `StreamsResetter`. Differences: all input topics are reset unless some are named, and local state is deleted too.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from kstreams_repl.host.instance.control.open_channel import open_channel
from kstreams_repl.host.instance.initialization.task_initialization import fence_instances
from kstreams_repl.host.instance.state.state_directory import control_directory
from kstreams_repl.host.journal.journal_records import StopOffsets
from kstreams_repl.host.kafka.internal_topics import journal_topic_name
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.starting.journal_lookup import journal_of
from kstreams_repl.repl.session.cleanup import cleanup_of
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.system.errors import CallError, UnknownTopicError, did_you_mean
from kstreams_repl.system.types import TopicPartition

_FENCE_MS = 10_000


class Reset(Frames):
    """The reset of one application. `apply()` carries it out; displaying it changes nothing.

    Attributes:
        topics: internal topics to delete.
        directory: local state to delete; None: there is none here.
        offsets: (committed offset, new offset) by input partition.
        stop_offsets: the open bounded run to drop; None: none, or not asked for.
    """

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        *,
        topics: Collection[str],
        directory: Path | None,
        offsets: Mapping[TopicPartition, tuple[int, int]],
        stop_offsets: StopOffsets | None,
    ) -> None:
        self.name = name
        self.topics = tuple(topics)
        self.directory = directory
        self.offsets = dict(offsets)
        self.stop_offsets = stop_offsets
        self.applied = False
        self._client = client

    def __bool__(self) -> bool:
        return bool(self.topics or self.directory or self.offsets or self.stop_offsets)

    def apply(self) -> Reset:
        """Carry it out. Applying it twice does nothing.

        Example:
            >>> session.reset("word-count", dry_run=True).apply().applied
            True
        """
        if self.applied or not self:
            self.applied = True
            return self
        client = self._client
        # 1. Take control.
        self._take_control()
        # 2. Internal topics.
        client.admin.delete_topics(self.topics)
        # 3. Local state.
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        # 4. Offsets.
        client.admin.commit_offsets(self.name, {partition: new for partition, (_, new) in self.offsets.items()})
        self.applied = True
        return self

    def _take_control(self) -> None:
        # imported here: it belongs to the host, which need not be installed to list a reset
        from kstreams_repl.host.spark.fencing.generation_fencing import Generations

        client = self._client
        if journal_topic_name(self.name) not in client.admin.topics():
            return
        channel = open_channel(control_directory(client.state_root, self.name), client.settings, self.name)
        generations = Generations(client.settings, client.admin, self.name, channel)
        try:
            fence_instances(client.settings, self.name, range(generations.slots), timeout_ms=_FENCE_MS)
            if self.stop_offsets is not None:
                generations.drop_run()
        finally:
            generations.close()

    def table(self) -> Table:
        """Return one row for each topic, directory, offset and run that changes.

        Example:
            >>> table = session.reset("word-count", dry_run=True).table()
        """
        rows = [("delete topic", topic, "") for topic in self.topics]
        rows += [("delete local state", str(self.directory), "")] if self.directory else []
        rows += [("offset", str(partition), f"{old} -> {new}") for partition, (old, new) in sorted(self.offsets.items())]
        if self.stop_offsets is not None:
            rows.append(("drop stop offsets", f"run {self.stop_offsets.run}", ""))
        if not rows:
            return Table.of((), (), note=f"{self.name}: nothing to reset")
        note = "done" if self.applied else f"nothing is changed yet; session.reset({self.name!r}) does this"
        return Table.of(("what", "name", "change"), rows, note=note)

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_()


def reset_of(
    client: ClusterClient,
    applications: Mapping[str, ApplicationCore],
    name: str,
    *,
    input_topics: Collection[str] | None,
    to: object,
    shift_by: int | None,
    delete_stop_offsets: bool,
    state: bool,
) -> Reset:
    """List what a reset changes, as `Session.reset`.

    Raises:
        KStreamsError: the application is running, or is not known on the cluster.
        UnknownTopicError: it has no offsets of a topic that was named.
    """
    cleanup = cleanup_of(client, applications, name)  # raises while it runs
    journal = journal_topic_name(name)
    there = journal in client.admin.topics()
    if not there and cleanup.group is None:
        journal_of(client, name)  # raises: there is no such application
    last = journal_of(client, name).stop_offsets if there else None
    dropped = last if delete_stop_offsets and last is not None and last.state == "open" else None
    if not state:
        return Reset(client, name, topics=(), directory=None, offsets={}, stop_offsets=dropped)
    topics = tuple(topic for topic in cleanup.topics if topic != journal)
    committed = {at: found.offset for at, found in client.admin.committed_offsets(name, stable=False).items() if at.topic not in topics}
    consumed = sorted({at.topic for at in committed})
    for topic in input_topics or ():
        if topic not in consumed:
            raise UnknownTopicError(
                f"{name} has no offsets of {topic!r}",
                hint=did_you_mean(topic, consumed) or f"it has offsets of {', '.join(consumed) or 'no topic'}",
                topic=topic,
            )
    chosen = {at: offset for at, offset in committed.items() if input_topics is None or at.topic in input_topics}
    new = _new_offsets(client, chosen, to, shift_by)
    offsets = {at: (chosen[at], new[at]) for at in chosen}
    return Reset(client, name, topics=topics, directory=cleanup.directory, offsets=offsets, stop_offsets=dropped)


def _new_offsets(
    client: ClusterClient, committed: Mapping[TopicPartition, int], to: object, shift_by: int | None
) -> dict[TopicPartition, int]:
    """Return the new offsets, within the log of each partition."""
    first = client.admin.beginning_offsets(committed)
    last = client.admin.end_offsets(committed)
    if shift_by is not None:
        targets = {partition: offset + shift_by for partition, offset in committed.items()}
    elif to == "earliest":
        return first
    elif to == "latest":
        return last
    elif isinstance(to, int) and not isinstance(to, bool):
        targets = dict.fromkeys(committed, to)
    else:
        at_ms = milliseconds(to)
        by_time = client.admin.offsets_for_time(dict.fromkeys(committed, at_ms))
        targets = {partition: last[partition] if offset is None else offset for partition, offset in by_time.items()}
    return {partition: min(max(offset, first[partition]), last[partition]) for partition, offset in targets.items()}


def refuse_both(to: object, shift_by: int | None) -> None:
    """Raise if two places are given.

    Raises:
        CallError: they are.
    """
    if to is not None and shift_by is not None:
        raise CallError(f"expected to= or shift_by=, got both: {to!r} and {shift_by}", hint="leave one of them out")
