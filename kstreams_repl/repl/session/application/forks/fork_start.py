"""The beginning of a fork: one commit of each task of its parent, which goes on meanwhile.

Numbered, after the fork's topics exist: 1. note the ends of the parent's outputs · 2. copy the stores that are on this host, as of their
last commit · 3. choose the last commit of each task. Without topics between tasks these are independent of each other. With such topics
the parent pauses for the choice: only at rest is it known which of their records are of which commit · 4. make the stores as of these
commits from the copies (or an earlier snapshot) and the changelogs · 5. publish them as the fork's base (`state_bases`) · 6. write
unprocessed records and offsets in one transaction (`starting.beginning`).
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.runtime.task_specs import task_specs
from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.engine.topology.names import internal_topic
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.snapshot_directory import snapshot_directory
from kstreams_repl.host.instance.state.state_bases import publish_base
from kstreams_repl.host.instance.state.state_directory import state_root, task_directory
from kstreams_repl.host.journal.journal import TopicRecord
from kstreams_repl.host.kafka.exact_metadata import OffsetAndMetadata
from kstreams_repl.host.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.forks.fork_topology import ForkTopology
from kstreams_repl.repl.session.application.starting.beginning import Beginning
from kstreams_repl.repl.session.cleanup import Cleanup
from kstreams_repl.repl.session.views.past.state.commit_history import CommitHistory, TaskCommit
from kstreams_repl.repl.session.views.past.state.state_builder import StateBuilder, history_of, specs_of
from kstreams_repl.system.errors import IllegalStateError, KStreamsError, TopologyError
from kstreams_repl.system.types import TaskId, TopicPartition

_THREADS = 4
_WAIT_SECONDS = 0.02
_COMMIT_SECONDS = 30.0
"""How long to wait for the first commit of every task, and for one that is in a store to be in the group's offsets."""


@dataclass
class Cut:
    """The commit of each of the parent's tasks at which a fork begins.

    Attributes:
        since: where the parent's outputs ended, or a little before.
        ends: where the topics between its tasks ended.
        gap_seconds: how long the parent was paused for the choice.
    """

    commits: Mapping[TaskId, TaskCommit]
    since: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    gap_seconds: float = 0.0


class ForkStart(Beginning):
    """The beginning of one fork.

    Args:
        runs: what it runs.
        empty: stores of its parent that it begins without, because its topology cannot read their rows.

    Raises:
        DeployError: there are topics, offsets or state under its id.
    """

    def __init__(
        self,
        parent: ApplicationCore,
        runs: ForkTopology,
        empty: tuple[str, ...],
        name: str,
        topology: Topology,
        config: StreamsConfig,
        own: Cleanup,
    ) -> None:
        super().__init__(parent.client, name, topology, config, own=own, where=f"a commit of {parent.name}")
        self._parent, self._runs, self._empty = parent, runs, empty
        self._specs = task_specs(topology, name, config, self.resolved)
        self.cut: Cut | None = None
        self.bases: dict[TopicPartition, int] = {}
        """Where the changelogs of the parent's stores ended."""

    @property
    def inputs(self) -> frozenset[TopicPartition]:
        """The input partitions whose offsets come from the parent."""
        assert self.cut is not None
        return frozenset(self._own_name(at) for commit in self.cut.commits.values() for at in commit.commits)

    def read(self) -> tuple[Iterator[TopicRecord], Mapping[TopicPartition, OffsetAndMetadata]]:
        parent, admin = self._parent, self.client.admin
        work = state_root(self.config) / self.name / f"work-{uuid.uuid4().hex[:8]}"
        work.mkdir(parents=True, mode=0o700)
        try:
            # 1. The ends of the outputs.
            since = admin.end_offsets(self._outputs(), isolation="read_committed")
            # 2. Copies.
            specs = specs_of(parent)
            copies = self._copies(specs, work / "copies")
            # 3. The commits.
            history = history_of(parent)
            least = {task: copies[task][1] if task in copies else 0 for task in specs}
            self.cut = cut = Cut(self._chosen(history, least), since)
            if between := self._between(specs):
                self.cut = cut = self._at_rest(history, least, cut, between)
            # 4. The stores as of then.
            builder = StateBuilder(parent, history, cut.commits, copies={task: path for task, (path, _) in copies.items()})
            builder.fill(work / "state")
            self.bases = dict(builder.ends)
            # 5. The base.
            self._publish(work, specs)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        # 6. What was not processed, and the offsets.
        mine = {at for spec in self._specs.values() for at in spec.partitions}
        committed = {at: commit for of in cut.commits.values() for at, commit in of.commits.items()}
        offsets = {
            own: (0 if at in cut.ends else commit.offset, commit.metadata)
            for at, commit in committed.items() if (own := self._own_name(at)) in mine
        }  # fmt: skip
        return self._unprocessed(cut, {at: commit.offset for at, commit in committed.items()}, mine), offsets

    # ---- which commits

    def _between(self, specs: Mapping[TaskId, TaskSpec]) -> list[TopicPartition]:
        """Return the inputs of the parent's tasks that it writes itself."""
        own = {internal_topic(self._parent.name, topic) for topic in self._parent.topology.internal_topics}
        written = own | (set(self._parent.topology.sink_topics()) - set(self._parent.topology.internal_topics))
        return sorted(at for spec in specs.values() for at in spec.partitions if at.topic in written)

    def _chosen(self, history: CommitHistory, least: Mapping[TaskId, int]) -> dict[TaskId, TaskCommit]:
        """Return the last commit of each task, when the history has one that is not before the copies."""
        deadline = time.monotonic() + _COMMIT_SECONDS
        while True:
            history.update()
            commits = {task: history.of(task)[-1] for task in least if history.of(task)}
            late = [task for task, commit_id in least.items() if task not in commits or commits[task].commit_id < commit_id]
            if not late:
                return commits
            if time.monotonic() > deadline:
                raise IllegalStateError(
                    f"task {late[0]} of {self._parent.name} has no commit to begin at",
                    hint="fork it when it has committed once: app.wait()",
                )
            time.sleep(_WAIT_SECONDS)

    def _at_rest(self, history: CommitHistory, least: Mapping[TaskId, int], cut: Cut, between: Sequence[TopicPartition]) -> Cut:
        """Choose the commits while the parent is paused for it."""
        parent, admin, began = self._parent, self.client.admin, time.monotonic()
        runs = parent.status in ("starting", "running")
        if runs:
            parent.pause()
        try:
            ends, since = admin.settled_end_offsets(between), admin.settled_end_offsets(cut.since)
            inputs = [at for commit in cut.commits.values() for at in commit.commits]
            last = {at: decode(found.metadata).commit_id for at, found in admin.committed_offsets(parent.name, inputs).items()}
            final = {task: max(last.get(at, least[task]) for at in commit.commits) for task, commit in cut.commits.items()}
            commits = self._chosen(history, final)
        finally:
            if runs:
                parent.resume()
        return Cut(commits, since, ends, time.monotonic() - began if runs else 0.0)

    def _outputs(self) -> list[TopicPartition]:
        known = self.client.admin.topics()
        return [TopicPartition(topic, number) for topic in self._runs.outputs for number in range(known.get(topic, 0))]

    # ---- their stores

    def _copies(self, specs: Mapping[TaskId, TaskSpec], folder: Path) -> dict[TaskId, tuple[Path, int]]:
        """Copy the environments of tasks that are on this host; return where, and as of which commit."""

        def copy(task: TaskId) -> tuple[Path, int] | None:
            path, copied = task_directory(state_root(self._parent.config), self._parent.name, task), folder / str(task)
            if not (path / "data.mdb").exists():
                return None
            with suppress(KStreamsError):  # the changelogs have its rows
                with LmdbSnapshot(path) as stores:
                    stores.copy_to(str(copied))
                with LmdbSnapshot(copied) as made:
                    return copied, made.commit_id
            return None

        stateful = [task for task, spec in specs.items() if spec.subtopology.stores]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="fork-copy") as pool:
            found = zip(stateful, pool.map(copy, stateful), strict=True)
            return {task: made for task, made in found if made is not None}

    def _publish(self, work: Path, before: Mapping[TaskId, TaskSpec]) -> None:
        """Publish the base of each task with stores."""
        assert self.cut is not None
        parent, directory = self._parent, snapshot_directory(self.config["repl.snapshot.dir"])
        topics = {at.topic for spec in self._specs.values() for at in spec.partitions} | set(self.own_topics)
        topic_ids = {name: topic.id for name, topic in self.client.admin.describe_topics(topics).items()}
        home = {(store.name, task.partition): task for task, spec in before.items() for store in spec.subtopology.stores}
        committed = {at: commit.offset for of in self.cut.commits.values() for at, commit in of.commits.items()}
        offsets = {self._own_name(at): 0 if at in self.cut.ends else offset for at, offset in committed.items()}

        taken: dict[TaskId, dict[TaskId, list[str]]] = {}
        """By task of the fork: the parent's tasks whose stores it takes."""
        for task, spec in self._specs.items():
            for store in spec.subtopology.stores:
                of = home.get((store.name, task.partition))
                kept = store.logging or store.source_topic is not None  # else what it had at the commit is not known
                if of is not None and kept and store.name not in self._empty:
                    taken.setdefault(task, {}).setdefault(of, []).append(store.name)
        uses = Counter(of for sources in taken.values() for of in sources)

        def publish(task: TaskId) -> None:
            sources = []
            for of, names in taken.get(task, {}).items():
                path = task_directory(work / "state", parent.name, of)
                if uses[of] > 1:  # the stores of one task are those of several now
                    path = Path(shutil.copytree(path, work / f"{task}-from-{of}"))
                sources.append((path, names))
            own = {at: offsets[at] for at in self._specs[task].partitions if at in offsets}
            publish_base(self._specs[task], sources, own, own, topic_ids, directory, work / f"{task}")

        stateful = [task for task, spec in self._specs.items() if spec.subtopology.stores]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="fork-base") as pool:
            list(pool.map(publish, stateful))

    # ---- what was not processed

    def _own_name(self, at: TopicPartition) -> TopicPartition:
        """Return the fork's partition in the place of one of the parent's inputs."""
        prefix = f"{self._parent.name}-"
        logical = at.topic.removeprefix(prefix)
        if at.topic.startswith(prefix) and logical in self._parent.topology.internal_topics:
            return TopicPartition(internal_topic(self.name, logical), at.partition)
        return TopicPartition(self._runs.outputs[at.topic], at.partition) if at.topic in self._runs.loops else at

    def _unprocessed(self, cut: Cut, committed: Mapping[TopicPartition, int], mine: set[TopicPartition]) -> Iterator[TopicRecord]:
        """Yield the records between the parent's tasks that none of these commits has processed."""
        ranges = [OffsetRange(at, min(committed[at], end), end) for at, end in cut.ends.items() if at in committed]
        for at, batch in read_ranges(self.client.settings, ranges):
            own = self._own_name(at)
            if own not in mine:
                raise TopologyError(
                    f"{self._parent.name} has unprocessed records of {at}, which the fork's topology does not read",
                    hint="give the operator that writes the topic the name that it has in the application",
                    topic=at.topic,
                )
            headers = batch.headers or [None] * len(batch)
            for key, value, timestamp, own_headers in zip(batch.keys, batch.values, batch.timestamps, headers, strict=True):
                record: TopicRecord = (own.topic, own.partition, key, value, timestamp, own_headers or [])
                yield record
