"""The earlier commits of an application's tasks, and which of them a moment means."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kstreams_repl.engine.commit.offset_metadata import UNKNOWN, OffsetMetadata, decode
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.offset_history import FORGOTTEN, OffsetCommit, OffsetHistory
from kstreams_repl.pictures.wording import moment as time_text
from kstreams_repl.repl.session.views.past.moments import Moment
from kstreams_repl.system.errors import InvalidStateStoreError
from kstreams_repl.system.types import RecordPosition, TaskId, TopicPartition


@dataclass(slots=True, eq=False)
class TaskCommit:
    """One commit of a task. Its metadata is decoded when it is needed. Each is equal to itself only: it is looked up among thousands.

    Attributes:
        at_ms: the broker's time of the commit.
        first: whether it is known that the task had no commit before.
    """

    task: TaskId
    at_ms: int
    commits: dict[TopicPartition, OffsetCommit]
    first: bool = False
    _metadata: dict[TopicPartition, OffsetMetadata] = field(default_factory=dict)

    @property
    def metadata(self) -> Mapping[TopicPartition, OffsetMetadata]:
        """What was committed with the offset of each input partition."""
        if not self._metadata:
            self._metadata = {partition: decode(commit.metadata) for partition, commit in self.commits.items()}
        return self._metadata

    @property
    def commit_id(self) -> int:
        """Its number; -1 if another program wrote it."""
        return max(each.commit_id for each in self.metadata.values())

    @property
    def stream_time(self) -> int:
        return max(each.stream_time for each in self.metadata.values())

    @property
    def version(self) -> int:
        """The version of the topology that wrote it; 0: it does not say."""
        return max(each.version for each in self.metadata.values())

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each input partition."""
        return {partition: commit.offset for partition, commit in self.commits.items()}

    def end_of(self, topic: str) -> int | None:
        """Return the end of a changelog, as far as this commit says it."""
        return next((end for each in self.metadata.values() if (end := each.end_of(topic)) is not None), None)

    def id_of(self, topic: str) -> int:
        """Return the checksum of the id that the changelog had, as far as this commit says it; 0: it does not."""
        return max(each.id_of(topic) for each in self.metadata.values())

    def __str__(self) -> str:
        return f"commit {self.commit_id} of task {self.task}, {time_text(self.at_ms / 1000)}"


class CommitHistory:
    """The commits of an application's tasks that the broker still has.

    Args:
        tasks: of the application, as it is now.
    """

    def __init__(self, admin: Admin, application_id: str, tasks: Mapping[TaskId, TaskSpec]) -> None:
        self._offsets = OffsetHistory(admin, application_id)
        self._task_of = {partition: task for task, spec in tasks.items() for partition in spec.partitions}
        self._commits: dict[TaskId, list[TaskCommit]] = {task: [] for task in tasks}
        self.tasks = list(tasks)
        self._begins: dict[tuple[TaskId, str], tuple[int, int, int, int]] = {}
        """By task and changelog: the first commit of the changelog that there is now, how many commits were looked at, the last end and id.
        """

    def update(self) -> None:
        """Read the commits since the last call.

        Raises:
            KStreamsError: the broker does not give them.
        """
        for commit in self._offsets.read():
            task = self._task_of.get(commit.partition)
            if task is None:
                continue
            known = self._commits[task]
            before = known[-1].commits.get(commit.partition) if known else None
            if commit.offset == FORGOTTEN or not commit.metadata or (before is not None and commit.offset < before.offset):
                known.clear()  # reset: what follows does not continue what was before
                self._begins.clear()
                if commit.offset == FORGOTTEN or not commit.metadata:
                    continue
            if not known or commit.partition in known[-1].commits:
                known.append(TaskCommit(task, commit.at_ms, {}))
            known[-1].commits[commit.partition] = commit

    def of(self, task: TaskId) -> list[TaskCommit]:
        """Return the known commits of a task, the earliest first."""
        return self._commits[task]

    def at(self, moment: Moment) -> dict[TaskId, TaskCommit]:
        """Return the last commit of each task up to a moment; a task that had none yet is left out.

        For a record it is the commit *before* the one that has the record, in its own task; in others the last one before that.

        Raises:
            InvalidStateStoreError: the broker has no commit as early as that, or the record is not committed yet.
        """
        if moment.record is not None:
            before, after = self.around(moment.record)
            if after is None:
                raise InvalidStateStoreError(
                    f"record {moment.record} is not committed as processed yet",
                    hint=f"the last commit is {before}" if before is not None else "the application has no commit yet",
                )
            found = self._up_to(Moment("time", after.at_ms - 1))
            found.pop(after.task, None)
            return found | ({} if before is None else {after.task: before})
        found = self._up_to(moment)
        if not found:
            raise _too_early(moment, min((own[0] for own in self._commits.values() if own), key=lambda commit: commit.at_ms, default=None))
        return found

    def _up_to(self, moment: Moment) -> dict[TaskId, TaskCommit]:
        """Return the last commit of each task up to a commit's number or a time; a task that began later is left out.

        Raises:
            InvalidStateStoreError: the broker has no commit of a task as early as that.
        """
        key: Callable[[TaskCommit], int] = {
            "commit": lambda commit: commit.commit_id,
            "stream time": lambda commit: commit.stream_time,
        }.get(moment.kind, lambda commit: commit.at_ms)
        found = {}
        for task, commits in self._commits.items():
            number = bisect_right(commits, moment.number, key=key)
            if number:
                found[task] = commits[number - 1]
            elif commits and commits[0].commit_id != 1:
                raise _too_early(moment, commits[0])
        return found

    def task_of(self, record: RecordPosition) -> TaskId:
        """Return the task that reads a record.

        Raises:
            InvalidStateStoreError: none does.
        """
        partition = TopicPartition(record.topic, record.partition)
        task = self._task_of.get(partition)
        if task is None:
            raise InvalidStateStoreError(
                f"no task of the application reads {partition}", hint=f"it reads {', '.join(map(str, sorted(self._task_of)))}"
            )
        return task

    def around(self, record: RecordPosition) -> tuple[TaskCommit | None, TaskCommit | None]:
        """Return the last commit of its task without a record (None: the task began with it), and the first one with it (None: it is not
        committed yet).

        Raises:
            InvalidStateStoreError: no task reads it, or the broker has no commit as early as that.
        """
        commits = self._commits[self.task_of(record)]
        partition = TopicPartition(record.topic, record.partition)
        number = bisect_right(commits, record.offset, key=lambda commit: commit.offsets.get(partition, 0))
        if not number and commits and commits[0].commit_id != 1:
            raise _too_early(Moment("record", record=record), commits[0])
        return (commits[number - 1] if number else None), (commits[number] if number < len(commits) else None)

    def begin_of(self, task: TaskId, topic: str) -> int:
        """Return the index of the first commit of the changelog of the last commit: a store that is reset gets another one, with another id
        of its topic. Commits of an earlier release do not name the id; there it is seen by its end, if that is before the old one's.
        """
        commits = self._commits[task]
        begin, seen, last, id_ = self._begins.get((task, topic), (0, 0, UNKNOWN, 0))
        for number in range(seen, len(commits)):
            commit = commits[number]
            if (end := commit.end_of(topic)) is None:
                continue
            now = commit.id_of(topic)
            if (id_ and now and now != id_) or UNKNOWN < end < last:
                begin, last = number, UNKNOWN
            last, id_ = max(last, end), now or id_
        self._begins[task, topic] = begin, len(commits), last, id_
        return begin

    def since_reset(self, task: TaskId, topic: str) -> list[TaskCommit]:
        """Return the commits of the changelog that there is now, the earliest first."""
        return self._commits[task][self.begin_of(task, topic) :]

    def end_of(self, commit: TaskCommit, topic: str) -> int | None:
        """Return the end of a changelog as of a commit: as the commit says it, or the last one before it that does; None: not known.

        Raises:
            InvalidStateStoreError: it was another changelog, which was deleted since.
        """
        commits = self._commits[commit.task]
        if commits.index(commit) < (begin := self.begin_of(commit.task, topic)):
            raise InvalidStateStoreError(
                f"the changelog {topic} was deleted after {commit}: its store was reset",
                hint=f"the earliest is {commits[begin]}",
            )
        for earlier in reversed(commits[: commits.index(commit) + 1]):
            if (end := earlier.end_of(topic)) is not None:
                return end
        return 0 if commits[0].commit_id == 1 else None


def _too_early(moment: Moment, earliest: TaskCommit | None) -> InvalidStateStoreError:
    if earliest is None:
        return InvalidStateStoreError("the application has no commit yet", hint="its past begins with its first commit")
    which = "the first commit" if earliest.commit_id == 1 else "the earliest commit that the broker still has"
    return InvalidStateStoreError(f"{moment} is before {which}", hint=f"the earliest is {earliest}")
