"""The task manager: the tasks that are ready to be processed, each with an inbox and an exclusive lock, and the threads'
operations on them.

Actors: the *polling thread* puts batches into inboxes, stops all threads at a record boundary (`stop_all`) and lets them
continue; *processing threads* take a task, hand its inbox over to it, and give it back. Invariants: at most one thread holds a
task; only its holder accesses a task's contents, or the polling thread while all threads are stopped; the unit of hand-over is a
batch, never a record.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kstreams_repl.host.instance.polling.scheduler import Candidate, Scheduler
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.errors import IllegalStateTransitionError
from kstreams_repl.system.types import RecordBatch, TaskId, TopicPartition

_REST_SECONDS = 0.01
_RETRY_SECONDS = 0.2
"""How long a task rests that has only records off the main path: they become due, and an order about them may come."""
_FOREVER = 3600.0


@dataclass(slots=True, eq=False)
class ManagedTask:
    """A task with the batches that were polled for it and not yet handed over.

    Attributes:
        inbox: batches in the order they were polled; None as a batch means that the partition's end was met.
        holder: the name of the thread that holds the task.
        arrived, received: records put into the inbox, and records handed over; each is counted by one side only. The same for
            bytes.
        rests_until: monotonic time before which the task is not scheduled, unless a batch arrives.
    """

    task: ActiveTask
    inbox: deque[tuple[TopicPartition, RecordBatch | None]] = field(default_factory=deque)
    arrived: int = 0
    received: int = 0
    arrived_bytes: int = 0
    received_bytes: int = 0
    holder: str | None = None
    rests_until: float = 0.0
    released_at: float = 0.0

    @property
    def buffered(self) -> int:
        """Records that wait, in the inbox or in the task; may be off by a batch while a thread holds the task."""
        return self.arrived - self.received + self.task.task.buffered

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that wait, in the inbox or in the task."""
        return self.arrived_bytes - self.received_bytes + self.task.task.buffered_bytes

    def receive(self) -> None:
        """Hand the inbox over to the task. Called by its holder."""
        while self.inbox:
            partition, batch = self.inbox.popleft()
            if batch is not None:
                self.task.add_records(partition, batch)
                self.received += len(batch)
                self.received_bytes += batch.size_bytes
                self.task.counters.consumed[partition] += len(batch)


class TaskManager:
    """All active tasks of an instance. Thread-safe."""

    def __init__(self, tasks: Iterable[ActiveTask], scheduler: Scheduler, clock: Callable[[], float] = time.monotonic) -> None:
        self.tasks: dict[TaskId, ManagedTask] = {task.id: ManagedTask(task) for task in tasks}
        self._scheduler = scheduler
        self._clock = clock
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self.stopping = False
        """When set, holders give their tasks back at the next record boundary."""
        self.over = False

    # ---- for the polling thread

    def put(self, task: TaskId, partition: TopicPartition, batch: RecordBatch | None) -> None:
        """Append a batch to a task's inbox; None notes that the partition's end was met."""
        with self._lock:
            managed = self.tasks[task]
            managed.inbox.append((partition, batch))
            if batch is not None:
                managed.arrived += len(batch)
                managed.arrived_bytes += batch.size_bytes
            managed.rests_until = 0.0
            self._work.notify()

    def stop_all(self, seconds: float) -> bool:
        """Ask every thread to stop at a record boundary; return False, and let all continue, if one did not stop within
        `seconds`.
        """
        deadline = self._clock() + seconds
        with self._lock:
            self.stopping = True
            while any(managed.holder for managed in self.tasks.values()):
                left = deadline - self._clock()
                if left <= 0:
                    self.stopping = False
                    self._work.notify_all()
                    return False
                self._idle.wait(left)
            return True

    def go_on(self) -> None:
        """Let the threads take tasks again, including resting ones, because a commit may have made records available to them."""
        with self._lock:
            self.stopping = False
            for managed in self.tasks.values():
                managed.rests_until = 0.0
            self._work.notify_all()

    def end(self) -> None:
        """Let each thread end as soon as it holds no task."""
        with self._lock:
            self.over = True
            self.stopping = True
            self._work.notify_all()

    @property
    def holders(self) -> dict[str, TaskId]:
        """The task that each thread holds, by thread name."""
        with self._lock:
            return {managed.holder: name for name, managed in self.tasks.items() if managed.holder is not None}

    # ---- for processing threads

    @contextmanager
    def taken(self, holder: str) -> Iterator[ManagedTask | None]:
        """Hold a task for the duration of the context; None when the thread must end."""
        managed = self._take(holder)
        try:
            yield managed
        finally:
            if managed is not None:
                self._give_back(managed, holder)

    def _take(self, holder: str) -> ManagedTask | None:
        with self._lock:
            while not self.over:
                now = self._clock()
                free = [] if self.stopping else [m for m in self.tasks.values() if m.holder is None and m.rests_until <= now]
                if free:
                    listed = [Candidate(m.task.id, m.buffered, now - m.released_at) for m in free]
                    managed = self.tasks[self._scheduler(listed).id]
                    if managed.holder is not None:
                        raise IllegalStateTransitionError(f"{holder} cannot take task {managed.task.id}: {managed.holder} holds it")
                    managed.holder = holder
                    return managed
                self._work.wait(None if self.stopping else self._until_rested(now))
            return None

    def _give_back(self, managed: ManagedTask, holder: str) -> None:
        with self._lock:
            if managed.holder != holder:
                raise IllegalStateTransitionError(f"{holder} cannot give back task {managed.task.id}: {managed.holder} holds it")
            managed.holder = None
            managed.released_at = self._clock()
            self._idle.notify_all()
            self._work.notify()

    def rest(self, managed: ManagedTask) -> None:
        """Suspend scheduling of a task without work until a batch arrives or a punctuation is due. Called by its holder. A task
        that has records, but not of every partition, is scheduled again after `_REST_SECONDS`.
        """
        stream = managed.task.task
        seconds = _FOREVER
        if stream.buffered or managed.task.calls_running:
            seconds = _REST_SECONDS
        elif managed.task.calls_waiting:
            seconds = _RETRY_SECONDS
        due = stream.next_wall_clock_punctuation
        if due is not None:
            seconds = min(seconds, max(0.0, (due - stream.wall_clock()) / 1000))
        with self._lock:
            if not managed.inbox:
                managed.rests_until = self._clock() + seconds

    def _until_rested(self, now: float) -> float | None:
        times = [managed.rests_until - now for managed in self.tasks.values() if managed.holder is None]  # held ones notify
        return max(0.0, min(times)) if times else None
