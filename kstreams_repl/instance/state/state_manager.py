"""The environments of an instance's tasks: opened, owned, and used only when they fit their changelogs; else rebuilt.

A copy is rebuilt into an *empty* environment (replay over old rows would bring deleted keys back) when it is damaged, when the
machine crashed while it was open, when one of its positions lies outside its changelog, when a changelog was deleted and
recreated, or when it is behind and older than tombstones are kept. Its age is stored in it (`AS_OF`), because opening a file
changes the file's own time.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import struct
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.commit.offset_metadata import decode
from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import KStreamsError, StateStoreError, TaskCorruptedError, TaskMigratedError
from kstreams_repl.instance.state.state_cleanup import opening
from kstreams_repl.kafka.admin import Admin, CommittedOffset
from kstreams_repl.runtime.task import TaskSpec
from kstreams_repl.stores.engine.base import Environment
from kstreams_repl.stores.engine.memory import MemoryEnvironment
from kstreams_repl.stores.engine.write_lock import LockedError
from kstreams_repl.topology.internal_topics import WINDOWED_KINDS
from kstreams_repl.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from kstreams_repl.stores.engine.lmdb import LmdbEnvironment

_LOG = logging.getLogger("kstreams_repl.instance")
InForce = Callable[[], bool]
"""Returns whether the generation is still in force and no stop was requested."""
_LOCK_SECONDS = 5.0
_LEAVE_SECONDS = 2.0
TOMBSTONE_SECONDS = 24 * 60 * 60
"""How long a changelog keeps deletions (``delete.retention.ms``) by default."""
AS_OF = "as-of"
"""Name of the time (ms since 1970) as of which an environment's rows were up to date: it has all deletions before that time."""
_LONG = struct.Struct(">q")
TOPIC_ID = "topic-id:"
NOT_KEPT = b"in memory"
"""Replaces the id of a changelog whose store is now in memory: the rows that it left here get older, however recent the others
are.
"""
WHOSE = "whose"
"""Name of the application and task that an environment's rows belong to."""
INPUT = "input:"
"""Prefix of input partitions' names among an environment's positions: the store's commit holds their offsets too (guarantees.md,
take-over step 4).
"""
MADE_ANEW = -2
"""Replaces an input's offset after its topic was deleted and recreated since the last commit; it begins like a new one."""


@dataclass(frozen=True, slots=True)
class Changelog:
    """One store of one task and the partition of its log."""

    task: TaskId
    store: StoreBuilder
    partition: TopicPartition

    @property
    def is_source(self) -> bool:
        """Whether the log is an input of the task: it is restored up to the committed offset, not to its end."""
        return self.store.source_topic is not None

    @property
    def is_timed(self) -> bool:
        """Whether its records expire with their windows (`changelog_retention`)."""
        return not self.is_source and self.store.kind in WINDOWED_KINDS

    @property
    def keeps_all(self) -> bool:
        """Whether its topic is compacted only: its start stays 0 unless records are deleted explicitly."""
        timed = self.store.retention_ms is not None and self.store.kind is not StoreKind.VERSIONED
        return not self.is_source and not timed and "delete" not in str((self.store.topic_config or {}).get("cleanup.policy", ""))


def changelogs_of(spec: TaskSpec) -> list[Changelog]:
    """Return the logs of a task's stores; stores without a log are left out."""
    logs = []
    for store in spec.subtopology.stores:
        topic = store.source_topic
        if topic is not None:
            topic = f"{spec.application_id}-{topic}" if topic in spec.internal_topics else topic
        elif store.logging:
            topic = f"{spec.application_id}-{store.name}-changelog"
        if topic is not None:
            logs.append(Changelog(spec.task_id, store, TopicPartition(topic, spec.task_id.partition)))
    return logs


def owner_token(generation: int, slot: int) -> str:
    """Return a new owner token of an environment: generation, slot, process and a unique number."""
    return f"{generation}/{slot}/{os.getpid()}/{start_time(os.getpid())}/{uuid.uuid4().hex}"


def is_held(owner: str, closed: bool) -> bool:
    """Return whether another living process uses an environment with this owner token; False when it was closed in order."""
    parts = owner.split("/")
    if closed or len(parts) < 5 or not parts[2].isdigit() or int(parts[2]) == os.getpid():
        return False
    return start_time(int(parts[2])) == parts[3]


def forget_inputs(environment: Environment) -> None:
    """Drop the input offsets of the task's last commit: the stores advance without their task, so these offsets no longer match.
    """
    stale = {name: -1 for name, at in environment.positions.items() if name.startswith(INPUT) and at >= 0}
    if stale:
        environment.commit(stale, environment.commit_id)


def open_environment(
    path: Path,
    spec: TaskSpec,
    token: str,
    spare: Environment | None = None,
    *,
    end_former: bool = False,
    in_force: InForce = lambda: True,
) -> Environment:
    """Open the environment of a task and take ownership; an unreadable one is rebuilt. A task without persistent stores uses no
    disk.

    Args:
        spare: the same environment, open in this process from a former generation; it is used as it is.
        end_former: wait for a process of an earlier generation that still has it open, and kill it if it does not leave (at least
            once: the broker would accept late records from it).
        in_force: called before anything is deleted: a zombie must not delete what its successor has opened.

    Raises:
        TaskMigratedError: a successor has the environment already.
    """
    if spare is not None:
        try:
            spare.recycle()
            spare.take_ownership(token)
            return spare
        except StateStoreError as error:
            _LOG.info("reopening the stores: %s", error, extra={"task": str(spec.task_id)})
            with suppress(KStreamsError):
                spare.close()
    if not any(store.persistent for store in spec.subtopology.stores):
        environment: Environment = MemoryEnvironment()
        environment.take_ownership(token)
        return environment
    try:
        environment = _open(path, token, end_former)
        _check_whose(environment, spec)
        return environment
    except (TaskCorruptedError, LockedError) as error:
        _LOG.warning("rebuilding the stores from their changelogs: %s", error, extra={"task": str(spec.task_id)})
        if not in_force():
            raise TaskMigratedError(f"a newer generation has task {spec.task_id}", task=str(spec.task_id)) from error
        discard(path)
        environment = _open(path, token)
        _check_whose(environment, spec)
        return environment


def _check_whose(environment: Environment, spec: TaskSpec) -> None:
    """Reject stores that belong to another task; mark new ones as this task's, with their next commit."""
    mine = f"{spec.application_id}/{spec.task_id}".encode()
    told = environment.attribute(WHOSE)
    if told is None:
        environment.set_attribute(WHOSE, mine)
    elif told != mine:
        from kstreams_repl.stores.engine.failures import corrupted

        path = environment.path or ""
        environment.close()
        raise corrupted(path, f"it is that of {told.decode(errors='replace')}")


def fresh_environment(environment: Environment, token: str, *, in_force: InForce = lambda: True) -> Environment:
    """Delete the rows and return an empty environment.

    Raises:
        TaskMigratedError: a successor has the environment already.
    """
    if environment.path is None:
        return environment
    path, whose = Path(environment.path), environment.attribute(WHOSE)
    environment.close()
    if not in_force():
        raise TaskMigratedError(f"a newer generation has the stores in {path}", path=str(path))
    discard(path)
    fresh = _open(path, token)
    fresh.set_attribute(WHOSE, whose)
    return fresh


def why_not_trusted(
    environment: Environment,
    logs: Sequence[Changelog],
    firsts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, str],
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
    if environment.path is None or _is_empty(environment):
        return None
    behind: list[Changelog] = []
    for log in logs:
        if not log.store.persistent:
            continue
        position = environment.positions.get(str(log.partition))
        if position is None:
            continue
        known = environment.attribute(TOPIC_ID + log.partition.topic)
        if known == NOT_KEPT:
            return f"store {log.store.name} was kept in memory meanwhile"
        if known is not None and known.decode() != topic_ids.get(log.partition.topic, ""):
            return f"{log.partition.topic} was deleted and made again"
        if not log.is_source and position > ends[log.partition]:
            return f"the position {position} lies after the end {ends[log.partition]} of {log.partition}"
        if position + (config.exactly_once and not log.is_source) < ends[log.partition]:
            behind.append(log)
        if position < firsts[log.partition]:
            return f"the position {position} lies before the start {firsts[log.partition]} of {log.partition}"
    age = age_seconds(environment)
    if any(age > keeps_deletions_seconds(log, config) for log in behind) and not _is_last_commit(environment, committed()):
        return "it is older than the changelog keeps deletions"
    return None


def keeps_deletions_seconds(log: Changelog, config: StreamsConfig) -> float:
    """Return how long a changelog keeps deletions at least, in seconds, as the application has configured it."""
    said = None if log.is_source else {**config.topic_configs, **(log.store.topic_config or {})}.get("delete.retention.ms")
    return TOMBSTONE_SECONDS if said is None else int(said) / 1000


def age_seconds(environment: Environment) -> float:
    """Return the seconds since the rows were known to be up to date with the changelogs."""
    said = environment.attribute(AS_OF)
    return 0.0 if said is None else time.time() - _LONG.unpack(said)[0] / 1000


def note_time(environment: Environment, seconds: float) -> None:
    """Note, with the next commit, that the rows are up to date as of `seconds` since 1970."""
    environment.set_attribute(AS_OF, _LONG.pack(int(seconds * 1000)))


def _is_empty(environment: Environment) -> bool:
    return environment.commit_id < 0 and not environment.positions


def _is_last_commit(environment: Environment, committed: Mapping[TopicPartition, CommittedOffset]) -> bool:
    """Return whether the rows are those of the task's last commit: no change to them was committed since."""
    mine, at = environment.commit_id, environment.positions
    return mine >= 0 and bool(committed) and all(
        decode(known.metadata).commit_id == mine and at.get(f"{INPUT}{place}") == known.offset for place, known in committed.items()
    )


def remember_topics(environment: Environment, logs: Sequence[Changelog], topic_ids: Mapping[str, str]) -> None:
    """Store the topic ids with the rows' next commit. The age of rows that begin now counts from now."""
    if environment.attribute(AS_OF) is None:
        note_time(environment, time.time())
    for log in logs:
        topic_id = topic_ids.get(log.partition.topic)
        if topic_id is not None:
            kept = log.store.persistent or log.is_source
            environment.set_attribute(TOPIC_ID + log.partition.topic, topic_id.encode() if kept else NOT_KEPT)


def remember_inputs(
    environment: Environment, inputs: Collection[TopicPartition], topic_ids: Mapping[str, str], former: Mapping[str, str]
) -> None:
    """Store the topic ids of a task's inputs, too. If an input's topic was deleted and recreated, the last commit's offset here
    belongs to other records: it is dropped at once, as the broker dropped the group's with the topic.

    Args:
        former: the ids stored here before, if the environment had to be rebuilt.
    """
    if environment.path is None:
        return
    known = known_ids(environment, inputs) | dict(former)
    remade = {topic for topic, topic_id in topic_ids.items() if known.get(topic, topic_id) != topic_id}
    anew = {f"{INPUT}{at}": MADE_ANEW for at in inputs if at.topic in remade}
    for at in inputs:
        if at.topic in topic_ids:
            environment.set_attribute(TOPIC_ID + at.topic, topic_ids[at.topic].encode())
    if anew:
        environment.commit(anew, environment.commit_id)


def known_ids(environment: Environment, inputs: Collection[TopicPartition]) -> dict[str, str]:
    """Return the stored ids of the inputs' topics."""
    kept = {at.topic: environment.attribute(TOPIC_ID + at.topic) for at in inputs}
    return {topic: known.decode() for topic, known in kept.items() if known is not None}


def topic_ids_of(admin: Admin, logs: Sequence[Changelog], inputs: Iterable[TopicPartition] = ()) -> dict[str, str]:
    """Return the broker's id of each changelog topic and each input topic."""
    wanted = {log.partition.topic for log in logs} | {at.topic for at in inputs}
    return {name: topic.id for name, topic in admin.describe_topics(wanted).items()}


def _open(path: Path, token: str, end_former: bool = False) -> Environment:
    from kstreams_repl.stores.engine.failures import storage_error
    from kstreams_repl.stores.engine.lmdb import LmdbEnvironment

    written = written_at(path)
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        with opening(path.parent):
            environment = LmdbEnvironment(path, lock_timeout=_LOCK_SECONDS, on_locked=end_process)
    except OSError as error:
        raise storage_error(error, str(path), "opening") from error
    try:
        if end_former:
            _end_former(environment, token)
        environment.take_ownership(token)
        date_former(environment, written)
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
    if holder is None or int(holder.split("/")[0]) >= int(token.split("/")[0]):
        return
    deadline = time.monotonic() + _LEAVE_SECONDS
    while not environment.closed_in_order and _is_alive(holder):
        if time.monotonic() > deadline:
            end_process(holder)
            return
        time.sleep(0.02)


def _is_alive(token: str) -> bool:
    """Return whether the process of a token is alive and another process than this one."""
    parts = token.split("/")
    return len(parts) >= 5 and parts[2].isdigit() and int(parts[2]) != os.getpid() and start_time(int(parts[2])) == parts[3]


def end_process(token: str | None) -> bool:
    """kill -9 the process of a token, if it is alive and not this one."""
    if token is None or not _is_alive(token):
        return False
    pid = int(token.split("/")[2])
    _LOG.warning("ending process %s, which held these stores before", pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def start_time(pid: int) -> str:
    """Return when a process was started, in clock ticks since boot; "" when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text[text.rindex(")") + 2 :].split()[19]


def discard(path: Path) -> None:
    """Remove a directory, if it exists; it is moved away first, so that its path is free at once."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with suppress(FileNotFoundError):
        path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def written_at(path: Path) -> float | None:
    """Return when an environment was last written (seconds since 1970); call before it is opened."""
    try:
        return (path / "data.mdb").stat().st_mtime
    except OSError:
        return None


def date_former(environment: Environment, written: float | None) -> None:
    """Date rows of an earlier release, which stored no time, by their file's time before it was opened."""
    if environment.attribute(AS_OF) is None and written is not None and not _is_empty(environment):
        note_time(environment, written)
        environment.commit({}, environment.commit_id)
