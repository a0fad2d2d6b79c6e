"""Input that reads no further than another application has committed: that of a fork, behind its parent.

Actors: a thread, which asks for the leader's committed offsets, and for the ends of its logs of durable results as of then; the poll
loop, which holds records beyond those offsets back. A record that arrives is one that the leader has processed, so

- the leader goes first: what a fork costs, it costs after the leader's work;
- at rest of the leader the fork ends exactly where it has stopped;
- what the leader's asynchronous nodes have answered is known before the record comes (`host.kafka.followed_results`).

The bounds are those of a bounded run whose stop offsets move (`input_bounds`). What the leader does not read, this application's own
topics included, is not held back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from kstreams_repl.engine.config import FOLLOWED
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.instance_clients import InstanceClients
from kstreams_repl.host.instance.polling.input_bounds import InputBounds
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer
from kstreams_repl.host.kafka.followed_results import LeaderResults
from kstreams_repl.host.kafka.group_admin import committed_by
from kstreams_repl.host.kafka.group_offsets import pause, resume
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.log_context import carried
from kstreams_repl.system.types import RecordBatch, TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.instance")
_ASK_SECONDS = 0.1
_ANSWER_SECONDS = 10.0
_MOST_HELD = 20_000
"""Records of a partition that are held back before it is no longer fetched."""


class Leader:
    """What an application has committed, asked for in a thread.

    Args:
        partitions: whose offsets are wanted.
        before: called with the thread's client before offsets are passed on.

    Attributes:
        offsets: of the partitions that it reads; None before the first answer.
    """

    def __init__(
        self,
        settings: ClientSettings,
        application_id: str,
        partitions: Iterable[TopicPartition],
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings, self._application_id = settings, application_id
        self._partitions, self._before = sorted(partitions), before
        self._over = threading.Event()
        self.offsets: Mapping[TopicPartition, int] | None = None
        self._thread = threading.Thread(target=carried(self._run), name=f"follow-{application_id}", daemon=True)

    def start(self) -> Leader:
        self._thread.start()
        return self

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        # read_uncommitted: offsets of a transaction that is open are not there yet, and are not waited for
        consumer = make_consumer(self._settings, group_id=self._application_id, isolation="read_uncommitted")
        try:
            while True:
                try:
                    found = committed_by(consumer, self._partitions, seconds=_ANSWER_SECONDS)
                    self._before()
                    self.offsets = {at: committed.offset for at, committed in found.items()}
                except KStreamsError as error:
                    _LOG.info("cannot ask for the offsets of %s now: %s", self._application_id, error)
                if self._over.wait(_ASK_SECONDS):
                    return
        finally:
            consumer.close()


class FollowedInput(InputBounds):
    """The bounds of one instance's input, which move with those of the leader.

    Attributes:
        results: the durable results of the leader's asynchronous nodes.
    """

    def __init__(
        self, leader: Leader, clients: InstanceClients, partitions: Iterable[TopicPartition], results: LeaderResults
    ) -> None:
        self.results = results
        self._leader, self._limits = leader, dict.fromkeys(partitions, -1)
        super().__init__(self._limits, clients)
        self._known: Mapping[TopicPartition, int] | None = None
        self._held: dict[TopicPartition, list[RecordBatch]] = {}
        self._paused: set[TopicPartition] = set()

    def assign(self, task: ActiveTask) -> None:
        """Add the partitions of a task."""
        task.passed = self._positions

    def is_reached(self, partition: TopicPartition) -> bool:
        """Return whether every record of a partition up to the present limit has arrived."""
        limit = self._limits.get(partition)
        return limit is not None and self._positions.get(partition, -2) >= limit

    def pause_reached(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions of which many records are held back."""
        if self._paused:
            pause(self._clients.consumer, self._paused)

    def cut(self, partition: TopicPartition, batch: RecordBatch) -> RecordBatch:
        """Return the records below the limit; hold the others back."""
        limit, held = self._limits.get(partition), self._held.get(partition)
        if limit is None or (batch.offsets[-1] < limit and held is None):
            return batch
        below = batch.part(slice(0)) if held is not None else batch.before(limit)
        if len(below) < len(batch):
            self._hold(partition, limit, [*(held or ()), batch.part(slice(len(below), None))])
        return below

    def _hold(self, partition: TopicPartition, limit: int, batches: list[RecordBatch]) -> None:
        self._held[partition] = batches
        self._positions[partition] = max(limit, self._positions.get(partition, -1))
        if partition not in self._paused and sum(map(len, batches)) > _MOST_HELD:
            pause(self._clients.consumer, [partition])
            self._paused.add(partition)

    def met_end(self, partition: TopicPartition, offset: int) -> None:
        """Note that the consumer has met the end of a partition at this offset."""
        if partition not in self._held:
            self._positions[partition] = max(offset, self._positions.get(partition, -1))

    def advance(self) -> list[tuple[TopicPartition, RecordBatch]]:
        """Take the leader's present offsets; return the records that were held back and may be processed now."""
        known = self._leader.offsets
        if known is None or known is self._known:
            return []
        self._known = known
        for partition in list(self._limits):
            if partition in known:
                self._limits[partition] = max(known[partition], self._limits[partition])
            else:  # the leader does not read it
                del self._limits[partition]
        released: list[tuple[TopicPartition, RecordBatch]] = []
        for partition in list(self._held):
            limit, held = self._limits.get(partition), self._held.pop(partition)
            for index, batch in enumerate(held):
                below = batch if limit is None else batch.before(limit)
                if len(below):
                    released.append((partition, below))
                if len(below) < len(batch):
                    assert limit is not None
                    self._hold(partition, limit, [batch.part(slice(len(below), None)), *held[index + 1 :]])
                    break
            left = sum(map(len, self._held.get(partition, ())))
            if partition in self._paused and left <= _MOST_HELD // 2:
                self._paused.discard(partition)
                resume(self._clients.consumer, [partition])
        return released

    def close(self) -> None:
        """End the thread."""
        self._leader.close()
        self.results.close()


def followed_input(plan: ApplicationPlan, slot: int, clients: InstanceClients) -> FollowedInput | None:
    """Return the bounds of an instance whose application follows another one (``repl.follow``), with their thread; else None."""
    leader = plan.config[FOLLOWED]
    if leader is None or plan.stops is not None:
        return None
    partitions = [partition for spec in plan.assignment[slot] for partition in spec.partitions]
    logs = [
        (log, spec.task_id.partition)
        for spec in plan.assignment[slot] for node in spec.subtopology.nodes
        if (log := getattr(getattr(node, "operator", None), "result_log_name", None)) is not None
    ]  # fmt: skip
    results = LeaderResults(plan.settings, clients.admin, leader, plan.application_id, logs)
    return FollowedInput(Leader(plan.settings, leader, partitions, results.read).start(), clients, partitions, results)
