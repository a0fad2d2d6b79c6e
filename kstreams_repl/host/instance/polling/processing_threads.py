"""`num.processing.threads` > 1: one polling thread and N processing threads, for user code that blocks.

Actors: the *polling thread* (the caller of `ThreadedPollLoop.run`) polls, fills the tasks' inboxes, commits, serves the producer and
raises the errors of the other threads; each *processing thread* takes the task that the scheduler chooses, processes it for a
time slice and gives it back. Output goes into the producer's own buffer, which is thread-safe and needs no explicit draining.

Steps of a commit: 1. every thread stops at a record boundary · 2. global tables and store metrics are updated · 3. the commit
itself, as with inline processing · 4. a new transaction begins · 5. the threads continue. A record that blocks delays step 1; the
other threads then continue and the commit is retried shortly after, until half of the transaction timeout has passed: from then
on the other threads wait for that record, too. Pause and stop wait for it. More threads do not make Python faster (the GIL): they
keep a task that sleeps or waits for a socket from stalling the others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.instance.polling.scheduler import scheduler_of
from kstreams_repl.host.instance.polling.task_manager import ManagedTask, TaskManager
from kstreams_repl.host.kafka.group_offsets import is_partition_end, topic_partition_of
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.system.log_context import carried
from kstreams_repl.system.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.host.kafka.clients import Message

_BATCH = 10_000
_SLICE_SECONDS = 0.02
"""How long a thread keeps a task while other tasks wait."""
_STEP_SECONDS = 0.004
"""Target duration of one step's records: an upper bound on the wait for a record boundary."""
_MOST_RECORDS = 2_000
_POLL_SECONDS = 0.005
_PATIENCE_SECONDS = 0.02
_AGAIN_SECONDS = 0.05
_BLOCKED_SECONDS = 0.05
"""A task that has records and has processed none for this long makes no progress: it must not block the input of the others."""


class ThreadedPollLoop(PollLoop):
    """Runs one open instance with processing threads; same arguments and results as `PollLoop`."""

    def __init__(self, instance: Instance, **options: Any) -> None:
        super().__init__(instance, **options)
        instance.clients.fence.meanwhile = None  # the polling thread reads while the others process, so a commit need not read ahead
        config = instance.plan.config
        self.manager = TaskManager(instance.tasks, scheduler_of(config["repl.task.scheduler"]))
        self._threads = config["num.processing.threads"]
        self._errors: deque[BaseException] = deque()
        self._woken = threading.Event()
        self._forced_seconds = config["transaction.timeout.ms"] / 2000
        self._next_try = 0.0
        self._touched_at: float | None = None
        self._next_follow = 0.0
        self._ends_met: dict[TopicPartition, int] = {}
        self._progress: dict[TaskId, tuple[int, float]] = {}

    def run(self, until: float) -> Signal:
        self.until = until
        name = f"process-{self.instance.plan.application_id}-{self.instance.slot}"
        threads = [
            threading.Thread(target=carried(self._process_tasks), args=(f"{name}-{number}",), name=f"{name}-{number}", daemon=True)
            for number in range(self._threads)
        ]
        self.instance.clients.begin()
        self.instance.stores_busy = True
        for thread in threads:
            thread.start()
        try:
            return self._poll()
        finally:
            self.manager.end()
            for thread in threads:
                thread.join()
            self.instance.stores_busy = False

    # ---- the polling thread

    def _poll(self) -> Signal:
        instance, monotonic = self.instance, time.monotonic
        consumer, serve, polled = instance.clients.consumer, instance.clients.producer.poll, instance.counters.polled
        next_report, alignment = 0.0, self._alignment
        if alignment is not None:
            alignment.begin(self._peers, monotonic())
        while True:
            now = monotonic()
            if self._errors:
                raise self._errors[0]
            signal = self._signal(now)
            if signal is not Signal.RUN or now >= self.until:
                if signal is not Signal.SUPERSEDED:
                    self._stop(None)
                    for managed in self.manager.tasks.values():
                        managed.receive()  # the consumer has passed these records, and the next epoch continues from there
                return self._end(signal)
            if now >= next_report:
                self._report(instance)
                next_report = now + self._report_seconds
            if self._has_room(now):
                if self._busy():
                    messages = consumer.consume(_BATCH, _POLL_SECONDS)
                else:
                    message = consumer.poll(self._nap(now, self.until))
                    messages = [] if message is None else [message, *consumer.consume(_BATCH, 0)]
                polled(monotonic() - now, len(messages))
                if messages:
                    self._route(messages)
            else:
                self._woken.wait(_POLL_SECONDS)
                self._woken.clear()
            failpoint("F1")
            serve(0)
            self._count()
            failpoint("F2")
            self._commit_when_due(monotonic())
            if alignment is not None:
                alignment.exchange(monotonic(), in_flight=instance.committer.touched)

    def _commit_when_due(self, now: float) -> None:
        instance, committer, timing = self.instance, self.instance.committer, self._timing
        alignment = self._alignment
        due = timing.is_due(now) or alignment is not None and alignment.wants_commit(now - committer.last_commit)
        touched = committer.touched
        if not touched:
            self._touched_at = None
            if instance.bounds is None and now >= self._pass_at and not self._busy():
                self._pass_markers(now, committer.last_commit)
        elif self._touched_at is None:
            self._touched_at = now  # the transaction holds nothing older, however long ago the last commit was
        if not due and timing.is_due_at_rest(now):
            due = (touched or not committer.settled) and not self._busy()
        follow = instance.globals is not None and now >= self._next_follow
        if now < self._next_try or not (follow or due and (touched or not committer.settled)):
            return
        self._next_follow = now + timing.interval
        # 1. Stop every task at a record boundary.
        forced = self._touched_at is not None and now - self._touched_at > self._forced_seconds
        if not self._stop(None if forced else _PATIENCE_SECONDS):
            self._next_try = now + _AGAIN_SECONDS
            return
        self._commit_stopped()

    def _commit_stopped(self) -> None:
        """Run steps 2 to 5 of a commit."""
        instance = self.instance
        instance.stores_busy = False
        # 2. Update what only one thread may access.
        if instance.globals is not None:
            instance.globals.follow()
        if instance.metrics is not None:
            instance.metrics.fold()  # store metrics are read about once a second
        # 3. Commit.
        more = self._busy()
        instance.committer.commit(more=more)
        self._touched_at = None
        if self._alignment is not None:
            self._alignment.exchange(time.monotonic(), in_flight=False)
        if not more:
            instance.committer.settle()
        # 4. Begin a new transaction.
        instance.clients.begin()
        # 5. Let the threads continue.
        instance.stores_busy = True
        self.manager.go_on()

    def _stop(self, seconds: float | None) -> bool:
        """Stop every thread at a record boundary within `seconds`; None: wait without limit, unless a thread fails."""
        if seconds is not None:
            return self.manager.stop_all(seconds) and not self._errors
        while not self.manager.stop_all(1.0):
            if self._errors:
                raise self._errors[0]
            self.instance.clients.producer.poll(0)
        if self._errors:
            raise self._errors[0]
        return True

    def _busy(self) -> bool:
        return bool(self.manager.holders) or any(managed.buffered for managed in self.manager.tasks.values())

    def _has_room(self, now: float) -> bool:
        """Return whether to poll: queues and inboxes have room, in records and in bytes. A task that makes no progress would fill
        its queues and stop the input of all tasks, or of the partition it waits for. Its buffered partitions are therefore
        paused, and resumed when they are three quarters empty.
        """
        records, size, hungry = 0, 0, False
        blocked: list[tuple[float, ManagedTask]] = []
        for managed in self.manager.tasks.values():
            buffered, weight = managed.buffered, managed.buffered_bytes
            still = self._stands_still(managed, now)
            starts, queues = managed.task.starts.keys(), managed.task.task.queues
            held = self._resume_emptied(managed) if starts & self._paused else set()
            if held == starts:
                continue
            records += buffered - sum(queues[partition].size for partition in held)
            size += weight - sum(queues[partition].buffered_bytes for partition in held)
            hungry = hungry or not buffered
            if buffered and still:
                blocked.append((self._fill(buffered, weight), managed))
        if self._fill(records, size) < 1:
            return True
        for _, managed in sorted(blocked, key=itemgetter(0), reverse=True):
            stopped = self._in_the_way(managed, hungry) - self._paused
            if stopped:
                self._pause(stopped)
                return True
        return False

    def _in_the_way(self, managed: ManagedTask, hungry: bool) -> set[TopicPartition]:
        """Return the partitions to pause of a task without progress: its buffered ones if it waits for another partition; all of
        its partitions if another task has no records.
        """
        queues = managed.task.task.queues
        filled = {partition for partition, queue in queues.items() if queue.has_head}
        if filled and len(filled) < len(queues) and managed.holder is None and not managed.inbox:
            return filled
        return set(queues) if hungry else set()

    def _fill(self, records: int, size: int) -> float:
        """Return the fill level of the buffers; they are full from 1 on."""
        return max(records / self._room, size / self._most_bytes)

    def _resume_emptied(self, managed: ManagedTask) -> set[TopicPartition]:
        """Resume partitions whose records the task has processed; return its partitions that stay paused."""
        held = self._paused & managed.task.starts.keys()
        if managed.inbox:  # its holder is inside a record; the inbox holds records that the queues do not count
            return held
        queues = managed.task.task.queues
        emptied = {partition for partition in held if self._fill(queues[partition].size, queues[partition].buffered_bytes) <= 0.25}
        self._resume(emptied)
        return held - emptied

    def _stands_still(self, managed: ManagedTask, now: float) -> bool:
        records, since = self._progress.get(managed.task.id, (-1, now))
        if managed.task.records != records:
            self._progress[managed.task.id] = (managed.task.records, now)
            return False
        return now - since > _BLOCKED_SECONDS

    def _route(self, messages: list[Message]) -> None:
        """Put the batches first and the partition ends after them: a task that reads the ends and then empties its inbox misses
        no record.
        """
        by_partition, positions = self._by_partition, self.instance.input
        for partition, batch in columns(messages, self._on_error, topic=self._topic):
            task = by_partition[partition]
            positions.routed[partition] = batch.offsets[-1] + 1
            self.manager.put(task.id, partition, batch)
            if task.joins:
                positions.passed(partition, batch.offsets[-1] + 1)
        for partition, offset in self._ends_met.items():
            positions.passed(partition, offset)
            self.manager.put(by_partition[partition].id, partition, None)
        self._ends_met.clear()

    def _on_error(self, message: Message, error: object) -> None:
        if is_partition_end(error):
            partition = topic_partition_of(message)
            self.instance.input.ends[partition] = self._ends_met[partition] = message.offset()
        else:
            super()._on_error(message, error)

    def _count(self) -> None:
        counters = self.instance.counters
        counters.records = sum(task.records for task in self.instance.tasks)
        if counters.records and counters.first_at is None:
            counters.first_at = time.time()

    # ---- processing threads

    def _process_tasks(self, name: str) -> None:
        while True:
            with self.manager.taken(name) as managed:
                if managed is None:
                    return
                try:
                    self._work_on(managed)
                except BaseException as error:  # the polling thread raises it again; until then no other thread may take the task
                    self._errors.append(error)
                    self.manager.end()
                    self._woken.set()
                    return

    def _work_on(self, managed: ManagedTask) -> None:
        """Process a task for one time slice, in steps of a few milliseconds that begin at one record, so that a boundary is
        always near.
        """
        manager, task = self.manager, managed.task
        monotonic = time.monotonic
        began, count, did = monotonic(), 1, False
        while not manager.stopping:
            if task.joins:
                self.instance.input.update_missing_lags(task)
            managed.receive()
            began_step = monotonic()
            done = task.process(count)
            ran = task.punctuate()
            now = monotonic()
            if not done and not ran:
                if not managed.inbox:
                    manager.rest(managed)
                    break
                continue
            did = True
            if done == count and now - began_step < _STEP_SECONDS / 2:
                count = min(2 * count, _MOST_RECORDS)
            elif now - began_step > _STEP_SECONDS:
                count = max(1, int(count * _STEP_SECONDS / (now - began_step)))
            if now - began > _SLICE_SECONDS:
                break
        if did:
            self._woken.set()
