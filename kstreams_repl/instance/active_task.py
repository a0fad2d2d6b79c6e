"""A task as its instance holds it: the sans-IO task, its environment, where it began, what it has done since the last commit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import get_ident

from kstreams_repl.commit.offset_metadata import COMMIT_ID, STREAM_TIME, encode
from kstreams_repl.commit.protocol import OffsetAndMetadata
from kstreams_repl.errors import TaskMigratedError
from kstreams_repl.instance.crash_watch import TaskWatch
from kstreams_repl.instance.cut import CUT
from kstreams_repl.instance.local_state import INPUT, note_time
from kstreams_repl.instance.task_counters import TaskCounters
from kstreams_repl.instance.task_state import TaskLife, TaskState
from kstreams_repl.runtime.task import CommitPlan, StreamTask
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import RecordBatch, TopicPartition

_FIRST_SLICE = 64
_SLICE_SECONDS = 0.05
_SETTLE_SECONDS = 1.0
_SETTLE_ROWS = 100_000
_SETTLE_BYTES = 64 * 1024 * 1024
_READERS_SECONDS = 30.0
"""How far apart readers that died are looked for: each of them keeps the rows of its moment on the disk, whatever is written after."""


class ActiveTask:
    """`commit.protocol.CommittingTask` around a `StreamTask`.

    Attributes:
        touched: something happened since the last commit (records taken, a punctuation ran, a processor asked for a commit).
        records: taken since the take-over.
        starts: the offset each input partition was taken over at.
        inside: the thread that is in the task, in user code for all one knows; 0: none.
        calls: how often one went in.
    """

    def __init__(
        self,
        task: StreamTask,
        environment: Environment,
        starts: Mapping[TopicPartition, int],
        changelogs: frozenset[TopicPartition],
        source_logs: frozenset[TopicPartition] = frozenset(),
        token: str = "",
        watch: TaskWatch | None = None,
        life: TaskLife | None = None,
    ) -> None:
        self.task = task
        self.watch = watch
        if watch is not None:
            watch.active, task.on_punctuation = self, self._punctuating
        self.inside = 0
        self.calls = 0
        self.id = task.id
        self.environment = environment
        self.token = token
        self.starts = dict(starts)
        self.changelogs = changelogs
        self.source_logs = source_logs
        self.committed = dict(starts)
        self.commit_id = environment.commit_id
        self.touched = False
        self._slice = _FIRST_SLICE
        self.wait = False
        """Set for a commit that the local stores take later: see `may_wait`."""
        self.records = 0
        self.joins = len(starts) > 1
        self.counters = TaskCounters(task)
        self.life = life or TaskLife(task.id)
        self.life.enter(TaskState.RUNNING, f"taken over at commit {environment.commit_id}")
        self.cut: bytes | None = None
        """What the stores note with the commit they take next (`instance.cut`)."""
        self._plan: CommitPlan | None = None
        self._places: dict[str, int] = {}
        self._settled_at = time.monotonic()
        self._readers_at = self._settled_at + _READERS_SECONDS
        self._as_of = 0.0
        self.settled = True
        """Whether the local stores hold the last commit."""
        stores = task.spec.subtopology.stores
        self._at_once = any(store.persistent and not store.logging and store.source_topic is None for store in stores)

    def is_internal(self, at: TopicPartition) -> bool:
        """Whether an input is a topic of the application's own."""
        spec = self.task.spec
        prefix = f"{spec.application_id}-"
        return at.topic.startswith(prefix) and at.topic.removeprefix(prefix) in spec.internal_topics

    def add_records(self, at: TopicPartition, batch: RecordBatch) -> None:
        """Append records to a queue; its first one is decoded at once, and passed if it is poison: its dead letter is sent by then, and
        belongs into a commit, whether or not a record can be processed soon.
        """
        dropped = self.task.dropped
        before = sum(dropped.values()) if dropped else 0
        self._enter(True)
        try:
            self.task.add_records(at, batch)
        finally:
            self._leave()
        if dropped and sum(dropped.values()) != before:
            self.touched = True

    def process(self, limit: int) -> int:
        """Process up to `limit` records, fewer where user code is slow: a commit is due, signals are looked for, and a transaction lasts no
        longer than its timeout, whatever a record takes.
        """
        began = time.monotonic()
        self._enter(False)
        try:
            done = self.task.process(min(limit, self._slice))
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        if done:
            self.touched = True
            self.records += done
            spent = time.monotonic() - began
            self.counters.sliced(done, spent)
            if spent > _SLICE_SECONDS:
                self._slice = max(1, int(done * _SLICE_SECONDS / spent))
            elif done >= self._slice and spent < _SLICE_SECONDS / 2:
                self._slice *= 2
        return done

    def punctuate(self) -> bool:
        began = time.monotonic()
        self._enter(False)
        try:
            ran = self.task.punctuate_stream_time()
            ran = self.task.punctuate_wall_clock() or ran
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        if ran:
            self.touched = True
            self.counters.punctuate.add(time.monotonic() - began)
        return ran

    def initialize(self) -> None:
        """Run the processors' `init`."""
        self._enter(True)
        try:
            self.task.initialize()
        finally:
            self._leave()

    def _enter(self, works: bool) -> None:
        """User code may run from here on.

        Args:
            works: it does, also when the queues are empty.
        """
        self.calls += 1
        self.inside = get_ident()
        watch = self.watch
        if watch is not None and not watch.open and (works or self.task.buffered):
            watch.begin()

    def _leave(self) -> None:
        self.inside = 0
        if self.watch is not None and self.watch.traced:
            self.watch.at(None, None, -1, -1)

    def _punctuating(self) -> None:
        if self.watch is not None and not self.watch.open:
            self.watch.begin()

    def _failed(self, error: Exception) -> None:
        if self.life.state is not TaskState.FAILED:
            self.life.enter(TaskState.FAILED, type(error).__name__)

    # ---- commit.protocol.CommittingTask

    def check_owner(self) -> None:
        owner = getattr(self.environment, "owner", None)
        if owner is not None and owner != self.token:
            raise TaskMigratedError(
                f"another owner has taken the stores of task {self.id} over", task=str(self.id), path=self.environment.path
            )

    def prepare(self, commit_id: int) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self.life.enter(TaskState.COMMITTING, f"commit {commit_id}")
        self._as_of = time.time()  # before the commit that proves that nobody else had the task until now
        self._enter(True)
        try:
            plan = self._plan = self.task.prepare_commit()
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        self.counters.flushed()
        entries = {**plan.metadata, COMMIT_ID: commit_id, STREAM_TIME: plan.stream_time}
        return {
            at: (plan.offsets.get(at, start), encode(plan.partition_times.get(at, -1), entries))
            for at, start in self.committed.items()
        }

    def finish(self, commit_id: int, positions: Mapping[TopicPartition, int]) -> None:
        self.life.enter(TaskState.RUNNING, f"commit {commit_id} done")
        plan, self._plan = self._plan, None
        assert plan is not None
        self.committed.update(plan.offsets)
        self.commit_id = commit_id
        self.touched = False
        places = self._places
        places |= {str(at): positions[at] for at in self.changelogs if at in positions}
        places |= {str(at): self.committed[at] for at in self.source_logs if at in self.committed}
        places |= {f"{INPUT}{at}": offset for at, offset in self.committed.items()}
        self.settled = False
        if self.wait:
            self.task.put_off_commit()
        else:
            self.settle({})
        self.counters.committed()
        if self.watch is not None and self.watch.open:
            self.watch.end()

    def may_wait(self) -> bool:
        """Whether the local stores may take this commit together with a later one: what they lack is read from the changelogs again
        after a crash. Not where a store has no changelog, not for long, and not for many rows or long ones.
        """
        environment = self.environment
        rows, size = getattr(environment, "unwritten", (0, 0))
        return (
            not self._at_once
            and environment.commit_id >= 0
            and time.monotonic() - self._settled_at < _SETTLE_SECONDS
            and rows < _SETTLE_ROWS
            and size < _SETTLE_BYTES
        )

    def settle(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit to the local stores what they were spared. Only while nothing has happened since the last commit."""
        self._places |= {str(at): positions[at] for at in self.changelogs if at in positions}
        if self.cut is not None and self.on_disk:
            self.environment.set_attribute(CUT, self.cut)
            note_time(self.environment, self._as_of)
        self.task.post_commit(self.commit_id, self._places)
        self._places = {}
        self._settled_at = time.monotonic()
        self.settled = True
        if self._settled_at >= self._readers_at:
            self._readers_at = self._settled_at + _READERS_SECONDS
            self.environment.reader_check()

    @property
    def on_disk(self) -> bool:
        """Whether others can look at its stores."""
        return self.environment.path is not None

    def rest(self) -> None:
        """All stores of the instance hold all commits now: what comes next may wait as long here as there."""
        self._settled_at = time.monotonic()

    # ---- end

    def close(self, *, keep: bool = False) -> None:
        """Close processors, stores and environment; what was not committed is forgotten.

        Args:
            keep: leave the environment open.
        """
        if self.life.state is not TaskState.CLOSED:
            self.life.enter(TaskState.CLOSED, "let go")
        try:
            self.environment.rollback()
        finally:
            try:
                self.task.close()
            finally:
                if not keep:
                    self.environment.close()
