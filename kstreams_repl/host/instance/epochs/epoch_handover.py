"""Continuity between two epochs: a slot's runner continues on a thread of its own, and epochs only *attend* it.

When an epoch ends, Spark collects its report, writes its log, plans the next epoch and starts its tasks: some 200 ms on an idle
machine, seconds on a busy one. Records need none of that. So the instance is not handed over between epochs: the thread that
opened it runs it until it is idle, and an epoch's task waits until the loop has passed the epoch's deadline at the start of a
round.

Actors: the *runner's thread*, the *epoch's task* (`attend`, `end`), the slot's lock (`slot_lock`). The runner's thread owns the
instance and its environments from their opening until `InstanceCache.put` or `close`; from then on the instance cache owns them.
Invariants:

1. One runner of a slot in a process: a new one begins only when the thread of the former has ended.
2. One runner of a slot and generation on a host: it holds the slot's lock, and leaves, at a commit, when another worker wants the
   lock while no epoch attends it.
3. Only an attended runner takes tasks over. A runner that meets an error between epochs closes its instance and ends; otherwise
   two workers to which Spark assigns the same slot in turn could fence each other for ever.
4. The next epoch of its slot reports its result: a failure as the failure, anything else as records.

Each new epoch costs Spark work (a plan, a job, its log), also for an idle application. So an epoch without records is
*postponed*: it continues until a record has arrived, another slot of the application has ended it, or ``repl.epoch.idle.ms`` has
passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kstreams_repl.host.instance.control.slot_lock import SlotLock
from kstreams_repl.host.instance.failures.rejected_records import RejectedRecords
from kstreams_repl.host.instance.reports.epoch_result import EpochResult, TaskResult

HANDOVER_SECONDS = 5.0
"""How long a runner continues without an epoch. One that has not come by then may never come: its query was stopped."""


_IDLE_CHECK_SECONDS = 0.25
"""Interval between checks whether a postponed epoch must end."""


@dataclass(frozen=True, slots=True)
class IdleEpochLimit:
    """How long an epoch without records may last.

    Attributes:
        until: latest end (monotonic).
        over: returns whether another slot has ended the epoch; its loop then continues for a few seconds only.
    """

    until: float
    over: Callable[[], bool]


class Epoch:
    """The epoch that a runner works for, as the runner sees it: how long it may continue. This base class: one epoch, alone.

    Attributes:
        until: the deadline of the epoch (monotonic).
        rejected: the slot's records that the broker rejected.
        careful: whether the runner processes rejected output or deadly records with care: then it rests between epochs.
        carried: work of the slot's tasks that no epoch has reported yet.
    """

    def __init__(self, until: float) -> None:
        self.until = until
        self.rejected = RejectedRecords()
        self.careful = False
        self.carried: Mapping[str, TaskResult] = {}

    def check(self, now: float, take_result: Callable[[], EpochResult], records: int = 0) -> None:
        """Check for the end of an epoch; called in every round of the loop. An epoch ends with the result of `take_result`.

        Args:
            take_result: returns the work done since its last call.
            records: how many the instance has processed or restored so far.
        """

    def deadline(self) -> float:
        """Return when the loop must end (monotonic)."""
        return self.until

    def may_restart(self) -> bool:
        """Return whether a loop that ended at its deadline, or in an error, may restart. After False it must not."""
        return time.monotonic() < self.until

    def must_end(self) -> bool:
        """Return whether the runner must end with its error, because no epoch attends it. After True it must."""
        return False


class EpochHandover(Epoch):
    """Epochs that attend a runner on a thread of its own, one after the other.

    Args:
        run: the runner's work, which asks this object how long it may continue.
        lock: held while the runner runs.
        end_holder: as for `SlotLock.take`.
        former: the slot's previous runner, which has ended.
        idle_limit: for an epoch without records; None: such an epoch ends at its deadline.
    """

    def __init__(
        self,
        generation: int,
        slot: int,
        until: float,
        run: Callable[[Epoch], EpochResult],
        *,
        lock: SlotLock,
        end_holder: bool,
        former: EpochHandover | None = None,
        idle_limit: IdleEpochLimit | None = None,
    ) -> None:
        super().__init__(until)
        self._idle_limit = idle_limit
        self._records: int | None = None
        """Records processed when the previous epoch ended, or when the first one began."""
        self.generation, self.slot = generation, slot
        if former is not None:
            self.rejected, self.carried = former.rejected, former._unreported()
        self._run = run
        self._slot_lock = lock
        self._end_holder = end_holder
        self._lock = threading.Lock()
        self._unattended = threading.Event()
        """Set while no epoch attends."""
        self._epoch_result: EpochResult | None = None
        self._last_result: EpochResult | None = None
        self._error: BaseException | None = None
        self._ending = False
        self._over = False
        self._thread = threading.Thread(target=self._work, name=f"instance-{slot}", daemon=True)

    # ---- the epoch's task

    def begin(self) -> EpochResult:
        """Start the runner, and attend it for its first epoch."""
        self._thread.start()
        return self._wait()

    def attend(self, until: float, idle_limit: IdleEpochLimit | None = None) -> EpochResult | None:
        """Attend the runner for an epoch until the monotonic time `until`; return the epoch's result.

        Returns:
            None: the runner had ended, and has only records to report. Its thread has ended.
        """
        with self._lock:
            over = self._over
            if not over:
                self.until, self._epoch_result, self._ending = until, None, False
                self._idle_limit = idle_limit
                self._unattended.clear()
        if not over:
            return self._wait()
        self._thread.join()
        last = self._last_result
        if last is None or last.failure is None:
            return None
        self._last_result = None
        return last

    def end(self) -> None:
        """End the runner at a commit; return when it has ended and its instance is in the instance cache or closed."""
        self._ending = True
        self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether the runner has not ended."""
        return not self._over

    def _wait(self) -> EpochResult:
        self._unattended.wait()
        if self._epoch_result is not None:
            return self._epoch_result
        if self._error is not None:
            raise self._error
        last, self._last_result = self._last_result, None
        assert last is not None
        return last

    def _unreported(self) -> Mapping[str, TaskResult]:
        return {} if self._last_result is None else self._last_result.tasks

    # ---- the runner's thread

    def _work(self) -> None:
        try:
            try:
                self._slot_lock.take(end_holder=self._end_holder)
                self._last_result = self._run(self)
            finally:
                self._slot_lock.release()
        except BaseException as error:  # raised again by the epoch's task: a user function that exits ends the worker
            self._error = error
        finally:
            with self._lock:
                self._over = True
                self._unattended.set()

    def check(self, now: float, take_result: Callable[[], EpochResult], records: int = 0) -> None:
        if self._records is None:
            self._records = records
        if not self._unattended.is_set():
            if now >= self.until and not self._postpone(now, records):
                self._epoch_result = take_result()
                self._records = records
                self._unattended.set()
        elif self._slot_lock.wanted(now):
            self._ending = True

    def _postpone(self, now: float, records: int) -> bool:
        limit = self._idle_limit
        if limit is None or self.careful or records != self._records or now >= limit.until or limit.over():
            return False
        self.until = now + _IDLE_CHECK_SECONDS
        return True

    def deadline(self) -> float:
        if self._ending:
            return 0.0
        return self.until if self.careful else self.until + HANDOVER_SECONDS

    def may_restart(self) -> bool:
        with self._lock:
            attended = not self._unattended.is_set()
            self._over = time.monotonic() >= (self.until if attended else self.deadline())
            return not self._over

    def must_end(self) -> bool:
        with self._lock:
            self._over = self._unattended.is_set()
            return self._over
