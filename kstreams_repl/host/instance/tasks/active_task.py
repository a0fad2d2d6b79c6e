"""A task as its instance holds it: the sans-IO task, its environment, its start offsets, and its work since the last commit."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import get_ident

from kstreams_repl.engine.commit.committed_counts import written_counts
from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, STREAM_TIME, UNKNOWN, changelog_key, encode
from kstreams_repl.engine.commit.protocol import OffsetAndMetadata
from kstreams_repl.engine.runtime.metadata_names import OPERATOR_TIME
from kstreams_repl.engine.runtime.task import FOREVER, CommitPlan, StreamTask
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.host.instance.epochs.lifecycle import TaskLifecycle, TaskState
from kstreams_repl.host.instance.failures.crash_watchdog import TaskCrashMarks
from kstreams_repl.host.instance.state.changelog_retention import FLOOR, ChangelogFloors
from kstreams_repl.host.instance.state.environment_attributes import INPUT, set_as_of
from kstreams_repl.host.instance.tasks.consistent_cut import CUT
from kstreams_repl.host.instance.tasks.task_counters import TaskCounters
from kstreams_repl.system.errors import TaskMigratedError
from kstreams_repl.system.types import RecordBatch, TopicPartition

_LOG = logging.getLogger("kstreams_repl.host.instance")
_FIRST_SLICE = 64
_MOST_METADATA = 4_096
"""The broker's ``offset.metadata.max.bytes``."""
SLICE_SECONDS = 0.05
"""About the longest time of one call to `process`; between two of them a loop looks at its signals and commits."""
_SETTLE_SECONDS = 1.0
_SETTLE_ROWS = 100_000
_SETTLE_BYTES = 64 * 1024 * 1024
_LARGE_PAGES = 10_000
_LARGE_SECONDS = 5.0
_LARGE_ROWS = 200_000
"""The bounds of time and rows where the local stores have so many pages: a commit writes about a page per row, and fewer per row the more
rows it takes. In a store of 2.5 M keys 25,000 rows cost 3.5 us each, 100,000 cost 2.3, 200,000 cost 1.9.
"""
_READERS_SECONDS = 30.0
"""Interval between checks for LMDB readers whose process died: each keeps the pages of its snapshot on disk, whatever is written
later.
"""


def _ignore(processed: bool) -> None:
    """Do nothing: the task is not aligned."""


class ActiveTask:
    """`engine.commit.protocol.CommittingTask` around a `StreamTask`.

    Attributes:
        touched: there was activity since the last commit (records processed, a punctuation, a processor's commit request).
        records: processed since the take-over.
        starts: the start offset of each input partition at the take-over.
        inside: id of the thread that is inside the task, possibly in user code; 0 if none.
        calls: number of times a thread entered the task.
    """

    def __init__(
        self,
        task: StreamTask,
        environment: Environment,
        starts: Mapping[TopicPartition, int],
        changelogs: frozenset[TopicPartition],
        source_logs: frozenset[TopicPartition] = frozenset(),
        token: str = "",
        marks: TaskCrashMarks | None = None,
        life: TaskLifecycle | None = None,
        floors: ChangelogFloors | None = None,
        topic_ids: Mapping[str, str] | None = None,
        version: int = 0,
    ) -> None:
        self.task = task
        self.marks = marks
        if marks is not None:
            marks.active, task.on_punctuation = self, self._punctuating
        self.inside = 0
        self.calls = 0
        self.id = task.id
        self.environment = environment
        self.token = token
        self._version = version
        self.starts = dict(starts)
        self.changelogs = changelogs
        self.floors = floors or ChangelogFloors((), {})
        self.source_logs = source_logs
        self.committed = dict(starts)
        self.commit_id = environment.commit_id
        self.touched = False
        self._slice = _FIRST_SLICE
        self._least = task.least_slice
        """Records of a slice, however slow they are: enough for all threads of the task."""
        self._limit: Callable[[], int] | None = None
        self._moved: Callable[[bool], None] = _ignore
        self.wait = False
        """Set for a commit that the local stores write later: see `may_wait`."""
        self.records = 0
        self.joins = len(starts) > 1
        self.counters = TaskCounters(task)
        self.life = life or TaskLifecycle(task.id)
        self.life.enter(TaskState.RUNNING, f"initialised at commit {environment.commit_id}")
        self.cut: bytes | None = None
        """The consistent-cut note that the stores write with their next commit (`host.instance.tasks.consistent_cut`)."""
        self.passed: Mapping[TopicPartition, int] = {}
        """In a bounded run, positions that have been passed without a record (`host.instance.polling.input_bounds`)."""
        self._activity = 0
        """Records processed and results replayed."""
        self.is_bounded = False
        """Whether the application runs up to its stop offsets; wall-clock punctuations then follow records only."""
        self._plan: CommitPlan | None = None
        self._noted: tuple[int, Mapping[str, int], bytes] = (-1, {}, b"")
        """What `prepare` has encoded for the first partition: its offset, the entries and the counts."""
        self._warned_about_metadata = False
        self._commits_floors = True
        self._positions: dict[str, int] = {}
        self._settled_at = time.monotonic()
        self._readers_at = self._settled_at + _READERS_SECONDS
        self._as_of = 0.0
        self.settled = True
        """Whether the local stores hold the last commit."""
        stores = task.spec.subtopology.stores
        logs = [task.changelog_topic(store.name) for store in stores if store.logging and store.source_topic is None]
        self._log_keys = {topic: changelog_key(topic, (topic_ids or {}).get(topic, "")) for topic in logs}
        ends = {at.topic: environment.positions.get(str(at)) for at in changelogs if at.topic in self._log_keys}
        self._ends = {self._log_keys[topic]: end for topic, end in ends.items() if end is not None}
        """The end of each changelog, by `changelog_key`; a store in memory has one from its first commit here on."""
        self._at_once = any(store.persistent and not store.logging and store.source_topic is None for store in stores)

    def is_internal(self, partition: TopicPartition) -> bool:
        """Return whether an input is an internal topic of the application."""
        spec = self.task.spec
        prefix = f"{spec.application_id}-"
        return partition.topic.startswith(prefix) and partition.topic.removeprefix(prefix) in spec.internal_topics

    def aligned_by(self, limit: Callable[[], int], moved: Callable[[bool], None]) -> None:
        """Process records up to a limit from now on.

        Args:
            limit: returns the event time that must not be processed now.
            moved: called after the buffered records have changed; True: some were processed.
        """
        self._limit, self._moved = limit, moved

    @property
    def is_aligned(self) -> bool:
        """Whether `aligned_by` was called."""
        return self._limit is not None

    def add_records(self, partition: TopicPartition, batch: RecordBatch) -> None:
        """Append records to a queue. Its head is decoded at once; a poison record at the head is skipped and its dead letter is
        sent, which must be part of a commit even if no record can be processed soon.
        """
        dropped = self.task.dropped
        before = sum(dropped.values()) if dropped else 0
        self._enter(True)
        try:
            self.task.add_records(partition, batch)
        finally:
            self._leave()
        self._moved(False)
        if dropped and sum(dropped.values()) != before:
            self.touched = True

    def replay(self) -> int:
        """Replay results of asynchronous nodes without processing further records; return how many."""
        self._enter(False)
        try:
            done = self.task.replay()
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        self.touched = self.touched or done > 0
        self._activity += done
        return done

    def process(self, limit: int) -> int:
        """Process up to `limit` records, fewer where user code is slow, so that commits and signals stay on time and a
        transaction does not exceed its timeout, however long a record takes. Return how many were processed.
        """
        before = FOREVER if self._limit is None else self._limit()
        if before != FOREVER and self.task.calls is None and not self.task.has_before(before):
            return 0
        began = time.monotonic()
        self._enter(False)
        try:
            done = self.task.process(min(limit, self._slice), before)
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        if done:
            self.touched = True
            self.records += done
            self._activity += done
            self._moved(True)
            spent = time.monotonic() - began
            self.counters.sliced(done, spent)
            if spent > SLICE_SECONDS:
                self._slice = max(self._least, int(done * SLICE_SECONDS / spent))
            elif done >= self._slice and spent < SLICE_SECONDS / 2:
                self._slice *= 2
        return done

    def punctuate(self) -> bool:
        """Run the punctuations that are due; return whether any ran."""
        began = time.monotonic()
        self._enter(False)
        try:
            ran = self.task.punctuate_stream_time()
            ran = self.task.punctuate_wall_clock(self._activity if self.is_bounded else None) or ran
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        if ran:
            self.touched = True
            self.counters.punctuate.add(time.monotonic() - began)
        return ran

    @property
    def closed_run(self) -> int | None:
        """The bounded run at whose end the task closed its windows last."""
        return self.task.closed_run

    def close_windows(self, run: int) -> None:
        """Close the windows at the end of a bounded run; the next commit has the results."""
        self._enter(True)
        try:
            self.task.close_windows(run)
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        self.touched = True

    @property
    def calls_running(self) -> bool:
        """Whether calls of asynchronous nodes run, so that results may arrive at any time."""
        calls = self.task.calls
        return calls is not None and (calls.running > 0 or bool(calls.arrived))

    @property
    def calls_waiting(self) -> int:
        """Records in asynchronous nodes, including those that wait for a later try."""
        return 0 if self.task.calls is None else self.task.calls.waiting

    @property
    def results_passed(self) -> dict[TopicPartition, int]:
        """The offsets in logs of durable results before which none is needed."""
        return {} if self.task.calls is None else self.task.calls.deletable()

    def initialize(self) -> None:
        """Call the processors' `init`."""
        self._enter(True)
        try:
            self.task.initialize()
        finally:
            self._leave()

    def _enter(self, works: bool) -> None:
        """Mark that user code may run from here on.

        Args:
            works: user code runs even when the queues are empty.
        """
        self.calls += 1
        self.inside = get_ident()
        marks = self.marks
        if marks is not None and not marks.open and (works or self.task.buffered):
            marks.begin()

    def _leave(self) -> None:
        self.inside = 0
        if self.marks is not None and self.marks.traced:
            self.marks.at(None, None, -1, -1)

    def _punctuating(self) -> None:
        if self.marks is not None and not self.marks.open:
            self.marks.begin()

    def _failed(self, error: Exception) -> None:
        if self.life.state is not TaskState.FAILED:
            self.life.enter(TaskState.FAILED, type(error).__name__)

    # ---- commit.protocol.CommittingTask

    def check_owner(self) -> None:
        """Raise if another owner has taken the task's stores.

        Raises:
            TaskMigratedError: it has.
        """
        owner = getattr(self.environment, "owner", None)
        if owner is not None and owner != self.token:
            raise TaskMigratedError(
                f"another instance has taken over the stores of task {self.id}", task=str(self.id), path=self.environment.path
            )

    def prepare(self, commit_id: int) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Flush the task for a commit; return the offsets and metadata to commit."""
        self.life.enter(TaskState.COMMITTING, f"commit {commit_id}")
        self._as_of = time.time()  # taken before the commit, which proves that no other owner had the task until then
        self._enter(True)
        try:
            plan = self.task.prepare_commit()
        except Exception as error:
            self._failed(error)
            raise
        finally:
            self._leave()
        self._plan = plan = replace(plan, offsets={**plan.offsets, **self._passed_beyond(plan.offsets)})
        self.counters.flushed()
        entries = self._fitting({**plan.metadata, **self.floors.entries(), COMMIT_ID: commit_id, STREAM_TIME: plan.stream_time})
        first, counts = min(self.committed), written_counts(self.task.counts.read())
        version = self._version
        if len(encode(0, entries, counts, None, version)) > _MOST_METADATA:
            counts = b""
            version *= len(encode(0, entries, counts, None, version)) <= _MOST_METADATA
        self._noted = plan.offsets.get(first, self.committed[first]), entries, counts
        return {
            partition: (
                plan.offsets.get(partition, start),
                encode(plan.partition_times.get(partition, -1), entries, *((counts, None, version) if partition == first else ())),
            )
            for partition, start in self.committed.items()
        }

    def with_changelog_ends(self, positions: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the first partition's offset again, with the changelogs' ends in its metadata: nothing if there are none, or they do
        not fit.
        """
        mine = self.id.partition
        keys = self._log_keys
        self._ends |= {keys[log.topic]: end for log, end in positions.items() if log.partition == mine and log.topic in keys}
        offset, entries, counts = self._noted
        plan, first = self._plan, min(self.committed)
        assert plan is not None
        metadata = encode(plan.partition_times.get(first, -1), entries, counts, self._ends, self._version)
        return {first: (offset, metadata)} if self._ends and len(metadata) <= _MOST_METADATA else {}

    def has_passed_more(self) -> bool:
        """Return whether a commit would move an offset although no record was processed."""
        return bool(self._passed_beyond({}))

    def _passed_beyond(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the positions of empty queues that are beyond the offsets of their records."""
        queues = self.task.queues
        return {
            partition: offset
            for partition, offset in self.passed.items()
            if partition in self.committed
            and not queues[partition].size
            and offset > offsets.get(partition, self.committed[partition])
        }

    def _fitting(self, entries: dict[str, int]) -> dict[str, int]:
        """Return the entries that fit into the broker's limit for offset metadata: drop the operators' own stream times if a task
        has too many operators, and then the floors of its changelogs.
        """
        self._commits_floors = True
        if len(encode(0, entries)) <= _MOST_METADATA:
            return entries
        if not self._warned_about_metadata:
            self._warned_about_metadata = True
            _LOG.warning(
                "the %d entries of the offset metadata exceed the %d characters that a broker stores, so the stream times of the task's "
                "operators are not committed: records that are late now may be accepted after a restart. Hint: move some windows into a "
                "sub-topology of their own with repartition()",
                len(entries), _MOST_METADATA, extra={"task": str(self.id)},
            )  # fmt: skip
        fewer = {name: number for name, number in entries.items() if not name.startswith(OPERATOR_TIME)}
        self._commits_floors = len(encode(0, fewer)) <= _MOST_METADATA
        return fewer if self._commits_floors else {name: number for name, number in fewer.items() if not name.startswith(FLOOR)}

    def finish(self, commit_id: int, positions: Mapping[TopicPartition, int]) -> None:
        """Take a successful commit: write it to the local stores, or postpone that."""
        self.life.enter(TaskState.RUNNING, f"commit {commit_id} done")
        plan, self._plan = self._plan, None
        assert plan is not None
        self.committed.update(plan.offsets)
        self.commit_id = commit_id
        self.touched = False
        self.task.tables_committed()
        if self.task.calls is not None:
            self.task.calls.committed(self.committed)
        positions = {log: end for log, end in positions.items() if end != UNKNOWN}
        self._positions |= {str(log): positions[log] for log in self.changelogs if log in positions}
        self._positions |= {str(log): self.committed[log] for log in self.source_logs if log in self.committed}
        self._positions |= {f"{INPUT}{partition}": offset for partition, offset in self.committed.items()}
        self.floors.committed(self._commits_floors)
        self.floors.written(positions)
        self.settled = False
        if self.wait:
            self.task.put_off_commit()
        else:
            self.settle({})
        self.counters.committed()
        if self.marks is not None and self.marks.open:
            self.marks.end()

    def may_wait(self) -> bool:
        """Return whether the local stores may write this commit together with a later one: after a crash the missing rows are
        read from the changelogs. False for a task with a store without a changelog, and beyond limits of time, rows and bytes.
        """
        environment = self.environment
        rows, size = getattr(environment, "unwritten", (0, 0))
        large = getattr(environment, "pages", 0) > _LARGE_PAGES
        seconds, most = (_LARGE_SECONDS, _LARGE_ROWS) if large else (_SETTLE_SECONDS, _SETTLE_ROWS)
        return (
            not self._at_once
            and environment.commit_id >= 0
            and time.monotonic() - self._settled_at < seconds
            and rows < most
            and size < _SETTLE_BYTES
        )

    def settle(self, positions: Mapping[TopicPartition, int]) -> None:
        """Write the postponed commits to the local stores. Call only while there was no activity since the last commit."""
        self._positions |= {str(log): positions[log] for log in self.changelogs if log in positions}
        if self.cut is not None and self.on_disk:
            self.environment.set_attribute(CUT, self.cut)
            set_as_of(self.environment, self._as_of)
        self.task.post_commit(self.commit_id, self._positions)
        self._positions = {}
        self.floors.written(positions)
        self.floors.note(self.environment)
        self._settled_at = time.monotonic()
        self.settled = True
        if self._settled_at >= self._readers_at:
            self._readers_at = self._settled_at + _READERS_SECONDS
            self.environment.reader_check()

    @property
    def logged(self) -> frozenset[TopicPartition]:
        """Changelogs whose end offsets a commit needs."""
        return self.changelogs | self.floors.partitions

    @property
    def on_disk(self) -> bool:
        """Whether other processes can read its stores."""
        return self.environment.path is not None

    def rest(self) -> None:
        """Note that all stores of the instance hold all commits, so that every task may postpone its next ones for the same time.
        """
        self._settled_at = time.monotonic()

    # ---- end

    def close(self, *, keep: bool = False) -> None:
        """Close processors, stores and environment; uncommitted changes are discarded.

        Args:
            keep: leave the environment open.
        """
        if self.life.state is not TaskState.CLOSED:
            self.life.enter(TaskState.CLOSED, "closed")
        try:
            self.environment.rollback()
        finally:
            try:
                self.task.close()
            finally:
                if not keep:
                    self.environment.close()
