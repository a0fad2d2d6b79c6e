"""A task as its instance holds it: the sans-IO task, its environment, where it began, what it has done since the last commit."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic

from kstreams_repl.commit.offset_metadata import COMMIT_ID, STREAM_TIME, encode
from kstreams_repl.commit.protocol import OffsetAndMetadata
from kstreams_repl.errors import KStreamsError, TaskMigratedError
from kstreams_repl.instance.task_counters import TaskCounters
from kstreams_repl.runtime.task import CommitPlan, StreamTask
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.types import TopicPartition

INPUT = "input:"
"""Before the names of input partitions among an environment's positions: the store's commit knows them too (guarantees.md,
take-over step 4).
"""


class ActiveTask:
    """`commit.protocol.CommittingTask` around a `StreamTask`.

    Attributes:
        touched: something happened since the last commit (records taken, a punctuation ran, a processor asked for a commit).
        records: taken since the take-over.
        starts: the offset each input partition was taken over at.
    """

    def __init__(
        self,
        task: StreamTask,
        environment: Environment,
        starts: Mapping[TopicPartition, int],
        changelogs: frozenset[TopicPartition],
        source_logs: frozenset[TopicPartition] = frozenset(),
        token: str = "",
    ) -> None:
        self.task = task
        self.id = task.id
        self.environment = environment
        self.token = token
        self.starts = dict(starts)
        self.changelogs = changelogs
        self.source_logs = source_logs
        self.committed = dict(starts)
        self.commit_id = environment.commit_id
        self.touched = False
        self.records = 0
        self.joins = len(starts) > 1
        self.counters = TaskCounters(task)
        self._plan: CommitPlan | None = None

    def is_internal(self, at: TopicPartition) -> bool:
        """Whether an input is a topic of the application's own."""
        spec = self.task.spec
        prefix = f"{spec.application_id}-"
        return at.topic.startswith(prefix) and at.topic.removeprefix(prefix) in spec.internal_topics

    def process(self, limit: int) -> int:
        began = monotonic()
        done = self.task.process(limit)
        if done:
            self.touched = True
            self.records += done
            self.counters.sliced(done, monotonic() - began)
        return done

    def punctuate(self) -> bool:
        began = monotonic()
        ran = self.task.punctuate_stream_time()
        ran = self.task.punctuate_wall_clock() or ran
        if ran:
            self.touched = True
            self.counters.punctuate.add(monotonic() - began)
        return ran

    # ---- commit.protocol.CommittingTask

    def check_owner(self) -> None:
        owner = getattr(self.environment, "owner", None)
        if owner is not None and owner != self.token:
            raise TaskMigratedError(
                f"another owner has taken the stores of task {self.id} over", task=str(self.id), path=self.environment.path
            )

    def prepare(self, commit_id: int) -> Mapping[TopicPartition, OffsetAndMetadata]:
        plan = self._plan = self.task.prepare_commit()
        self.counters.flushed()
        entries = {**plan.metadata, COMMIT_ID: commit_id, STREAM_TIME: plan.stream_time}
        return {
            at: (plan.offsets.get(at, start), encode(plan.partition_times.get(at, -1), entries))
            for at, start in self.committed.items()
        }

    def finish(self, commit_id: int, positions: Mapping[TopicPartition, int]) -> None:
        plan = self._plan
        if plan is None:
            raise KStreamsError(f"task {self.id} was not prepared for commit {commit_id}", task=str(self.id))
        self._plan = None
        self.committed.update(plan.offsets)
        places = {str(at): positions[at] for at in self.changelogs if at in positions}
        places |= {str(at): self.committed[at] for at in self.source_logs if at in self.committed}
        places |= {f"{INPUT}{at}": offset for at, offset in self.committed.items()}
        self.task.post_commit(commit_id, places)
        self.commit_id = commit_id
        self.touched = False
        self.counters.committed()

    # ---- end

    def close(self, *, keep: bool = False) -> None:
        """Close processors, stores and environment; what was not committed is forgotten."""
        try:
            self.environment.rollback()
        finally:
            try:
                self.task.close()
            finally:
                self.environment.close()
