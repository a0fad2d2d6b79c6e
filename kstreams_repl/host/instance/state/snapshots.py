"""Snapshots of a task's stores in a remote directory, so that a new executor reads one file and the end of the changelog instead
of the whole changelog.

A snapshot is a compacted copy of the task's environment as of a commit, with that commit's changelog positions, commit id and
topic ids. ``<dir>/<application.id>/<task>/<commit>-<random>/data.mdb`` is written first, ``manifest.json`` with size and sha256
last: a snapshot without a manifest does not exist. A separate thread makes it from LMDB's read snapshot while the task continues.

A reader checks a snapshot like a local copy and also checks that the bytes match the manifest, the positions lie inside the
changelogs, the topics are the same, and it is not older than deletions are kept (replay over it would bring deleted keys back).
If one fails, the next older one is tried, and finally the changelog.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.environment import Environment
from kstreams_repl.host.instance.state.changelogs import ChangelogBounds, ChangelogPartition
from kstreams_repl.host.instance.state.environment_attributes import TOPIC_ID
from kstreams_repl.host.instance.state.snapshot_directory import SnapshotDirectory
from kstreams_repl.host.instance.state.state_cleanup import discard
from kstreams_repl.system.errors import KStreamsError, SnapshotError, TaskMigratedError
from kstreams_repl.system.log_context import carried

_LOG = logging.getLogger("kstreams_repl.host.instance")
_FORMAT = 1
_MANIFEST, _DATA = "manifest.json", "data.mdb"
_NAME = re.compile(r"(\d{16})-[0-9a-f]{8}")
_CHUNK = 1 << 20
_LEFT_SECONDS = 60 * 60


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a snapshot."""

    name: str
    application_id: str
    task: str
    commit_id: int
    positions: Mapping[str, int]
    topic_ids: Mapping[str, str]
    size: int
    sha256: str
    at_ms: int
    format: int = _FORMAT

    @classmethod
    def read(cls, content: bytes) -> Manifest:
        """Parse a manifest.

        Raises:
            ValueError: the content is not a manifest.
        """
        fields = json.loads(content)
        if not isinstance(fields, dict) or set(fields) != set(cls.__dataclass_fields__) or fields["format"] != _FORMAT:
            raise ValueError(f"expected a snapshot manifest of format {_FORMAT}")
        made = cls(**fields)
        numbers = (made.commit_id, made.size, made.at_ms, *made.positions.values())
        if not all(isinstance(number, int) for number in numbers) or _NAME.fullmatch(made.name) is None:
            raise ValueError("a field of the manifest has the wrong type or form")
        return made


def publish_copy(copy: Path, directory: SnapshotDirectory, application_id: str, task: str) -> Manifest:
    """Upload a copied environment, then its manifest."""
    from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment

    opened = LmdbEnvironment(copy)
    positions, commit_id = dict(opened.positions), opened.commit_id
    topics = {partition.rpartition("-")[0] for partition in positions}
    ids = {topic: opened.attribute(TOPIC_ID + topic) for topic in topics}
    opened.close()
    data = copy / _DATA
    base = f"{application_id}/{task}"
    name = f"{max(commit_id, 0):016d}-{uuid.uuid4().hex[:8]}"
    manifest = Manifest(
        name,
        application_id,
        task,
        commit_id,
        positions,
        {topic: known.decode() for topic, known in ids.items() if known is not None},
        data.stat().st_size,
        _sha256(data),
        int(time.time() * 1000),
    )
    directory.upload(data, f"{base}/{name}/{_DATA}")
    directory.publish(f"{base}/{name}/{_MANIFEST}", json.dumps(asdict(manifest)).encode())
    return manifest


def manifests(directory: SnapshotDirectory, application_id: str, task: str) -> list[Manifest]:
    """Return the snapshots of a task, the newest first; unfinished and unreadable ones are left out."""
    found = []
    for name in directory.children(f"{application_id}/{task}"):
        if _NAME.fullmatch(name) is None:
            continue
        try:
            made = Manifest.read(directory.read(f"{application_id}/{task}/{name}/{_MANIFEST}"))
        except (OSError, ValueError, TypeError, AttributeError):
            continue
        if (made.name, made.application_id, made.task) == (name, application_id, task):
            found.append(made)
    return sorted(found, key=lambda made: made.at_ms, reverse=True)


def prune(directory: SnapshotDirectory, application_id: str, task: str, keep: int) -> None:
    """Remove all but the newest `keep` snapshots of a task, and older uploads that were never finished."""
    base = f"{application_id}/{task}"
    known = manifests(directory, application_id, task)
    for made in known[keep:]:
        directory.remove(f"{base}/{made.name}/{_MANIFEST}")
        directory.remove(f"{base}/{made.name}")
    finished = {made.name for made in known}
    oldest = min((made.commit_id for made in known[:keep]), default=0)
    for name in directory.children(base):
        found = _NAME.fullmatch(name)
        if found is not None and name not in finished and int(found.group(1)) < oldest:
            directory.remove(f"{base}/{name}")


def why_refused(
    manifest: Manifest,
    logs: Sequence[ChangelogPartition],
    bounds: ChangelogBounds,
    *,
    config: StreamsConfig,
    now_ms: int,
) -> str | None:
    """Return why a snapshot does not fit these changelogs, including inputs that are a store's log; None when it fits."""
    age = (now_ms - manifest.at_ms) / 1000
    for log in logs:
        if not log.store.persistent:
            continue
        partition, topic = log.partition, log.partition.topic
        position = manifest.positions.get(str(partition))
        if position is None:
            if log.is_source:  # read from its beginning
                continue
            return f"it has no position in {partition}"
        if manifest.topic_ids.get(topic) != bounds.topic_ids.get(topic):
            return f"topic {topic} was deleted and recreated"
        first, end = bounds.firsts[partition], bounds.ends[partition]
        if not first <= position <= end:
            return f"its position {position} in {partition} is outside {first}..{end}"
        if position < end and age > log.keeps_deletions_seconds(config):
            return f"it is {age:.0f} s old, longer than its changelog keeps deletions (delete.retention.ms)"
    return None


def fetch_snapshot(
    directory: SnapshotDirectory,
    application_id: str,
    task: str,
    path: Path,
    refused: Callable[[Manifest], str | None],
    *,
    in_force: Callable[[], bool] = lambda: True,
    level: int = logging.WARNING,
) -> Manifest | None:
    """Replace a task's environment, which must be closed, by the newest snapshot that passes.

    Args:
        refused: returns why a snapshot does not fit, from its manifest; None when it fits.
        in_force: called before the existing environment is deleted: fetching may take long, and a successor may have opened it by
            then.
        level: at which a snapshot that does not pass is logged.

    Returns:
        Its manifest; None, and no change, when no snapshot passes.

    Raises:
        TaskMigratedError: a successor has the environment already.
    """
    for manifest in manifests(directory, application_id, task):
        why = refused(manifest)
        if why is None:
            why = _fetch(directory, manifest, path, in_force)
            if why is None:
                return manifest
        _LOG.log(level, "ignoring snapshot %s: %s", manifest.name, why, extra={"task": task})
    return None


def _fetch(directory: SnapshotDirectory, manifest: Manifest, path: Path, in_force: Callable[[], bool]) -> str | None:
    incoming = path.with_name(f".{path.name}.incoming-{uuid.uuid4().hex[:8]}")
    incoming.mkdir(parents=True, mode=0o700)
    try:
        data = incoming / _DATA
        directory.download(f"{manifest.application_id}/{manifest.task}/{manifest.name}/{_DATA}", data)
        if data.stat().st_size != manifest.size or _sha256(data) != manifest.sha256:
            return "its size or sha256 differs from its manifest"
        seconds = manifest.at_ms / 1000
        os.utime(data, (seconds, seconds))  # the file is as old as its content
        os.utime(incoming)  # and the directory is new, so that the cleanup does not remove it as a leftover
        if not in_force():
            raise TaskMigratedError(f"a newer generation owns the stores in {path}", path=str(path))
        discard(path)
        incoming.rename(path)
        return None
    except (OSError, SnapshotError) as error:
        return f"downloading it failed: {error}"
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class Snapshotter:
    """Takes a snapshot of each task of an instance at intervals, in a thread.

    Args:
        tasks: name and open environment of each task with stores on disk.
        seconds: interval; a task without a commit since its last snapshot is left out.
        keep: number of snapshots to keep of each task.
        work: a directory on this host's disk.
    """

    def __init__(
        self,
        tasks: Iterable[tuple[str, Environment]],
        directory: SnapshotDirectory,
        application_id: str,
        *,
        seconds: float,
        keep: int,
        work: Path,
    ) -> None:
        self._tasks = list(tasks)
        self._directory = directory
        self._application_id = application_id
        self._seconds = seconds
        self._keep = keep
        self._work = work
        self._done: dict[str, int] = {}
        self.error: str | None = None
        """Why the last one could not be taken; None when it could."""
        self._over = threading.Event()
        self._copying = threading.Lock()
        self._thread = threading.Thread(target=carried(self._run), name=f"snapshots-{application_id}", daemon=True)

    def start(self) -> Snapshotter:
        """Start the thread."""
        self._thread.start()
        return self

    def add(self, task: str, environment: Environment) -> None:
        """Add a task."""
        self._tasks.append((task, environment))

    @property
    def taken(self) -> dict[str, int]:
        """The commit id of each task's last snapshot."""
        return dict(self._done)

    def close(self) -> None:
        """Stop taking snapshots; return when no environment is being copied, so that it may be closed. An upload in progress ends
        on its own, unpublished where that is possible.
        """
        self._over.set()
        with self._copying:
            return

    def _run(self) -> None:
        for left in self._work.glob("snapshot-*"):  # left by a process that was killed
            with suppress(OSError):  # another instance may remove it at the same time
                if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)
        while not self._over.wait(self._seconds):
            for task, environment in self._tasks:
                if not self._over.is_set():
                    self._take(task, environment)

    def _take(self, task: str, environment: Any) -> None:
        copy = self._work / f"snapshot-{uuid.uuid4().hex[:8]}"
        try:
            with self._copying:
                if self._over.is_set() or environment.closed or environment.commit_id == self._done.get(task, -1):
                    return
                environment.copy_to(str(copy))
            manifest = publish_copy(copy, self._directory, self._application_id, task)
            self.error = None
            self._done[task] = manifest.commit_id
            prune(self._directory, self._application_id, task, self._keep)
        except (KStreamsError, OSError) as error:  # the changelog holds all rows; the next snapshot may succeed
            self.error = f"taking a snapshot of task {task} failed: {error}"
            _LOG.warning("%s", self.error)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
