"""State directories with the stores of tasks as of some of their commits.

They are made from the nearest copy that is not later (an earlier moment asked for before, a snapshot of ``repl.snapshot.dir``, or nothing)
and the records of the changelogs up to the ends that the commit names. What the broker no longer has is an error, never a guess:
a changelog that was compacted later than the moment lacks rows of it (`compaction`).
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import time
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

import orjson

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.runtime.task_specs import task_specs
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.log.changelog_restore import Restorer
from kstreams_repl.engine.topology.partitions import ResolvedTopology
from kstreams_repl.engine.topology.store_builder import StoreBuilder, in_application
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.state.changelog_retention import check_whole, floors_of
from kstreams_repl.host.instance.state.changelogs import ChangelogBounds, ChangelogPartition, changelogs_of
from kstreams_repl.host.instance.state.environment_attributes import INPUT, remember_topics
from kstreams_repl.host.instance.state.snapshot_directory import snapshot_directory
from kstreams_repl.host.instance.state.snapshots import fetch_snapshot, why_refused
from kstreams_repl.host.instance.state.state_directory import application_directory, state_root, task_directory
from kstreams_repl.host.instance.state.state_manager import open_lmdb, why_not_trusted
from kstreams_repl.host.kafka.reading import OffsetRange, read_ranges
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.application.starting.deploy_preview import check
from kstreams_repl.repl.session.views.past.state.commit_history import CommitHistory, TaskCommit
from kstreams_repl.repl.session.views.past.state.compaction import CompactionCheck, refuse_compacted
from kstreams_repl.system.errors import InvalidStateStoreError
from kstreams_repl.system.types import RecordPosition, TaskId, TopicPartition

FOLDER = "past"
KEPT = 8
"""Number of moments whose state is kept on disk."""
KEPT_BYTES = 4 << 30
_MANIFEST = "moment.json"
_BATCH = 50_000
_REPORT_SECONDS = 2.0
_HISTORIES: weakref.WeakKeyDictionary[Topology, CommitHistory] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class _Made:
    """What a directory of a moment was made from: the ends of the changelogs by task, and the broker's ids of their topics."""

    ends: Mapping[str, Mapping[str, int]]
    topic_ids: Mapping[str, str]


def history_of(app: ApplicationCore) -> CommitHistory:
    """Return the commits of an application up to now.

    Raises:
        InvalidStateStoreError: it does not commit exactly once.
    """
    if not app.config.exactly_once:
        raise InvalidStateStoreError(
            f"application {app.name!r} runs at least once: its commits do not say what its stores had at the time",
            hint="processing.guarantee=exactly_once_v2 does; its topics can be read with end=",
        )
    history = _HISTORIES.get(app.topology)
    if history is None:
        history = _HISTORIES[app.topology] = CommitHistory(app.client.admin, app.name, specs_of(app))
    history.update()
    return history


def commit_times(app: ApplicationCore, store: StoreBuilder, most: int = 1000) -> list[int]:
    """Return when the tasks of a store committed (ms), the earliest first; where there are more, `most` of them at even distances.

    Raises:
        InvalidStateStoreError: the application does not commit exactly once.
    """
    history, specs = history_of(app), specs_of(app)
    tasks = [task for task, spec in specs.items() if any(each.name == store.name for each in spec.subtopology.stores)]
    begun = max((history.of(task)[0].at_ms for task in tasks if history.of(task)), default=0)
    times = sorted({commit.at_ms for task in tasks for commit in history.of(task) if commit.at_ms >= begun})
    return [times[index * len(times) // most] for index in range(most)] if len(times) > most else times


def specs_of(app: ApplicationCore) -> dict[TaskId, TaskSpec]:
    """Return the tasks of an application as it is now."""
    return task_specs(app.topology, app.name, app.config, check(app.client.admin, app.topology, app.name, app.config))


def state_directory(
    app: ApplicationCore,
    commits: Mapping[TaskId, TaskCommit],
    history: CommitHistory | None = None,
    resolved: ResolvedTopology | None = None,
) -> Path:
    """Return a state directory (``state.dir``) with the stores of these tasks as of these commits, all of them on disk.

    Args:
        commits: by task of `app`, which may be of another version than the one that the commit's task is of.
        history, resolved: as for `StateBuilder`; None: they are read.

    Raises:
        InvalidStateStoreError: what the stores had then is not known any more.
    """
    builder = StateBuilder(app, history or history_of(app), commits, resolved=resolved)
    builder.make()
    return builder.directory


def all_on_disk(topology: Topology, config: StreamsConfig) -> Topology:
    """Return the topology with every store of its tasks on disk: another process cannot read those in memory."""
    kind, rows = config["default.dsl.store"], config["dsl.store.format"]
    return topology.with_stores(lambda store: replace(in_application(store, kind, rows), persistent=True, follows_default=False))


class StateBuilder:
    """Makes the directory of one moment, if it is not there.

    Args:
        record: after which the task is that `make` adds; None: it adds none.
        resolved: the topology of `app` with the partitions of its topics; None: it is checked here.
        copies: closed environments of some tasks as of an earlier commit, to begin with; they are moved.
    """

    def __init__(
        self,
        app: ApplicationCore,
        history: CommitHistory,
        commits: Mapping[TaskId, TaskCommit],
        record: RecordPosition | None = None,
        resolved: ResolvedTopology | None = None,
        *,
        copies: Mapping[TaskId, Path] = MappingProxyType({}),
    ) -> None:
        self._app, self._history, self._commits, self._copies = app, history, commits, copies
        resolved = resolved or check(app.client.admin, app.topology, app.name, app.config)
        specs = task_specs(all_on_disk(app.topology, app.config), app.name, app.config, resolved)
        self._logs = {task: changelogs_of(specs[task]) for task in commits}
        logs = [log for own in self._logs.values() for log in own]
        now = ChangelogBounds.read(app.client.admin, logs)
        self._topic_ids = now.topic_ids
        self._bounds = ChangelogBounds(now.firsts, {log.partition: self._end(log) for log in logs}, now.topic_ids)
        self._made = _Made(
            {str(task): {str(log.partition): self._bounds.ends[log.partition] for log in own} for task, own in self._logs.items()},
            now.topic_ids,
        )
        layout = [(log.store.name, str(log.store.kind), log.store.retention_ms, log.store.headers) for log in logs]
        commit_ids = {str(task): commit.commit_id for task, commit in commits.items()}
        described = orjson.dumps([asdict(self._made), layout, commit_ids, str(record or "")], option=orjson.OPT_SORT_KEYS)
        self._base = application_directory(state_root(app.config), app.name) / FOLDER
        self.directory = self._base / hashlib.blake2b(described, digest_size=12).hexdigest()

    @property
    def ends(self) -> Mapping[TopicPartition, int]:
        """Where the changelogs ended."""
        return self._bounds.ends

    def make(self, add: Callable[[Path], None] = lambda root: None) -> None:
        """Make the directory, unless it is there.

        Args:
            add: adds tasks to it.

        Raises:
            InvalidStateStoreError: a changelog no longer has what the stores had.
        """
        if self.directory.exists():
            (self.directory / _MANIFEST).touch()
            return
        new = self._base / f".{uuid.uuid4().hex[:12]}"
        new.mkdir(parents=True, mode=0o700)
        try:
            self.fill(new)
            add(new)
            (new / _MANIFEST).write_bytes(orjson.dumps(asdict(self._made)))
            if not self.directory.exists():
                new.rename(self.directory)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        _prune(self._base, self.directory)

    def _end(self, log: ChangelogPartition) -> int:
        """Return the end of a changelog as of its task's commit."""
        commit = self._commits[log.task]
        end = commit.offsets.get(log.partition, 0) if log.is_source else self._history.end_of(commit, log.partition.topic)
        if end is None or end < 0:
            raise InvalidStateStoreError(
                f"{commit} does not say where the changelog of store {log.store.name!r} ended",
                hint="commits of an earlier release, of Kafka Streams on the JVM, or with too many stores for their metadata do not; "
                "ask for a later moment",
                store=log.store.name,
            )
        topic = log.partition.topic
        if not log.is_source and not all(each.may_be_of(topic, self._topic_ids.get(topic, "")) for each in commit.metadata.values()):
            raise InvalidStateStoreError(
                f"the changelog {topic} was deleted after {commit}: its store was reset", hint="there is no later commit yet"
            )
        return end

    def fill(self, root: Path) -> None:
        """Make the stores in a directory of the caller's.

        Raises:
            InvalidStateStoreError: a changelog no longer has what the stores had.
        """
        environments: dict[TaskId, LmdbEnvironment] = {}
        try:
            for task in self._commits:
                path = task_directory(root, self._app.name, task)
                self._copy_nearest(task, path)
                environments[task] = open_lmdb(path)
            self._restore(environments)
            for task, commit in self._commits.items():
                environment = environments[task]
                remember_topics(environment, self._logs[task], self._bounds.topic_ids)
                environment.commit({f"{INPUT}{partition}": offset for partition, offset in commit.offsets.items()}, commit.commit_id)
        finally:
            for environment in environments.values():
                environment.close()

    def _restore(self, environments: Mapping[TaskId, LmdbEnvironment]) -> None:
        app, bounds = self._app, self._bounds
        ranges: list[OffsetRange] = []
        restorers: dict[TopicPartition, list[Restorer]] = {}
        checks: dict[TopicPartition, CompactionCheck] = {}
        for task, logs in self._logs.items():
            floors = floors_of(logs, self._commits[task].metadata.values(), bounds.topic_ids)
            for log in logs:
                partition, environment = log.partition, environments[task]
                floor = floors.get(partition)
                check_whole(environment, log, bounds.firsts[partition], floor)
                end = bounds.ends[partition]
                start = min(max(environment.positions.get(str(partition), 0), bounds.firsts[partition], floor or 0), end)
                ranges.append(OffsetRange(partition, start, end))
                restorers.setdefault(partition, []).append(Restorer(log.store, environment, str(partition)))
                checks[partition] = CompactionCheck(log, start, end)
        whole, done, reported_at = sum(item.end - item.start for item in ranges), 0, time.monotonic()
        for partition, batch in read_ranges(app.client.settings, ranges, batch_size=_BATCH):
            for restorer in restorers[partition]:
                restorer.apply(batch)
            checks[partition].add(batch)
            done += len(batch)
            if time.monotonic() - reported_at > _REPORT_SECONDS:
                reported_at = time.monotonic()
                app.client.report(f"state of {app.name} as of then: {done:,} of {counted(whole, 'offset')} …")
        for partition, own in restorers.items():
            for restorer in own:
                restorer.finish(bounds.ends[partition])
        for task, logs in self._logs.items():
            for log in logs:
                commits = self._history.since_reset(self._commits[task].task, log.partition.topic)
                refuse_compacted(app.client.admin, checks[log.partition], commits)

    # ---- the nearest copy

    def _copy_nearest(self, task: TaskId, path: Path) -> None:
        """Copy the state of an earlier moment to begin with, if there is any."""
        logs = self._logs[task]
        copied = self._copies.get(task)
        if copied is not None and self._fits(copied, logs):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            copied.rename(path)
            return
        nearest = max(self._earlier(task), default=None)
        if nearest is not None:
            shutil.copytree(nearest[1], path)
            return
        path.mkdir(parents=True, mode=0o700)
        uri = self._app.config["repl.snapshot.dir"]
        if uri is not None and logs:
            config, now_ms = self._app.config, int(time.time() * 1000)
            fetch_snapshot(
                snapshot_directory(uri),
                self._app.name,
                str(task),
                path,
                lambda manifest: why_refused(manifest, logs, self._bounds, config=config, now_ms=now_ms),
                level=logging.DEBUG,  # most of them are of later moments
            )

    def _fits(self, copied: Path, logs: Sequence[ChangelogPartition]) -> bool:
        environment = open_lmdb(copied)
        try:
            return why_not_trusted(environment, logs, self._bounds, config=self._app.config, committed=dict) is None
        finally:
            environment.close()

    def _earlier(self, task: TaskId) -> Iterator[tuple[int, Path]]:
        """Yield the directories of moments that are not later, each with how far it is."""
        mine = self._made.ends[str(task)]
        fresh = min((log.keeps_deletions_seconds(self._app.config) for log in self._logs[task]), default=0.0)
        for manifest in self._base.glob(f"*/{_MANIFEST}"):
            try:
                made = _Made(**orjson.loads(manifest.read_bytes()))
                ends, age = made.ends.get(str(task), {}), time.time() - manifest.stat().st_mtime
            except (OSError, ValueError, TypeError):
                continue
            same = ends.keys() == mine.keys() and all(made.topic_ids.get(t) == i for t, i in self._made.topic_ids.items())
            if same and age < fresh and all(ends[log] <= mine[log] for log in mine):
                yield sum(ends.values()), task_directory(manifest.parent, self._app.name, task)


def _prune(base: Path, keep: Path) -> None:
    """Remove the moments that were not asked for for the longest time, beyond `KEPT` and `KEPT_BYTES`."""
    size = 0
    newest_first = sorted(base.glob(f"*/{_MANIFEST}"), key=lambda manifest: manifest.stat().st_mtime, reverse=True)
    for number, manifest in enumerate(newest_first):
        size += sum(file.stat().st_blocks * 512 for file in manifest.parent.rglob("*") if file.is_file())
        if manifest.parent != keep and (number >= KEPT or size > KEPT_BYTES):
            shutil.rmtree(manifest.parent, ignore_errors=True)
