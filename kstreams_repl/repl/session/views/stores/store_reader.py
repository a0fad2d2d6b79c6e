"""Read the rows of an application's stores without contacting it: from LMDB snapshots of its tasks, else from the changelog.

Snapshots show the last commit of each task while it runs. Rows are copied within one short transaction per task, and all tasks of
a query are read consistently. Stores in memory, and tasks on other machines, are read from their changelogs (the last record of
each key), global tables, which every instance has in memory, from their topics.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.layers.header_rows import without_headers
from kstreams_repl.engine.stores.layers.row_format import have_headers, row_format
from kstreams_repl.engine.stores.log.log_serdes import with_log_serdes
from kstreams_repl.engine.topology.names import changelog_topic
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.control.file_channel import read_lease
from kstreams_repl.host.instance.state.state_directory import application_directory, control_directory, state_root
from kstreams_repl.host.instance.tasks.consistent_cut import CUT, TaskCommit, at_one_commit, instance_commits
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.pictures.wording import counted, moment
from kstreams_repl.repl.inspection.stores import LogRows, StoreRows
from kstreams_repl.system.errors import InvalidStateStoreError, UnknownTopicError
from kstreams_repl.system.types import TaskId

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.engine.lmdb_snapshot import SnapshotView

_LONG = struct.Struct(">q")
_ATTEMPTS = 20
_PAUSE_SECONDS = 0.005
READ_SECONDS = 30.0
FEW = 100
"""Number of other rows that are read in addition to the keys that are looked up."""
POINT_READS = {
    StoreKind.KEY_VALUE: False,
    StoreKind.LRU: False,
    StoreKind.TIMESTAMPED_KEY_VALUE: True,
    StoreKind.VERSIONED: True,
}
"""Kinds with one row (of a versioned store: one latest version) per key, and whether the row begins with its timestamp."""
_one_at_a_time = threading.Lock()
"""LMDB allows one handle per environment and process."""


@dataclass(frozen=True, slots=True)
class StateRows:
    """All rows of a store, and the commits that they are from.

    Attributes:
        as_of: time of the latest of these commits.
        commits: of each task, and of each instance if there are several.
        looked_up: whether these are the rows of some keys, and a few others.
    """

    parts: tuple[StoreRows, ...]
    as_of: str
    commits: str = ""
    looked_up: bool = False


@dataclass(frozen=True, slots=True)
class ChangelogsUntil:
    """Stores are read from their changelogs, wherever their state is.

    Attributes:
        until_ms: of each partition the records before the first one whose timestamp is this or later; None: all.
    """

    until_ms: int | None = None


def read_changelogs(
    admin: Admin, config: StreamsConfig, builders: Sequence[StoreBuilder], changelogs: ChangelogsUntil, *, limit: int | None
) -> dict[str, StateRows]:
    """Return the rows of several stores, read from the topics that log them, each independently.

    Raises:
        InvalidStateStoreError: a store has no such topic, or it begins later than that.
    """
    return {builder.name: _from_changelog(admin, config, builder, limit, changelogs.until_ms) for builder in builders}


def task_directories(config: StreamsConfig, topology: Topology, store: str) -> dict[TaskId, Path]:
    """Return the environments on this machine of the tasks that hold a store."""
    parts = (part for part in topology.subtopologies() if not part.global_)
    subs = {part.id for part in parts if any(builder.name == store for builder in part.stores)}
    return {task: path for task, path in _task_directories(config).items() if task.subtopology in subs}


def _task_directories(config: StreamsConfig) -> dict[TaskId, Path]:
    """Return the environments on this machine, by task.

    An application that now runs on a cluster has none: those on this machine are outdated.
    """
    application = application_directory(state_root(config), config["application.id"])
    directories: dict[TaskId, Path] = {}
    lease = read_lease(control_directory(state_root(config), config["application.id"]))
    if lease is not None and lease.remote:
        return directories
    for data in sorted(application.glob("tasks/*/data.mdb")):
        try:
            task = TaskId.parse(data.parent.name)
        except ValueError:
            continue
        directories[task] = data.parent
    return directories


def read_store(admin: Admin, config: StreamsConfig, topology: Topology, builder: StoreBuilder, *, limit: int | None) -> StateRows:
    """Return the rows of one store, as `read_stores`."""
    return read_stores(admin, config, topology, [builder], limit=limit)[builder.name]


def read_stores(
    admin: Admin,
    config: StreamsConfig,
    topology: Topology,
    builders: Sequence[StoreBuilder],
    *,
    limit: int | None,
    keys: Sequence[bytes] | None = None,
    until_ms: int | None = None,
) -> dict[str, StateRows]:
    """Return consistent rows of several stores of one application, in all their tasks.

    All stores of a task are read in one view. The views of all tasks are taken again until those of each instance are at one
    commit (`host.instance.tasks.consistent_cut`) and none of them has committed in between; after `_ATTEMPTS` attempts the last views
    are used, and `as_of` says so. Global stores, stores in memory and changelogs are read independently.

    Args:
        limit: number of rows of each task and store; None: all.
        keys: look up these keys of stores of `POINT_READS`, and a few other rows, which show the fields of values; None: read all rows.
            Stores that are read from a topic are read as a whole.
        until_ms: read topics up to the first record of this time or later; None: to their ends.

    Raises:
        InvalidStateStoreError: a store has no state yet, and no changelog to read it from.
    """
    places: dict[TaskId, tuple[Path, list[StoreBuilder]]] = {}
    rows: dict[str, StateRows] = {}
    for builder in builders:
        if builder.on_disk(config["default.dsl.store"]):
            for task, path in task_directories(config, topology, builder.name).items():
                places.setdefault(task, (path, []))[1].append(builder)
    found: dict[str, list[tuple[TaskId, StoreRows, int]]] = {}
    times: dict[str, int] = {}
    paths = {task: path for task, (path, _) in places.items()}
    if len(paths) > 1:  # all tasks of their instances are needed to check that they are at one commit
        paths |= _task_directories(config)
    with _views(paths, {str(task) for task in places}) as (views, agreed):
        instances = instance_commits(_task_commit(task, view) for task, view in views.items() if task in places)
        for task, view in views.items():
            for builder in places[task][1] if task in places else ():
                with suppress(InvalidStateStoreError):  # the task has no commit yet
                    part = _read_view(view, task.partition, builder, limit, keys)
                    found.setdefault(builder.name, []).append((task, part, view.commit_id))
                    times[builder.name] = max(times.get(builder.name, 0), view.commit_time_ms or 0)
    for name, parts_of in found.items():
        commits = ", ".join(f"{task}: {commit}" for task, _, commit in parts_of[:8]) + (", …" if len(parts_of) > 8 else "")
        together = f" (instances {', '.join(f'{slot}: {commit}' for slot, commit in instances.items())})" if len(instances) > 1 else ""
        time = moment(times[name] / 1000) if times[name] else f"commits {commits}"
        as_of = f"as of {time}{'' if agreed else ', not consistent'}"
        rows[name] = StateRows(tuple(part for _, part, _ in parts_of), as_of, f"{name}: commits {commits}{together}", keys is not None)
    return {
        builder.name: rows[builder.name] if builder.name in rows else _from_changelog(admin, config, builder, limit, until_ms)
        for builder in builders
    }


@contextmanager
def _views(paths: Mapping[TaskId, Path], asked: Collection[str]) -> Iterator[tuple[dict[TaskId, SnapshotView], bool]]:
    """Yield a view of each committed environment, and whether the views are consistent, each instance at one of its commits.

    They are if, after the last view was taken, no environment had a later commit, and no environment of an instance lacked a
    commit.
    """
    from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot

    with ExitStack() as opened:
        opened.enter_context(_one_at_a_time)
        snapshots = {}
        for task, path in paths.items():
            with suppress(InvalidStateStoreError):
                snapshot = opened.enter_context(LmdbSnapshot(path))
                snapshot.meta()
                for name in snapshot.names():
                    snapshot.tree(name)
                snapshots[task] = snapshot
        for attempt in range(_ATTEMPTS):
            with ExitStack() as taken:
                views = {task: taken.enter_context(snapshot.transaction()) for task, snapshot in snapshots.items()}
                agreed = len(views) < 2 or (
                    at_one_commit((_task_commit(task, view) for task, view in views.items()), asked)
                    and all(snapshots[task].commit_id == view.commit_id for task, view in views.items())
                )
                if agreed or attempt == _ATTEMPTS - 1:
                    yield views, agreed
                    return
            time.sleep(_PAUSE_SECONDS * (attempt + 1))


def _task_commit(task: TaskId, view: SnapshotView) -> TaskCommit:
    return TaskCommit(str(task), view.owner, view.commit_id, view.attribute(CUT))


def count_rows(config: StreamsConfig, topology: Topology, builder: StoreBuilder) -> int | None:
    """Return the approximate number of rows of a store on this machine; None when it has no state here."""
    total = None
    for path in task_directories(config, topology, builder.name).values():
        try:
            with _snapshot(path) as view:
                total = (total or 0) + view.count(builder.name)
        except InvalidStateStoreError:
            continue
    return total


@contextmanager
def _snapshot(path: Path) -> Iterator[SnapshotView]:
    from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot

    with _one_at_a_time, LmdbSnapshot(path) as snapshot:
        snapshot.meta()
        for name in snapshot.names():
            snapshot.tree(name)
        with snapshot.transaction() as view:
            yield view


def _read_view(
    view: SnapshotView, partition: int, builder: StoreBuilder, limit: int | None, wanted: Sequence[bytes] | None
) -> StoreRows:
    plain = without_headers if have_headers(view.attribute(row_format(builder.name))) else bytes
    if wanted is not None:
        found = {key: value for key in wanted if (value := view.get(builder.name, key)) is not None}
        found |= view.read(builder.name, limit=FEW)[0]
        return StoreRows(partition, list(found), list(map(plain, found.values())))
    keys, values, complete = view.columns(builder.name, limit=limit, seconds=READ_SECONDS)
    if plain is without_headers:
        values = list(map(plain, values))
    observed = view.attribute(f"{builder.name}/observed-time")
    return StoreRows(partition, keys, values, -1 if observed is None else _LONG.unpack(observed)[0], complete)


def _from_changelog(
    admin: Admin, config: StreamsConfig, builder: StoreBuilder, limit: int | None, until_ms: int | None = None
) -> StateRows:
    if not builder.logging and builder.source_topic is None:
        raise InvalidStateStoreError(
            f"store {builder.name!r} has no state on this machine and no changelog",
            hint="start the application: app.start(); its rows appear with its first commit",
            store=builder.name,
        )
    topic = builder.source_topic or changelog_topic(config["application.id"], builder.name)
    refuse_what_a_processor_fills(builder)
    try:
        ranges = ranges_of(admin, topic, until_ms=until_ms)
    except UnknownTopicError as error:
        raise InvalidStateStoreError(
            f"store {builder.name!r} has no state yet: its topic {topic} does not exist",
            hint="start the application: app.start()",
            store=builder.name,
        ) from error
    builder = with_log_serdes(builder, config)
    logs = {item.partition.partition: LogRows(builder, item.partition.partition) for item in ranges}
    records = 0
    for partition, batch in read_ranges(admin.settings, ranges):
        logs[partition.partition].add(batch)
        records += len(batch)
    read = f"from topic {topic}"
    if until_ms is not None:
        for item in ranges:
            if 0 < item.start == item.end:
                raise InvalidStateStoreError(
                    f"store {builder.name!r} cannot be read as of {moment((until_ms - 1) / 1000)}: "
                    f"{item.partition} begins later, at offset {item.start}",
                    hint="what retention has removed is gone: ask for a later time",
                    store=builder.name,
                )
        read += f" as of {moment((until_ms - 1) / 1000)}"
        if without := sum(item.end - item.start for item in ranges) - records:
            read += f"; {counted(without, 'offset')} without a record: of transactions, or of rows replaced later, which may be missing"
    return StateRows(tuple(log.rows(limit) for log in logs.values()), read)


def refuse_what_a_processor_fills(builder: StoreBuilder) -> None:
    """Raise if a processor writes the rows of a global store: its topic does not have them.

    Raises:
        InvalidStateStoreError: a processor writes them.
    """
    if builder.options.get("reprocess_on_restore"):
        topic = builder.source_topic
        raise InvalidStateStoreError(
            f"the rows of global store {builder.name!r} cannot be read: its processor writes them, in the memory of each instance",
            hint=f"read the topic that its processor reads: session.read({topic!r})",
            store=builder.name,
        )
