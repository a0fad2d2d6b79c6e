"""The poll loop of an instance: poll, buffer, process tasks, punctuate, commit, check for signals. It is the polling thread of
Kafka Streams' threading refactor, with inline processing.

Invariants: records are taken from the client only while the buffers have room, in records and in bytes, because pausing the
client would discard its prefetched records. The exception is when no task can make progress: one of them then waits for a
partition whose records have not arrived, and only partitions that no task waits for are paused. Every regular end of the loop is
at a commit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from kstreams_repl.commit.failpoints import failpoint
from kstreams_repl.errors import KStreamsError
from kstreams_repl.instance.control.channel import Signal
from kstreams_repl.instance.huge_pages import EVERY_RECORDS, SETTLED_RECORDS, use_large_pages
from kstreams_repl.instance.instance import Instance, wall_clock
from kstreams_repl.instance.polling.scheduler import most_buffered, scheduler_of
from kstreams_repl.instance.polling.scheduling_round import Turns
from kstreams_repl.instance.tasks.active_task import ActiveTask
from kstreams_repl.kafka.failures import translate
from kstreams_repl.kafka.group_offsets import is_partition_end, is_passing, known_end, pause, resume, topic_partition_of
from kstreams_repl.kafka.record_batch import columns, size_of
from kstreams_repl.types import TopicPartition

_BATCH = 10_000
_SLICE = 4_000
"""Records that one task may process before the next task's turn and before clocks are checked."""
_AHEAD = 2_000
"""Records taken from the client at a time while a commit waits for the broker."""
_NAPS = ((1.0, 0.02), (5.0, 0.06), (math.inf, 0.12))
"""(idle for less than, poll timeout), both in seconds. A record ends the poll at once; only signals wait for its timeout.
Wake-ups are the cost of an idle instance: 0.4 ms of processor time each, because its data has been evicted from the processor's
caches.
"""
_ASK_SECONDS = 0.25
"""Interval between requests to the broker whether a partition that a task waits for ends in an open transaction."""
_AWAY_SECONDS = 20.0
"""Delay before the next such request after one failed: each failed request blocks the loop."""
_IMBALANCE = 20
"""A partition whose task cannot make progress is paused at this many times its soft bound, and resumed at half of that."""


class Ending(StrEnum):
    """Why the loop ended."""

    DEADLINE = "deadline"
    PAUSED = "paused"
    STOPPED = "stopped"
    SUPERSEDED = "superseded"


_ENDINGS = {Signal.PAUSE: Ending.PAUSED, Signal.STOP: Ending.STOPPED, Signal.SUPERSEDED: Ending.SUPERSEDED}


class Loop:
    """Runs one open instance.

    Args:
        signal: returns the current signal, given the monotonic time; called every round, so it must be cheap.
        report: called with the instance every `report_seconds`.
    """

    def __init__(
        self,
        instance: Instance,
        *,
        signal: Callable[[float], Signal],
        report: Callable[[Instance], None],
        report_seconds: float = 0.2,
    ) -> None:
        config = instance.plan.config
        self.instance = instance
        self.until = 0.0
        """Monotonic time at which to end; may be changed while the loop runs."""
        self._signal = signal
        self._report = report
        self._report_seconds = report_seconds
        self._commit_seconds = config["commit.interval.ms"] / 1000
        self._eager_seconds = None if config["repl.commit.eager.ms"] < 0 else config["repl.commit.eager.ms"] / 1000
        self._soft = config["buffered.records.per.partition"]
        self._room: int = max(self._soft * max(1, len(instance.by_partition)), 2 * _BATCH)
        self._most_bytes: int = config["input.buffer.max.bytes"]
        self._share = max(1, self._most_bytes // max(1, len(instance.by_partition)))
        scheduler = scheduler_of(config["repl.task.scheduler"])
        self._turns = None if scheduler is most_buffered else Turns(scheduler)
        self._joins = [task for task in instance.tasks if task.joins]
        self._paused: set[TopicPartition] = set()
        self._ask_at: dict[TopicPartition, float] = {}
        self._active_at = time.monotonic()
        self._stuck = False
        self._stateful = any(task.task.stores for task in instance.tasks)
        topics = {at.topic for at in instance.by_partition}
        self._topic = topics.pop() if len(topics) == 1 else None
        self._ahead: list[Any] = []
        self._ahead_bytes = 0
        instance.fence.meanwhile = self._read_ahead

    def run(self, until: float) -> Ending:
        """Run until the monotonic time `until` or a signal; everything processed is committed when this returns.

        Raises:
            StreamsProcessingError: a user's function raised; the open transaction is not committed.
            KStreamsError: any other failure; the instance can only be closed.
        """
        instance, tasks = self.instance, self.instance.tasks
        consume, poll = instance.consumer.consume, instance.consumer.poll
        serve, polled = instance.producer.poll, instance.counters.polled
        follow = None if instance.globals is None else instance.globals.follow
        monotonic = time.monotonic
        next_report, paged_at = 0.0, max(instance.totals.records, SETTLED_RECORDS)
        idle = False
        self.until = until
        while True:
            now = monotonic()
            signal = self._signal(now)
            if signal is not Signal.RUN or now >= self.until:
                return self._end(signal)
            if now >= next_report:
                self._report(instance)
                next_report = now + self._report_seconds
                if self._stateful and instance.totals.records - paged_at >= EVERY_RECORDS:
                    paged_at = instance.totals.records
                    use_large_pages()
            # Poll.
            took = False
            room = self._queues_have_room()
            if room or self._stuck:
                if not room:
                    self._hold_back()
                messages = self._take_ahead() or consume(_BATCH, 0)
                if not messages and idle:
                    message = poll(self._nap(now, self.until))
                    if message is not None:
                        messages = [message, *consume(_BATCH, 0)]
                polled(monotonic() - now, len(messages))
                if messages:
                    instance.begin()  # routing a batch whose head is a poison record sends its dead letter
                    self._route(messages)
                    took = True
            if follow is not None:
                follow()
            failpoint("F1")
            # Process, in the order of most_buffered or of the configured scheduler, and punctuate.
            instance.begin()
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
            self._stuck = not done
            if now >= instance.refresh_at:
                instance.refresh(now)
            since = now - instance.last_commit
            if since >= self._commit_seconds or any(task.task.commit_requested for task in tasks):
                self._commit(more=not idle)
            elif idle and self._eager_seconds is not None and since >= self._eager_seconds and instance.touched:
                self._commit()
            elif idle and not instance.settled:
                instance.settle()

    def _end(self, signal: Signal) -> Ending:
        if signal is Signal.SUPERSEDED:
            return Ending.SUPERSEDED
        self.instance.fence.meanwhile = None
        if self._ahead:  # they stay with the instance, which may continue in the next epoch
            self.instance.begin()
            self._route(self._take_ahead())
        self._commit()
        self.instance.settle()
        if self._paused:  # the next epoch's loop does not know which partitions are paused
            resume(self.instance.consumer, list(self._paused))
            self._paused.clear()
        self._report(self.instance)
        return _ENDINGS.get(signal, Ending.DEADLINE)

    def _read_ahead(self) -> bool:
        """Take records from the client while a commit waits for the broker. They are routed after the commit, because the dead
        letter of a poison record would belong to the next transaction.
        """
        if len(self._ahead) >= _BATCH or self._ahead_bytes + self._buffered_bytes() >= self._most_bytes:
            return False
        messages = self.instance.consumer.consume(_AHEAD, 0)
        self._ahead += messages
        self._ahead_bytes += size_of(messages)
        return bool(messages)

    def _take_ahead(self) -> list[Any]:
        messages, self._ahead, self._ahead_bytes = self._ahead, [], 0
        return messages

    def _commit(self, *, more: bool = False) -> None:
        self.instance.commit(more=more)

    def _nap(self, now: float, until: float) -> float:
        """Return how long a poll may wait, in seconds: until the next commit, punctuation or end."""
        idle = now - self._active_at
        nap = min(next(nap for within, nap in _NAPS if idle < within), until - now)
        instance = self.instance
        if instance.touched:
            due = self._commit_seconds if self._eager_seconds is None else min(self._commit_seconds, self._eager_seconds)
            nap = min(nap, instance.last_commit + due - now)
        punctuations = [at for task in instance.tasks if (at := task.task.next_wall_clock_punctuation) is not None]
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
        far = [
            at
            for task in self._joins
            for at, queue in task.task.group.queues.items()
            if queue.has_head and queue.buffered_bytes >= self._share and at not in self._paused
        ]
        if far:
            pause(self.instance.consumer, far)
            self._paused.update(far)

    def _route(self, messages: list[Any]) -> None:
        by_partition = self.instance.by_partition
        for at, batch in columns(messages, self._on_error, topic=self._topic):
            task = by_partition[at]
            task.add_records(at, batch)
            task.counters.consumed[at] += len(batch)
            if task.joins:
                self._passed(at, batch.offsets[-1] + 1)
                self._learn_lag(task, at)
            if (
                self._stuck
                and len(batch)
                and task.task.group.queues[at].size > self._soft * _IMBALANCE
                and at not in self._paused
            ):
                pause(self.instance.consumer, [at])
                self._paused.add(at)

    def _passed(self, at: TopicPartition, offset: int) -> None:
        """Note that every offset of the partition below `offset` has arrived (a partition end also covers transaction markers).
        """
        reached = self.instance.reached
        if offset > reached.get(at, -1):
            reached[at] = offset

    def _learn_lag(self, task: ActiveTask, at: TopicPartition) -> None:
        """Set the partition's lag to 0 if the last fetch showed only records that have arrived or that belong to open
        transactions; else set it to unknown, and the task waits (KIP-695).

        The lag is unknown before the first fetch. The end moves with every fetch, while its records are still in the client's
        queue: a known lag of 0 is therefore checked again whenever the task would continue without the partition.
        """
        end = known_end(self.instance.consumer, at)
        reached = self.instance.reached.get(at, task.starts[at])
        met = end is not None and (reached >= end or self._is_stable_end(at, reached, end))
        task.task.set_lag(at, 0 if met else None)

    def _is_stable_end(self, at: TopicPartition, reached: int, end: int) -> bool:
        """Return whether all records between `reached` and `end` belong to open transactions: the client has met the end of the
        readable records there, and the broker confirms that end. The broker is asked at intervals while a task waits; its answer
        holds until the log grows, at the latest by the marker that ends such a transaction. (Kafka Streams reads the last stable
        offset from the client; librdkafka knows it but does not expose it.)
        """
        instance = self.instance
        if instance.ends.get(at) != reached or instance.plan.isolation != "read_committed":
            return False
        if instance.stable.get(at) == (reached, end):
            return True
        now = time.monotonic()
        queue = instance.by_partition[at].task.group.queues[at]
        if queue.has_head or now < self._ask_at.get(at, 0.0):
            return False
        try:
            stable = instance.admin.end_offsets([at], isolation="read_committed")[at]
        except KStreamsError:  # still unknown; the consumer reports the cause, and the next request is delayed
            self._ask_at = dict.fromkeys(instance.by_partition, time.monotonic() + _AWAY_SECONDS)
            return False
        self._ask_at[at] = now + _ASK_SECONDS
        if reached < stable:
            return False
        instance.stable[at] = (reached, end)
        return True

    def _learn_missing_lags(self) -> None:
        """Refresh the lag of each empty queue before its task continues without it."""
        for task in self._joins:
            if task.task.buffered:
                for at, queue in task.task.group.queues.items():
                    if not queue.has_head:
                        self._learn_lag(task, at)

    def _on_error(self, message: Any, error: Any) -> None:
        at = topic_partition_of(message)
        if is_partition_end(error):
            self.instance.ends[at] = message.offset()
            self._passed(at, message.offset())
        elif not is_passing(error):
            raise translate(
                error, f"reading {at}", topic=at.topic, bootstrap_servers=self.instance.plan.settings.bootstrap_servers
            )

    # ---- work

    def _process(self) -> int:
        tasks = self.instance.tasks
        if self._joins:
            self._learn_missing_lags()
        done, began = 0, time.time()
        if self._turns is not None:
            done = self._turns.round(tasks, _SLICE)
        else:
            if len(tasks) > 1:
                tasks = sorted(tasks, key=_buffered, reverse=True)
            for task in tasks:
                taken = task.process(_SLICE)
                if taken:
                    done += taken
        totals = self.instance.totals
        totals.records += done
        if done and totals.first_at is None:
            totals.first_at = began
        if self._paused:
            self._resume_drained()
        return done

    def _resume_drained(self) -> None:
        queues = {at: self.instance.by_partition[at].task.group.queues[at] for at in self._paused}
        low, light = self._soft * _IMBALANCE // 2, self._share // 2
        drained = [at for at, queue in queues.items() if queue.size <= low and queue.buffered_bytes <= light]
        if drained:
            resume(self.instance.consumer, drained)
            self._paused.difference_update(drained)


def _buffered(task: ActiveTask) -> int:
    return task.task.buffered


def _plain(value: Any) -> Any:
    """Return text and numbers unchanged, a tuple of them (the user's source line) as a list, and any other value as text."""
    if isinstance(value, tuple) and all(isinstance(part, (str, int)) for part in value):
        return list(value)
    return value if isinstance(value, (str, int)) else str(value)


def failure_of(error: BaseException) -> dict[str, Any]:
    """Return an error as a report carries it: class, text, the user's line and coordinates, all as plain values."""
    import traceback

    fields: dict[str, Any] = {}
    if isinstance(error, KStreamsError):
        fields = {name: _plain(value) for name, value in error.fields.items()}
    return {
        "error": type(error).__name__,
        "message": error.message if isinstance(error, KStreamsError) else str(error),
        "hint": error.hint if isinstance(error, KStreamsError) else None,
        "fields": fields,
        "trace": "".join(traceback.format_exception(error)),
    }
