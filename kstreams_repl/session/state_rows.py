"""The rows of an application's stores, read without asking it: LMDB snapshots of its tasks, or the changelog where there are none.

Snapshots show the last commit of each task while it runs; rows are copied out within one short transaction per task. Stores in memory, and
tasks on other machines, are read from their changelogs (the last record of each key).
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import InvalidStateStoreError, UnknownTopicError
from kstreams_repl.inspection.stores import PREFIX, StoreRows
from kstreams_repl.instance.state_directory import application_directory, state_root
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.reading import ranges_of, read_ranges
from kstreams_repl.topology.names import changelog_topic
from kstreams_repl.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.topology.topology import Topology
from kstreams_repl.types import TaskId

_LONG = struct.Struct(">q")
READ_SECONDS = 30.0
_TIMESTAMPED = frozenset(
    {StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.VERSIONED, StoreKind.SUBSCRIPTION}
)
_SEGMENTED = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION})
_one_at_a_time = threading.Lock()
"""LMDB allows one handle per environment and process."""


@dataclass(frozen=True, slots=True)
class StateRows:
    """All of a store's rows, and which commits they are of."""

    parts: tuple[StoreRows, ...]
    as_of: str


def task_directories(config: StreamsConfig, topology: Topology, store: str) -> dict[TaskId, Path]:
    """The environments on this machine of the tasks that hold a store."""
    application = application_directory(state_root(config), config["application.id"])
    subs = {part.id for part in topology.subtopologies() if any(builder.name == store for builder in part.stores)}
    found = {}
    for data in sorted(application.glob("tasks/*/data.mdb")):
        try:
            task = TaskId.parse(data.parent.name)
        except ValueError:
            continue
        if task.subtopology in subs:
            found[task] = data.parent
    return found


def global_directories(config: StreamsConfig) -> list[Path]:
    """The environments of global stores on this machine; each holds all of them."""
    application = application_directory(state_root(config), config["application.id"])
    return sorted(data.parent for data in application.glob("global-*/data.mdb"))


def read_store(admin: Admin, config: StreamsConfig, topology: Topology, builder: StoreBuilder, *, limit: int | None) -> StateRows:
    """The rows of one store in all its tasks.

    Raises:
        InvalidStateStoreError: the store has no state yet, and no changelog to read it from.
    """
    if _is_global(topology, builder.name):
        directories = global_directories(config)[:1]
        parts = [part for path in directories for part in _read_task(path, 0, builder, limit)]
        return StateRows(tuple(part for part, _ in parts), "global")
    tasks = task_directories(config, topology, builder.name) if builder.on_disk(config["default.dsl.store"]) else {}
    found = [
        (task, part, commit) for task, path in tasks.items() for part, commit in _read_task(path, task.partition, builder, limit)
    ]
    if found:
        commits = ", ".join(f"{task}: {commit}" for task, _, commit in found[:8]) + (", …" if len(found) > 8 else "")
        return StateRows(tuple(part for _, part, _ in found), f"as of commits {commits}")
    return _from_changelog(admin, config, builder, limit)


def count_rows(config: StreamsConfig, topology: Topology, builder: StoreBuilder) -> int | None:
    """About how many rows a store has on this machine; None when it has no state here."""
    paths = (
        global_directories(config)[:1]
        if _is_global(topology, builder.name)
        else list(task_directories(config, topology, builder.name).values())
    )
    total = None
    for path in paths:
        try:
            with _snapshot(path) as view:
                total = (total or 0) + view.count(builder.name)
        except InvalidStateStoreError:
            continue
    return total


def get_row(config: StreamsConfig, topology: Topology, builder: StoreBuilder, key: bytes) -> bytes | None:
    """The stored bytes of one key of a key-value store, in whatever task it is."""
    for path in task_directories(config, topology, builder.name).values():
        try:
            with _snapshot(path) as view:
                found: bytes | None = view.get(builder.name, key)
        except InvalidStateStoreError:
            continue
        if found is not None:
            return found
    return None


def _is_global(topology: Topology, store: str) -> bool:
    part = topology.global_stores()
    return part is not None and any(builder.name == store for builder in part.stores)


@contextmanager
def _snapshot(path: Path) -> Iterator[Any]:
    from kstreams_repl.stores.engine.snapshot import LmdbSnapshot

    with _one_at_a_time, LmdbSnapshot(path) as snapshot:
        snapshot.meta()
        for name in snapshot.names():
            snapshot.tree(name)
        with snapshot.transaction() as view:
            yield view


def _read_task(path: Path, partition: int, builder: StoreBuilder, limit: int | None) -> list[tuple[StoreRows, int]]:
    try:
        with _snapshot(path) as view:
            keys, values, complete = view.columns(builder.name, limit=limit, seconds=READ_SECONDS)
            observed = view.attribute(f"{builder.name}/observed-time")
            commit = view.commit_id
    except InvalidStateStoreError:  # nothing committed yet in this task
        return []
    return [(StoreRows(partition, keys, values, -1 if observed is None else _LONG.unpack(observed)[0], complete), commit)]


def _from_changelog(admin: Admin, config: StreamsConfig, builder: StoreBuilder, limit: int | None) -> StateRows:
    if not builder.logging and builder.source_topic is None:
        raise InvalidStateStoreError(
            f"store {builder.name!r} has no state on this machine and no changelog",
            hint="deploy the application first; its rows show with its first commit",
            store=builder.name,
        )
    topic = builder.source_topic or changelog_topic(config["application.id"], builder.name)
    try:
        ranges = ranges_of(admin, topic)
    except UnknownTopicError as error:
        raise InvalidStateStoreError(
            f"store {builder.name!r} has no state yet", hint="deploy the application first", store=builder.name
        ) from error
    latest: dict[int, dict[bytes, bytes]] = {item.partition.partition: {} for item in ranges}
    stamped, segmented = builder.kind in _TIMESTAMPED, builder.kind in _SEGMENTED
    for at, batch in read_ranges(admin.settings, ranges):
        rows = latest[at.partition]
        for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            if key is None:
                continue
            physical = (
                bytes(PREFIX) + key if segmented else _by_time(key) if builder.kind is StoreKind.TIME_ORDERED_WINDOW else key
            )
            if value is None:
                rows.pop(physical, None)
            else:
                rows[physical] = (
                    _LONG.pack(timestamp) + value if stamped or builder.kind is StoreKind.TIME_ORDERED_WINDOW else value
                )
    parts = []
    for partition, rows in latest.items():
        kept = list(rows.items())[:limit]
        parts.append(StoreRows(partition, [k for k, _ in kept], [v for _, v in kept], complete=len(kept) == len(rows)))
    return StateRows(tuple(parts), f"from topic {topic}")


def _by_time(key: bytes) -> bytes:
    """The time-first key of a window store's changelog key."""
    return key[-12:-4] + key[:-12] + key[-4:]
