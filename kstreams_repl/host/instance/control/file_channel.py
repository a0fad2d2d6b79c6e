"""The control channel on the driver's own host: small files of the application's control directory, which cost microseconds.

    lease.json                 the command and the generation it is for, written by the driver
    report-<gen>-<slot>.json   the last report of a slot; metrics-<gen>-<slot>.json: its measurements
    claim-<gen>-<slot>         locked (flock) by the worker that runs the slot; contains the last epoch that ended, and its process
    times-<gen>                the event times that the slots report to each other (`event_times`)
    loop-<gen>-<slot>          locked by the slot's loop (`slot_lock`)
    taps/, tapped-<gen>-<slot>.json   requests for values at nodes, and the values (`node_taps`)
    retries/                          orders about records that wait for another try (`retry_orders`)

Every file is replaced atomically. An instance checks the lease every few milliseconds and stops at the next commit when the command says
so, when the lease has a higher generation or is missing, or when its parent process has died. Commands and final reports survive a full
disk: each of these files has reserved blocks on the disk.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from kstreams_repl.engine.commit.failpoints import failpoint
from kstreams_repl.engine.metrics.metrics_snapshot import validated
from kstreams_repl.host.instance.control.channel import ENDED, EpochTask, PeerTimes, Signal
from kstreams_repl.host.instance.control.control_files import (
    RESERVE_BYTES,
    keep_reserve,
    read_whole,
    write_if_room,
    write_last_word,
)
from kstreams_repl.host.instance.control.event_times import FileTimes
from kstreams_repl.host.instance.control.node_taps import TapFiles
from kstreams_repl.host.instance.control.retry_orders import RetryFiles
from kstreams_repl.host.instance.control.slot_lock import LoopLock, SlotLock
from kstreams_repl.host.journal.journal_records import RetryOrder
from kstreams_repl.system.files import locked, take_lock
from kstreams_repl.system.process_info import start_time
from kstreams_repl.system.types import JsonMapping, JsonObject

_LOG = logging.getLogger("kstreams_repl.host.instance")
_REPORTS = ThreadPoolExecutor(1, "reports")
LEASE = "lease.json"
CHECK_SECONDS = 0.005
_SAME_SECONDS = 1.0
_LOCK_SECONDS = 1.0
_CLAIM_SECONDS = 30.0
_REPORTED = frozenset({"generation", "slot", "state", "pid", "at_ms"})


@dataclass(frozen=True, slots=True)
class Lease:
    """The contents of ``lease.json``.

    Attributes:
        pid: the process that gave the command.
        remote: instances run on a cluster: files in the driver's own state directory are outdated.
    """

    generation: int
    signal: Signal
    pid: int = 0
    remote: bool = False


def read_lease(directory: Path) -> Lease | None:
    """Return the last command given from this host; None when there is none, or the file is damaged."""
    content = read_whole(directory / LEASE)
    try:
        if content is None:
            return None
        return Lease(int(content["generation"]), Signal(content["signal"]), int(content.get("pid", 0)), bool(content.get("remote")))
    except (KeyError, ValueError, TypeError):
        return None


def metrics_in(directory: Path, generation: int) -> dict[int, JsonObject]:
    """Return the last measurements of each slot in that generation, from its files."""
    found = {}
    for path in directory.glob(f"metrics-{generation}-*.json"):
        slot, snapshot = path.stem.rpartition("-")[2], validated(read_whole(path))
        if snapshot is not None and slot.isdecimal():
            found[int(slot)] = snapshot
    return found


def reports_in(directory: Path, generation: int) -> dict[int, JsonObject]:
    """Return the last report of each slot in that generation."""
    found = {}
    for path in directory.glob(f"report-{generation}-*.json"):
        report = read_whole(path)
        if report is not None and _REPORTED.issubset(report) and isinstance(report["slot"], int):  # else the file is damaged
            found[report["slot"]] = report
    return found


class FileChannel:
    """`ControlChannel` by files: the driver's and its clients' end."""

    remote = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._make_directory()

    def _make_directory(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def signal(self, generation: int, signal: Signal) -> bool:
        lease = Lease(generation, signal, os.getpid(), self.remote)
        self._make_directory()  # `repl.session.reset` deletes it while a stopped or paused application keeps its channel
        # without the lock another kernel could raise the generation after the check: its instances would stop
        with locked(self.directory / f".{LEASE}.lock", seconds=_LOCK_SECONDS):
            if self.generation() > generation:
                return False
            write_last_word(self.directory / LEASE, asdict(lease))
            keep_reserve(self.directory / LEASE)
            return True

    def generation(self) -> int:
        lease = read_lease(self.directory)
        return 0 if lease is None else lease.generation

    def reports(self, generation: int) -> dict[int, JsonObject]:
        return reports_in(self.directory, generation)

    def metrics(self, generation: int) -> dict[int, JsonObject]:
        return metrics_in(self.directory, generation)

    def executors(self) -> dict[int, str]:
        return {}

    def clear(self) -> None:
        """Remove files of earlier queries: reports, claims, and the checkpoints of drivers that were killed."""
        for path in self.directory.glob("checkpoint-*"):
            shutil.rmtree(path, ignore_errors=True)
        for pattern in ("report-*.json", ".report-*", "metrics-*.json", "claim-*", "times-*", "loop-*", "tapped-*.json"):
            for path in self.directory.glob(pattern):
                with suppress(FileNotFoundError):
                    path.unlink()

    def attach(self, end: Callable[[], int], send: Callable[[int, Signal], None]) -> None:
        """Do nothing: instances on this host follow the lease."""

    def close(self) -> None:
        """Do nothing."""


class FileInstanceControl:
    """`InstanceControl` by files.

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
        self._directory = Path(directory)
        self.taps = TapFiles(self._directory)
        self._orders = RetryFiles(self._directory)
        self._lease = os.path.join(directory, LEASE)
        self._newest: deque[JsonObject] = deque(maxlen=1)
        self._writing = threading.Lock()
        self._reported: JsonMapping | None = None
        self._reported_at = 0.0
        self._report = self._directory / f"report-{generation}-{slot}.json"
        self._metrics = self._directory / f"metrics-{generation}-{slot}.json"
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
            lease = read_lease(self._directory)
            if lease is not None:  # else the last command holds
                self._seen = seen
                self._signal = lease.signal if lease.generation == self.generation else Signal.SUPERSEDED
        return self._signal

    def signal_when_fenced(self) -> Signal:
        """Read the journal too: a driver with another state directory raises the generation only there, and without this check
        its instances and those of this generation would fence each other for ever.
        """
        signal = self.signal()
        return Signal.SUPERSEDED if signal is Signal.RUN and self._in_force() not in (None, self.generation) else signal

    def has_reported(self, *states: str) -> bool:
        """Return whether the report file of this generation has one of these states."""
        report = read_whole(self._report)
        return report is not None and report.get("state") in states

    def report(self, content: JsonMapping, *, soon: bool = False) -> None:
        """Write the instance's report for the driver. On a full disk only a final one (failed, at rest) is written.

        With `soon` a thread writes it: on a busy disk a file is replaced in milliseconds, in which records would wait.
        A report equal to the last one is left out for a second: reports come a few times a second, also without activity.
        """
        now = time.monotonic()
        if content == self._reported and now - self._reported_at < _SAME_SECONDS:
            return
        self._reported, self._reported_at = content, now
        at_ms = int(time.time() * 1000)
        report = {"generation": self.generation, "slot": self.slot, "pid": os.getpid(), "at_ms": at_ms, **content}
        failpoint("F9")
        if soon:
            self._newest.append(report)
            _REPORTS.submit(self._write_newest)
            return
        with self._writing:
            self._newest.clear()
            self._write(report)

    def _write_newest(self) -> None:
        with self._writing:
            try:
                self._write(self._newest.pop())
            except IndexError:  # written already, or out of date
                pass
            except Exception as error:  # the pool keeps the error of this call where no caller looks
                _LOG.warning("a report was not written: %s: %s", type(error).__name__, error, exc_info=True)

    def _write(self, report: JsonObject) -> None:
        with suppress(FileNotFoundError):  # the driver has removed the directory; the missing lease ends the loop
            if report.get("state") in ENDED:
                trace = dict(report.get("failure") or {}).get("trace")
                if trace:
                    report["failure"] = {**report["failure"], "trace": trace[-RESERVE_BYTES // 2 :]}
                write_last_word(self._report, report)
            elif write_if_room(self._report, report):
                keep_reserve(self._report)

    def metrics(self, snapshot: JsonMapping) -> None:
        with suppress(FileNotFoundError):
            write_if_room(self._metrics, snapshot)

    def orders(self, now_ms: int) -> list[RetryOrder]:
        return self._orders.orders(now_ms)

    def event_times(self, slots: int, groups: int) -> PeerTimes:
        return FileTimes(self._directory / f"times-{self.generation}", self.slot, slots, groups)

    def loop_lock(self) -> SlotLock | None:
        return LoopLock(self._directory, self.generation, self.slot)


class FileClaim:
    """The claim to one slot of an epoch, a lock of its file. A context manager that returns the slot; None when all slots of the epoch
    are done.

    Args:
        count: how many slots the generation has.
    """

    def __init__(self, directory: Path, generation: int, count: int, task: EpochTask) -> None:
        self._directory = directory
        self._generation = generation
        self._epoch = str(task.epoch)
        rest = [slot for slot in range(task.partition, task.partition + count)]
        held = tuple(slot for slot in task.held if slot < count)  # an earlier generation may have had more slots
        self._order = [*held, *(slot % count for slot in rest if slot % count not in held)]
        self._file: int | None = None
        self._pid = os.getpid()

    def __enter__(self) -> int | None:
        deadline = time.monotonic() + _CLAIM_SECONDS
        while True:
            busy = False
            for patient in (False, True):
                for slot in self._order:
                    taken = self._try(slot, patient)
                    if taken is None:
                        busy = True
                    elif taken:
                        return slot
            if not busy or time.monotonic() > deadline:
                return None
            time.sleep(0.01)

    def _try(self, slot: int, patient: bool) -> bool | None:
        """Return True: claimed. False: done in this epoch, or better left to the worker that holds it warm. None: another worker
        is running it.
        """
        file = take_lock(Path(self._path(slot)))
        if file is None:
            return None
        epoch, _, owner = os.pread(file, 200, 0).decode("ascii", "replace").strip().partition(" ")
        others = owner.isdecimal() and int(owner) != self._pid and start_time(int(owner)) != ""
        if epoch == self._epoch or (others and not patient):
            os.close(file)
            return False
        self._file = file
        return True

    def epoch_over(self) -> bool:
        """Return whether another slot has ended this epoch."""
        for slot in self._order:
            with suppress(OSError), open(self._path(slot), encoding="ascii", errors="replace") as file:
                if file.read(200).partition(" ")[0] == self._epoch:
                    return True
        return False

    def _path(self, slot: int) -> str:
        return os.path.join(self._directory, f"claim-{self._generation}-{slot}")

    def __exit__(self, *exc: object) -> None:
        if self._file is None:
            return
        if exc[0] is None:
            os.pwrite(self._file, f"{self._epoch} {self._pid}".encode().ljust(100), 0)
        os.close(self._file)


