"""The poll loop of an instance: poll, buffer, process tasks, punctuate, commit, check for signals. It is the polling thread of
Kafka Streams' threading refactor, with inline processing.

Invariants: records are taken from the client only while the buffers have room, in records and in bytes, because pausing the
client would discard its prefetched records. The exception is when no task can make progress: one of them then waits for a
partition whose records have not arrived, and only partitions that no task waits for are paused. Every regular end of the loop is
at a commit. The loop has no states of its own: it ends with the signal that ended it, `Signal.RUN` at its deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.host.instance.control.channel import PeerTimes, Signal
from kstreams_repl.host.instance.instance import Instance, wall_clock
from kstreams_repl.host.instance.polling.commit_timing import CommitTiming
from kstreams_repl.host.instance.polling.scheduler import most_buffered, scheduler_of
from kstreams_repl.host.instance.polling.scheduling_round import SchedulingRounds
from kstreams_repl.host.instance.process.huge_pages import EVERY_RECORDS, SETTLED_RECORDS, use_huge_pages
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.kafka.failures import translate
from kstreams_repl.host.kafka.group_offsets import is_partition_end, is_passing, pause, resume, topic_partition_of
from kstreams_repl.host.kafka.record_batch import columns, size_of
from kstreams_repl.system.types import RecordBatch, TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Message

_BATCH = 10_000
_SLICE = 4_000
"""Records that one task may process before the next task's turn and before clocks are checked."""
_PIECE = 1_000
"""Records taken from the client at a time. With 10,000, each costs 0.5 us more: the client passes over them twice, and they do not fit
into the processor's cache.
"""
_NAPS = ((1.0, 0.02), (5.0, 0.06), (20.0, 0.12), (math.inf, 0.4))
"""(idle for less than, poll timeout), both in seconds. A record ends the poll at once; only signals wait for its timeout.
Wake-ups are the cost of an idle instance: 0.4 ms of processor time each, because its data has been evicted from the processor's
caches.
"""
_CALL_SECONDS = 0.005
"""How long a poll waits for results of asynchronous nodes; a result ends the wait, a record does not."""
_MARKER_SECONDS = 0.004
"""At 20,000 records/s the acknowledgements of a commit took 21 ms (median) without this rest, 6 ms with 2 or 4, 5 ms with 8."""
_FOLLOW_SECONDS = 0.05
_HELD_SECONDS = 0.005
"""How long a poll waits while records wait for other instances or for a fetch."""
_FEW_RECORDS = 1_000
"""A commit at rest is followed by `_MARKER_SECONDS` if fewer records than this were processed since the one before."""
_REPORT_SHARE, _REPORT_SECONDS = 50, 1.0
"""A report that takes long, because the disk is busy, takes at most a fiftieth of the loop's time, but is made once a second."""
_PASS_SECONDS, _REST_SECONDS = 0.25, 1.0
"""How often, at rest, the consumer's position beyond the last record is read, and how long nothing must arrive before a commit takes it."""
_IMBALANCE = 20
"""A partition whose task cannot make progress is paused at this many times its soft bound, and resumed at half of that."""


class PollLoop:
    """Runs one open instance.

    Args:
        signal: returns the current signal, given the monotonic time; called every round, so it must be cheap.
        report: called with the instance every `report_seconds`.
        peers: the other instances' event times.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        signal: Callable[[float], Signal],
        report: Callable[[Instance], None],
        report_seconds: float = 0.2,
        peers: PeerTimes | None = None,
    ) -> None:
        config = instance.plan.config
        self.instance = instance
        self.until = 0.0
        """Monotonic time at which to end; may be changed while the loop runs."""
        self._signal = signal
        self._peers = peers
        self._report = report
        self._report_seconds = report_seconds
        self._timing = CommitTiming(instance.committer, instance.tasks, config)
        self._soft = config["buffered.records.per.partition"]
        self._by_partition = instance.input.by_partition
        self._drain_seconds = config["repl.async.drain.ms"] / 1000
        partitions = max(1, len(self._by_partition))
        self._room: int = max(self._soft * partitions, 2 * _BATCH)
        self._most_bytes: int = config["input.buffer.max.bytes"]
        self._share = max(1, self._most_bytes // partitions)
        scheduler = scheduler_of(config["repl.task.scheduler"])
        self._rounds = None if scheduler is most_buffered else SchedulingRounds(scheduler)
        self._joins = [task for task in instance.tasks if task.joins]
        self._alignment = instance.alignment
        self._paused: set[TopicPartition] = set()
        self._active_at = time.monotonic()
        self._pass_at = 0.0
        self._stuck = False
        self._transactional = instance.clients.transactions is not None
        self._rested_at = instance.counters.records
        self._stateful = any(task.task.stores for task in instance.tasks)
        topics = {partition.topic for partition in self._by_partition}
        self._topic = topics.pop() if len(topics) == 1 else None
        self._ahead: list[Message] = []
        self._ahead_bytes = 0
        instance.clients.fence.meanwhile = self._read_ahead

    def run(self, until: float) -> Signal:
        """Run until the monotonic time `until` or a signal; everything processed is committed when this returns, unless it
        returns SUPERSEDED.

        Returns:
            The signal that ended the loop; RUN at the deadline.

        Raises:
            StreamsProcessingError: a user's function raised; the open transaction is not committed.
            KStreamsError: any other failure; the instance can only be closed.
        """
        instance, tasks, committer, counters = self.instance, self.instance.tasks, self.instance.committer, self.instance.counters
        clients = instance.clients
        consume, poll = clients.consumer.consume, clients.consumer.poll
        serve, polled = clients.producer.poll, counters.polled
        follow = None if instance.globals is None else instance.globals.follow
        monotonic = time.monotonic
        next_report, paged_at = 0.0, max(counters.records, SETTLED_RECORDS)
        idle = False
        self.until = until
        bounds, followed, alignment = instance.bounds, instance.followed, self._alignment
        if bounds is not None:
            bounds.pause_reached(self._by_partition)
        if alignment is not None:
            alignment.begin(self._peers, monotonic())
        while True:
            now = monotonic()
            signal = self._signal(now)
            if signal is not Signal.RUN or now >= self.until:
                return self._end(signal)
            if now >= next_report:
                self._report(instance)
                next_report = now + max(self._report_seconds, min(_REPORT_SHARE * (monotonic() - now), _REPORT_SECONDS))
                if self._stateful and counters.records - paged_at >= EVERY_RECORDS:
                    paged_at = counters.records
                    use_huge_pages()
            # Poll.
            took = False
            if idle and self._wait_for_calls():
                idle = False  # what arrives from the broker is taken at once
            room = self._queues_have_room()
            if room or self._stuck:
                if not room:
                    self._hold_back()
                messages = self._take_ahead()
                if not messages:
                    messages = consume(_PIECE, 0)
                if not messages and idle:
                    message = poll(self._nap(now, self.until))
                    if message is not None:
                        messages = [message, *consume(_PIECE, 0)]
                polled(monotonic() - now, len(messages))
                if messages:
                    clients.begin()  # routing a batch whose head is a poison record sends its dead letter
                    taken, took = 0, True
                    while messages:
                        self._route(messages)
                        taken += len(messages)
                        if len(messages) < _PIECE or taken >= _BATCH or not self._queues_have_room():
                            break
                        began = monotonic()
                        messages = consume(_PIECE, 0)
                        polled(monotonic() - began, len(messages))
            elif idle and alignment is not None:  # the buffers are full of records that wait for other instances
                time.sleep(_HELD_SECONDS)
            if follow is not None:
                follow()
            if followed is not None:
                clients.begin()
                for partition, batch in followed.advance():
                    self._take_in(partition, batch)
                    took = True
            failpoint("F1")
            # Process, in the order of most_buffered or of the configured scheduler, and punctuate.
            clients.begin()
            done = self._process()
            for task in tasks:
                if task.punctuate():
                    done += 1
            serve(0)
            failpoint("F2")
            # Commit.
            now = monotonic()
            idle = not done and not took
            if not idle:
                self._active_at = now
            self._stuck = not done and not self._calls_run() and (alignment is None or not alignment.is_held or alignment.is_fetching)
            if bounds is not None and idle and not self._ahead:
                bounds.touch(tasks, now)
                if instance.closing is not None:
                    instance.closing.step(now)
                if instance.table_completion is not None:
                    instance.table_completion.step(now)
            elif idle and not self._ahead and now >= self._pass_at:
                self._pass_markers(now, self._active_at)
            if self._timing.is_due(now) or alignment is not None and alignment.wants_commit(now - committer.last_commit):
                if committer.commit(more=not idle) and idle:
                    self._await_markers()
            elif idle and self._timing.is_due_at_rest(now) and committer.touched:
                committer.commit()
                self._await_markers()
            elif idle and not committer.settled:
                committer.settle()
            if alignment is not None:
                alignment.exchange(now, in_flight=committer.touched)

    def _end(self, signal: Signal) -> Signal:
        if signal is Signal.SUPERSEDED:
            return signal
        clients = self.instance.clients
        clients.fence.meanwhile = None
        if self._ahead:  # they stay with the instance, which may continue in the next epoch
            clients.begin()
            self._route(self._take_ahead())
        if signal is not Signal.RUN:
            self._drain_calls()
            if self.instance.bounds is None:
                self.instance.input.pass_markers(commit=True)
        self.instance.committer.commit()
        self.instance.committer.settle()
        if self._paused:  # the next epoch's loop does not know which partitions are paused
            resume(clients.consumer, list(self._paused))
            self._paused.clear()
        self._report(self.instance)
        return signal

    def _pass_markers(self, now: float, active_at: float) -> None:
        self._pass_at = now + _PASS_SECONDS
        self.instance.input.pass_markers(commit=now - active_at >= _REST_SECONDS)

    def _await_markers(self) -> None:
        """Give the broker a moment to end the transaction that was committed, if few records arrive.

        It acknowledges a commit before the transaction's markers are in the topics. Until then it refuses the first record of the next
        transaction, and the client tries again after 20 ms. What arrives meanwhile is part of the next commit.
        """
        records = self.instance.counters.records
        if self._transactional and records - self._rested_at < _FEW_RECORDS:
            time.sleep(_MARKER_SECONDS)
        self._rested_at = records

    def _calls_run(self) -> bool:
        return self.instance.calls is not None and any(task.calls_running for task in self.instance.tasks)

    def _wait_for_calls(self) -> bool:
        """Wait a moment for results of asynchronous nodes; return False if none is expected."""
        if self.instance.calls is None or not self._calls_run():
            return False
        self.instance.calls.wait(_CALL_SECONDS)
        return True

    def _drain_calls(self) -> None:
        """Give calls in flight a moment to end, so that they need not be made again. What has not ended is part of the commit."""
        deadline = time.monotonic() + self._drain_seconds
        while self._calls_run() and time.monotonic() < deadline:
            self.instance.clients.begin()
            if not sum(task.replay() for task in self.instance.tasks):
                self._wait_for_calls()

    def _read_ahead(self) -> bool:
        """Take records from the client while a commit waits for the broker. They are routed after the commit, because the dead
        letter of a poison record would belong to the next transaction.
        """
        if len(self._ahead) >= _BATCH or self._ahead_bytes + self._buffered_bytes() >= self._most_bytes:
            return False
        messages = self.instance.clients.consumer.consume(_PIECE, 0)
        self._ahead += messages
        self._ahead_bytes += size_of(messages)
        return bool(messages)

    def _take_ahead(self) -> list[Message]:
        messages, self._ahead, self._ahead_bytes = self._ahead, [], 0
        return messages

    def _nap(self, now: float, until: float) -> float:
        """Return how long a poll may wait, in seconds: until the next commit, punctuation or end."""
        idle = now - self._active_at
        nap = min(next(nap for within, nap in _NAPS if idle < within), until - now, self._timing.seconds_left(now))
        if self._alignment is not None and self._alignment.is_held:
            nap = min(nap, _HELD_SECONDS)
        if self.instance.followed is not None:
            nap = min(nap, _FOLLOW_SECONDS)
        punctuations = [ms for task in self.instance.tasks if (ms := task.task.next_wall_clock_punctuation) is not None]
        if punctuations:
            nap = min(nap, (min(punctuations) - wall_clock()) / 1000)
        return max(nap, 0.0)

    # ---- input

    def _queues_have_room(self) -> bool:
        buffered = sum(task.task.buffered for task in self.instance.tasks)
        return buffered < self._room and self._buffered_bytes() < self._most_bytes

    def _buffered_bytes(self) -> int:
        return sum(task.task.buffered_bytes for task in self.instance.tasks)

    def _hold_back(self) -> None:
        """Pause partitions that hold more than their share of the bytes, when the buffers are full and no task can make progress;
        never pause a partition that a task waits for.
        """
        if self._buffered_bytes() < self._most_bytes:
            return
        self._pause([
            partition
            for task in (self._joins if self._alignment is None else self.instance.tasks)
            for partition, queue in task.task.queues.items()
            if queue.has_head and queue.buffered_bytes >= self._share and partition not in self._paused
        ])

    def _pause(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            pause(self.instance.clients.consumer, list(partitions))
            self._paused.update(partitions)

    def _route(self, messages: list[Message]) -> None:
        bounds = self.instance.bounds
        for partition, batch in columns(messages, self._on_error, topic=self._topic):
            if bounds is not None:
                batch = bounds.cut(partition, batch)
                if not len(batch):
                    continue
            self._take_in(partition, batch)

    def _take_in(self, partition: TopicPartition, batch: RecordBatch) -> None:
        task, positions = self._by_partition[partition], self.instance.input
        task.add_records(partition, batch)
        task.counters.consumed[partition] += len(batch)
        if task.joins:
            positions.passed(partition, batch.offsets[-1] + 1)
            positions.update_lag(task, partition)
        if (
            self._stuck
            and len(batch)
            and task.task.queues[partition].size > self._soft * _IMBALANCE
            and partition not in self._paused
        ):
            self._pause([partition])

    def _on_error(self, message: Message, error: object) -> None:
        partition = topic_partition_of(message)
        if is_partition_end(error):
            self.instance.input.ends[partition] = message.offset()
            self.instance.input.passed(partition, message.offset())
            if self.instance.bounds is not None:
                self.instance.bounds.met_end(partition, message.offset())
        elif not is_passing(error):
            raise translate(
                error, f"reading {partition}", topic=partition.topic, bootstrap_servers=self.instance.plan.settings.bootstrap_servers
            )

    # ---- work

    def _process(self) -> int:
        tasks, counters = self.instance.tasks, self.instance.counters
        for task in self._joins:
            if task.task.buffered:
                self.instance.input.update_missing_lags(task)
        done, began = 0, time.time()
        if self._rounds is not None:
            done = self._rounds.run(tasks, _SLICE)
        else:
            if len(tasks) > 1:
                tasks = sorted(tasks, key=_buffered, reverse=True)
            for task in tasks:
                if not task.is_aligned:
                    done += task.process(_SLICE)
            if self._alignment is not None:
                done += self._alignment.run(_SLICE)
        counters.records += done
        if done and counters.first_at is None:
            counters.first_at = began
        if self._paused:
            self._resume_drained()
        return done

    def _resume_drained(self) -> None:
        low, light = self._soft * _IMBALANCE // 2, self._share // 2
        queues = {partition: self._by_partition[partition].task.queues[partition] for partition in self._paused}
        self._resume([partition for partition, queue in queues.items() if queue.size <= low and queue.buffered_bytes <= light])

    def _resume(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            resume(self.instance.clients.consumer, list(partitions))
            self._paused.difference_update(partitions)


def _buffered(task: ActiveTask) -> int:
    return task.task.buffered
