"""The environments of an instance's tasks: opened, owned, and used only when they fit their changelogs; else rebuilt.

A copy is rebuilt into an *empty* environment (replay over old rows would bring deleted keys back) when it is damaged, when the
machine crashed while it was open, when one of its positions lies outside its changelog, when a changelog was deleted and
recreated, or when it is behind and older than tombstones are kept. Its age is stored in it (`AS_OF`), because opening a file
changes the file's own time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.engine.write_lock import LockedError
from kstreams_repl.host.instance.state.changelogs import ChangelogBounds, ChangelogPartition
from kstreams_repl.host.instance.state.environment_attributes import (
    IN_MEMORY,
    INPUT,
    OWNING_TASK,
    TOPIC_ID,
    age_seconds,
    is_empty,
    set_missing_as_of,
    written_at,
)
from kstreams_repl.host.instance.state.owner_token import end_process, generation_of, is_alive
from kstreams_repl.host.instance.state.state_cleanup import discard, opening
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.errors import KStreamsError, StateStoreError, TaskCorruptedError, TaskMigratedError
from kstreams_repl.system.types import TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment

_LOG = logging.getLogger("kstreams_repl.host.instance")
InForce = Callable[[], bool]
"""Returns whether the generation is still in force and no stop was requested."""
OpenEnvironments = dict[str, Environment]
"""Environments that stay open in this process from one generation to the next, by real path."""
_LOCK_SECONDS = 5.0
_LEAVE_SECONDS = 2.0


def open_environment(
    path: Path,
    spec: TaskSpec,
    token: str,
    opened: Environment | None = None,
    *,
    end_former: bool = False,
    in_force: InForce = lambda: True,
) -> Environment:
    """Open the environment of a task and take ownership; an unreadable one is rebuilt. A task without persistent stores uses no
    disk.

    Args:
        opened: the same environment, open in this process from an earlier generation; it is used as it is.
        end_former: wait for a process of an earlier generation that still has it open, and kill it if it does not leave (at least
            once: the broker would accept late records from it).
        in_force: called before anything is deleted: a zombie must not delete what its successor has opened.

    Raises:
        TaskMigratedError: a successor has the environment already.
    """
    if opened is not None:
        try:
            opened.recycle()
            opened.take_ownership(token)
            return opened
        except StateStoreError as error:
            _LOG.info("reopening the stores: %s", error, extra={"task": str(spec.task_id)})
            with suppress(KStreamsError):
                opened.close()
    if not any(store.persistent for store in spec.subtopology.stores):
        environment: Environment = MemoryEnvironment()
        environment.take_ownership(token)
        return environment
    try:
        return _open_of_task(path, spec, token, end_former)
    except (TaskCorruptedError, LockedError) as error:
        _LOG.warning("rebuilding the stores from their changelogs: %s", error, extra={"task": str(spec.task_id)})
        if not in_force():
            raise TaskMigratedError(f"a newer generation owns task {spec.task_id}", task=str(spec.task_id)) from error
        discard(path)
        return _open_of_task(path, spec, token)


def fresh_environment(environment: Environment, token: str, *, in_force: InForce = lambda: True) -> Environment:
    """Delete the rows and return an empty environment.

    Raises:
        TaskMigratedError: a successor has the environment already.
    """
    if environment.path is None:
        return environment
    path, task = Path(environment.path), environment.attribute(OWNING_TASK)
    environment.close()
    if not in_force():
        raise TaskMigratedError(f"a newer generation owns the stores in {path}", path=str(path))
    discard(path)
    fresh = _open(path, token)
    fresh.set_attribute(OWNING_TASK, task)
    return fresh


def why_not_trusted(
    environment: Environment,
    logs: Sequence[ChangelogPartition],
    bounds: ChangelogBounds,
    *,
    config: StreamsConfig,
    committed: Callable[[], Mapping[TopicPartition, CommittedOffset]],
) -> str | None:
    """Return why a local copy must be rebuilt; None when it may catch up from its own position.

    An old copy is not behind when it holds the last commit of the task. Under exactly once it is also not behind when it lacks
    one offset: the marker of its own last commit. A gap without records would prove nothing: deletions in it may have been
    compacted away.

    Args:
        committed: returns the group's committed offsets of the task's inputs; called only for a copy that is behind and old.
    """
    if environment.path is None or is_empty(environment):
        return None
    behind: list[ChangelogPartition] = []
    for log in logs:
        position = environment.positions.get(str(log.partition))
        if not log.store.persistent or position is None:
            continue
        first, end = bounds.firsts[log.partition], bounds.ends[log.partition]
        stored_id = environment.attribute(TOPIC_ID + log.partition.topic)
        if stored_id == IN_MEMORY:
            return f"store {log.store.name} was in memory since the last commit to disk"
        if stored_id is not None and stored_id.decode() != bounds.topic_ids.get(log.partition.topic, ""):
            return f"topic {log.partition.topic} was deleted and recreated"
        if not log.is_source and position > end:
            return f"its position {position} in {log.partition} is after the end {end}"
        if position + (config.exactly_once and not log.is_source) < end:
            behind.append(log)
        if position < first:
            return f"its position {position} in {log.partition} is before the start {first}"
    age = age_seconds(environment)
    if any(age > log.keeps_deletions_seconds(config) for log in behind) and not _is_last_commit(environment, committed()):
        return f"it is {age:.0f} s old, longer than its changelog keeps deletions (delete.retention.ms)"
    return None


def _is_last_commit(environment: Environment, committed: Mapping[TopicPartition, CommittedOffset]) -> bool:
    """Return whether the rows are those of the task's last commit: no change to them was committed since."""
    commit_id, positions = environment.commit_id, environment.positions
    return commit_id >= 0 and bool(committed) and all(
        decode(known.metadata).commit_id == commit_id and positions.get(f"{INPUT}{partition}") == known.offset
        for partition, known in committed.items()
    )


def _open_of_task(path: Path, spec: TaskSpec, token: str, end_former: bool = False) -> Environment:
    """Open an environment and check that it is this task's; a new one is marked as such with its next commit."""
    environment = _open(path, token, end_former)
    mine, stored = f"{spec.application_id}/{spec.task_id}".encode(), environment.attribute(OWNING_TASK)
    if stored is None:
        environment.set_attribute(OWNING_TASK, mine)
    elif stored != mine:
        from kstreams_repl.engine.stores.engine.failures import corrupted

        environment.close()
        raise corrupted(str(path), f"it belongs to task {stored.decode(errors='replace')}, not to {mine.decode()}")
    return environment


def open_lmdb(path: Path, on_locked: Callable[[str | None], bool] | None = None) -> LmdbEnvironment:
    """Open or create an LMDB environment, without taking ownership.

    Args:
        on_locked: called with the owner token of a process that holds the write lock for too long.

    Raises:
        StateStoreError: the file system failed.
    """
    from kstreams_repl.engine.stores.engine.failures import storage_error
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment

    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with opening(path.parent):
            return LmdbEnvironment(path, lock_timeout=_LOCK_SECONDS, on_locked=on_locked)
    except OSError as error:
        raise storage_error(error, str(path), "opening") from error


def _open(path: Path, token: str, end_former: bool = False) -> Environment:
    written = written_at(path)
    environment = open_lmdb(path, end_process)
    try:
        if end_former:
            _end_former(environment, token)
        environment.take_ownership(token)
        set_missing_as_of(environment, written)
        environment.reader_check()
    except BaseException:
        environment.close()
        raise
    opened: Environment = environment
    return opened


def _end_former(environment: LmdbEnvironment, token: str) -> None:
    """Ensure that no process of an earlier generation still sends: it closes its environments as soon as it sees the new
    generation.
    """
    holder = environment.owner
    if holder is None or generation_of(holder) >= generation_of(token):
        return
    deadline = time.monotonic() + _LEAVE_SECONDS
    while not environment.closed_in_order and is_alive(holder):
        if time.monotonic() > deadline:
            end_process(holder)
            return
        time.sleep(0.02)
