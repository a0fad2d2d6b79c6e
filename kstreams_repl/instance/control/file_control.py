"""Signals to a running instance and its reports, through small files of the application's control directory.

Actors: the driver (`LeaseWriter`) writes the wanted state and its generation; each instance (`Control`) checks it every few
milliseconds and stops at the next commit when the signal says so, when the lease has a higher generation or is missing, or when
its parent process has died; it writes one report file per slot. Every file is replaced atomically. On a cluster the same
information goes through the journal in Kafka (`journal_control`); a file costs microseconds. Signals and final reports survive a
full disk: each of these files has reserved blocks on the disk.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from kstreams_repl.commit.failpoints import failpoint
from kstreams_repl.disk_errors import is_full
from kstreams_repl.instance.control.slot_lock import LoopLock, SlotLock
from kstreams_repl.metrics.snapshot import validated

LEASE = "lease.json"
RESERVE_BYTES = 16 * 1024
CHECK_SECONDS = 0.005
_SAME_SECONDS = 1.0
_ALONE_SECONDS = 1.0


_LAST_WORDS = frozenset({"failed", "paused", "stopped", "superseded"})
_REPORTED = frozenset({"generation", "slot", "state", "pid", "at_ms"})


class Signal(StrEnum):
    """The command to an instance."""

    RUN = "running"
    PAUSE = "paused"
    STOP = "stopped"
    SUPERSEDED = "superseded"


class InstanceControl(Protocol):
    """How an instance receives commands and reports its state. `Control` uses files, `journal_control.RemoteControl` the journal.
    """

    generation: int
    slot: int
    directory: Path
    """The application's control directory on the driver's host; it may not exist on another host."""

    def signal(self, *, now: float | None = None) -> Signal:
        """Return the current command.

        Args:
            now: monotonic time; the answer may then be some milliseconds old and is cheap. None: as of this call.
        """

    def signal_when_fenced(self) -> Signal:
        """Return the current command after another owner has taken the transactional id, of this generation or a later one."""

    def told(self, state: str) -> bool:
        """Return whether the last report of this slot and generation has this state."""

    def report(self, content: Mapping[str, Any]) -> None:
        """Write a report for the driver. Never blocks, never fails."""

    def metrics(self, snapshot: Mapping[str, Any]) -> None:
        """Write the measurements (`metrics.snapshot`) next to the report."""

    def loop_lock(self) -> SlotLock | None:
        """Return the lock that keeps the loops of a slot apart, so that one may continue between epochs (`epoch_handover`); None:
        it may not continue.
        """


def write_whole(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a small file atomically; a reader sees the old or the new content.

    Raises:
        OSError: it could not be written; the old content stays.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_text(json.dumps(content), encoding="utf-8")
        failpoint("F10")
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise


def _write_if_room(path: Path, content: Mapping[str, Any]) -> bool:
    """Call `write_whole`; return False, and keep the old content, when the disk is full."""
    try:
        write_whole(path, content)
    except OSError as error:
        if not is_full(error):
            raise
        return False
    return True


def _reserve_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.reserve")


def keep_reserve(path: Path) -> None:
    """Reserve the disk blocks that a final report in this file will need when the disk is full."""
    reserve = _reserve_of(path)
    if not reserve.exists():
        with suppress(OSError):
            reserve.write_bytes(b" " * RESERVE_BYTES)


def write_last_word(path: Path, content: Mapping[str, Any]) -> None:
    """Call `write_whole`; on a full disk the reserve becomes the file.

    Raises:
        OSError: there is no reserve either.
    """
    try:
        write_whole(path, content)
    except OSError as error:
        if not is_full(error):
            raise
        text = json.dumps(content).encode()
        reserve = _reserve_of(path)
        if len(text) > RESERVE_BYTES or not reserve.exists():
            raise
        with reserve.open("r+b") as file:
            file.write(text)
            file.truncate()
        reserve.replace(path)


def read_whole(path: Path) -> dict[str, Any] | None:
    """Return the content of a file written by `write_whole`; None when it is missing or invalid."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _read_lease(path: Path) -> tuple[int, Signal] | None:
    """Return the generation and the signal of a lease; None when it is missing or damaged."""
    lease = read_whole(path)
    try:
        return None if lease is None else (int(lease["generation"]), Signal(lease["signal"]))
    except (KeyError, ValueError, TypeError):
        return None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock the lease between reading and writing it: if another kernel raised the generation in between, its instances would
    stop. Wait one second at most for the lock (its holder may be suspended), and not at all when there is no room for the file.
    """
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + _ALONE_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(CHECK_SECONDS)
        yield
    finally:
        os.close(file)


class LeaseWriter:
    """The driver's side: one lease per application.

    Attributes:
        remote: instances run on a cluster: files in the driver's own state directory are outdated.
    """

    remote = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, generation: int, signal: Signal) -> bool:
        """Write the command; return False, and write nothing, when a higher generation is in force already."""
        content = {"generation": generation, "signal": signal.value, "pid": os.getpid(), "remote": self.remote}
        with _alone(self.directory / f".{LEASE}.lock"):
            if self.generation() > generation:
                return False
            write_last_word(self.directory / LEASE, content)
            keep_reserve(self.directory / LEASE)
            return True

    def generation(self) -> int:
        """Return the generation of the last lease; 0 before the first."""
        lease = _read_lease(self.directory / LEASE)
        return 0 if lease is None else lease[0]

    def clear(self) -> None:
        """Remove files of earlier queries: reports, claims, and the checkpoints of drivers that were killed."""
        for path in self.directory.glob("checkpoint-*"):
            shutil.rmtree(path, ignore_errors=True)
        for pattern in ("report-*.json", ".report-*", "metrics-*.json", "claim-*", "loop-*", "tapped-*.json"):
            for path in self.directory.glob(pattern):
                with suppress(FileNotFoundError):
                    path.unlink()

    def reports(self, generation: int) -> dict[int, dict[str, Any]]:
        """Return the last report of each slot in that generation."""
        found = {}
        for path in self.directory.glob(f"report-{generation}-*.json"):
            report = read_whole(path)
            if report is not None and _REPORTED.issubset(report) and isinstance(report["slot"], int):  # else the file is damaged
                found[report["slot"]] = report
        return found

    def metrics(self, generation: int) -> dict[int, dict[str, Any]]:
        """Return the last measurements of that generation's instances, by slot (`metrics.snapshot`)."""
        found = {}
        for path in self.directory.glob(f"metrics-{generation}-*.json"):
            slot, snapshot = path.stem.rpartition("-")[2], validated(read_whole(path))
            if snapshot is not None and slot.isdecimal():
                found[int(slot)] = snapshot
        return found


class Control:
    """The instance's side.

    Args:
        parent: process whose end ends the instance too; None: no process.
        in_force: reads the generation in force from the journal; None as a result: unknown.
    """

    def __init__(
        self,
        directory: str,
        generation: int,
        slot: int,
        *,
        parent: int | None = None,
        in_force: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.directory = Path(directory)
        self._lease = os.path.join(directory, LEASE)
        self._said: Mapping[str, Any] | None = None
        self._said_at = 0.0
        self._report = self.directory / f"report-{generation}-{slot}.json"
        self._metrics = self.directory / f"metrics-{generation}-{slot}.json"
        self.generation = generation
        self.slot = slot
        self._parent = parent
        self._in_force = in_force
        self._seen: tuple[int, int] | None = None
        self._signal = Signal.RUN
        self._next_check = 0.0

    def signal(self, *, now: float | None = None) -> Signal:
        """Return the current command; with `now`, read the disk at most every few milliseconds, else at once."""
        if now is not None:
            if now < self._next_check:
                return self._signal
            self._next_check = now + CHECK_SECONDS
        if self._parent is not None and os.getppid() != self._parent:
            self._signal = Signal.STOP
            return self._signal
        try:
            stat = os.stat(self._lease)
        except FileNotFoundError:
            self._signal = Signal.STOP
            return self._signal
        seen = (stat.st_mtime_ns, stat.st_ino)
        if seen != self._seen:
            lease = _read_lease(Path(self._lease))
            if lease is not None:  # else the last command holds
                self._seen = seen
                self._signal = lease[1] if lease[0] == self.generation else Signal.SUPERSEDED
        return self._signal

    def signal_when_fenced(self) -> Signal:
        """Read the journal too: a driver with another state directory raises the generation only there, and without this check
        its instances and those of this generation would fence each other for ever.
        """
        signal = self.signal()
        return Signal.SUPERSEDED if signal is Signal.RUN and self._in_force() not in (None, self.generation) else signal

    def told(self, state: str) -> bool:
        """Return whether the report file of this generation has this state."""
        report = read_whole(self._report)
        return report is not None and report.get("state") == state

    def report(self, content: Mapping[str, Any]) -> None:
        """Write the instance's report for the driver. On a full disk only a final one (failed, at rest) is written.

        A report equal to the last one is left out for a second: reports come a few times a second, also without activity.
        """
        now = time.monotonic()
        if content == self._said and now - self._said_at < _SAME_SECONDS:
            return
        self._said, self._said_at = content, now
        at_ms = int(time.time() * 1000)
        report = {"generation": self.generation, "slot": self.slot, "pid": os.getpid(), "at_ms": at_ms, **content}
        failpoint("F9")
        with suppress(FileNotFoundError):  # the driver has removed the directory; the missing lease ends the loop
            if content.get("state") in _LAST_WORDS:
                trace = dict(report.get("failure") or {}).get("trace")
                if trace:
                    report["failure"] = {**report["failure"], "trace": trace[-RESERVE_BYTES // 2 :]}
                write_last_word(self._report, report)
            elif _write_if_room(self._report, report):
                keep_reserve(self._report)

    def loop_lock(self) -> SlotLock | None:
        return LoopLock(self.directory, self.generation, self.slot)

    def metrics(self, snapshot: Mapping[str, Any]) -> None:
        """Write the instance's measurements next to its report."""
        with suppress(FileNotFoundError):
            _write_if_room(self._metrics, snapshot)
