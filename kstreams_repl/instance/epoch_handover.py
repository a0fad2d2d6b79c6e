"""Continuity between two epochs: a slot's runner continues on a thread of its own, and epochs only *attend* it.

When an epoch ends, Spark collects its report, writes its log, plans the next epoch and starts its tasks: some 200 ms on an idle
machine, seconds on a busy one. Records need none of that. So the instance is not handed over between epochs: the thread that
opened it runs it until it is idle, and an epoch's task waits until the loop has passed the epoch's deadline at the start of a
round.

Actors: the *runner's thread*, the *epoch's task* (`attend`, `end`), the slot's lock (`slot_lock`). The runner's thread owns the
instance and its environments from their opening until `WarmInstances.put` or `close`; from then on the instance cache owns them.
Invariants:

1. One runner of a slot in a process: a new one begins only when the thread of the former has ended.
2. One runner of a slot and generation on a host: it holds the slot's lock, and leaves, at a commit, when another worker wants the
   lock while no epoch attends it.
3. Only an attended runner takes tasks over. A runner that meets an error between epochs closes its instance and ends; otherwise
   two workers to which Spark assigns the same slot in turn could fence each other for ever.
4. The next epoch of its slot reports its result: a failure as the failure, anything else as records.

Each new epoch costs Spark work (a plan, a job, its log), also for an idle application. So an epoch without records is *put off*:
it continues until a record has arrived, another slot of the application has ended it, or ``repl.epoch.idle.ms`` has passed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kstreams_repl.instance.control.slot_lock import SlotLock
from kstreams_repl.instance.epoch_result import Outcome, TaskOutcome
from kstreams_repl.instance.failures.rejected_records import Refusals

BRIDGE_SECONDS = 5.0
"""An epoch that has not come by then may never come: its query was stopped."""


_PUT_OFF_SECONDS = 0.25
"""Interval between checks whether an epoch that was put off must end."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an epoch without records may last.

    Attributes:
        until: latest end (monotonic).
        over: returns whether another slot has ended the epoch; its loop then continues for a few seconds only.
    """

    until: float
    over: Callable[[], bool]


class Attendance:
    """How long a runner may continue, as the runner sees it. This base class: for one epoch, alone."""

    def __init__(self, until: float) -> None:
        self.until = until
        """The deadline of the epoch."""
        self.refusals = Refusals()
        self.careful = False
        """Whether the runner processes rejected output or deadly records with care: then it rests between epochs."""
        self.carried: Mapping[str, TaskOutcome] = {}
        """Work of the slot's tasks that no epoch has reported yet."""

    def look(self, now: float, turn: Callable[[], Outcome], records: int = 0) -> None:
        """Check for the end of an epoch; called in every round of the loop. An epoch ends with the result of `turn`.

        Args:
            turn: returns the work done since its last call.
            records: how many the instance has processed or restored so far.
        """

    def bound(self) -> float:
        """Return when the loop must end (monotonic)."""
        return self.until

    def lasts(self) -> bool:
        """Return whether a loop that ended at its bound, or in an error, may restart. After False it must not."""
        return time.monotonic() < self.until

    def leaves(self) -> bool:
        """Return whether the runner must end with its error, because no epoch attends it. After True it must."""
        return False


class Bridge(Attendance):
    """A runner on a thread of its own.

    Args:
        run: the runner's work, which asks the bridge how long it may continue.
        lock: held while the runner runs.
        end_holder: as for `SlotLock.take`.
        former: the slot's previous runner, which has ended.
        patience: for an epoch without records; None: such an epoch ends at its deadline.
    """

    def __init__(
        self,
        generation: int,
        slot: int,
        until: float,
        run: Callable[[Attendance], Outcome],
        *,
        lock: SlotLock,
        end_holder: bool,
        former: Bridge | None = None,
        patience: Patience | None = None,
    ) -> None:
        super().__init__(until)
        self._patience = patience
        self._seen: int | None = None
        """Records processed when the previous epoch ended, or when the first one began."""
        self.generation, self.slot = generation, slot
        if former is not None:
            self.refusals, self.carried = former.refusals, former._untold()
        self._run = run
        self._loop_lock = lock
        self._end_holder = end_holder
        self._lock = threading.Lock()
        self._turned = threading.Event()
        """Set while no epoch attends."""
        self._told: Outcome | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._leaving = False
        self._over = False
        self._thread = threading.Thread(target=self._work, name=f"instance-{slot}", daemon=True)

    # ---- the epoch's task

    def begin(self) -> Outcome:
        """Start the runner, and attend it for its first epoch."""
        self._thread.start()
        return self._wait()

    def attend(self, until: float, patience: Patience | None = None) -> Outcome | None:
        """Attend the runner for an epoch until the monotonic time `until`; return the epoch's result.

        Returns:
            None: the runner had ended, and has only records to report. Its thread has ended.
        """
        with self._lock:
            over = self._over
            if not over:
                self.until, self._told, self._leaving = until, None, False
                self._patience = patience
                self._turned.clear()
        if not over:
            return self._wait()
        self._thread.join()
        ended = self._outcome
        if ended is None or ended.failure is None:
            return None
        self._outcome = None
        return ended

    def end(self) -> None:
        """End the runner at a commit; return when it has ended and its instance is in the instance cache or closed."""
        self._leaving = True
        self._thread.join()

    @property
    def going_on(self) -> bool:
        """Whether the runner has not ended."""
        return not self._over

    def _wait(self) -> Outcome:
        self._turned.wait()
        if self._told is not None:
            return self._told
        if self._error is not None:
            raise self._error
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        return outcome

    def _untold(self) -> Mapping[str, TaskOutcome]:
        return {} if self._outcome is None else self._outcome.tasks

    # ---- the runner's thread

    def _work(self) -> None:
        try:
            try:
                self._loop_lock.take(end_holder=self._end_holder)
                self._outcome = self._run(self)
            finally:
                self._loop_lock.release()
        except BaseException as error:  # raised again by the epoch's task: a user function that exits ends the worker
            self._error = error
        finally:
            with self._lock:
                self._over = True
                self._turned.set()

    def look(self, now: float, turn: Callable[[], Outcome], records: int = 0) -> None:
        if self._seen is None:
            self._seen = records
        if not self._turned.is_set():
            if now >= self.until and not self._put_off(now, records):
                self._told = turn()
                self._seen = records
                self._turned.set()
        elif self._loop_lock.wanted(now):
            self._leaving = True

    def _put_off(self, now: float, records: int) -> bool:
        patience = self._patience
        if patience is None or self.careful or records != self._seen or now >= patience.until or patience.over():
            return False
        self.until = now + _PUT_OFF_SECONDS
        return True

    def bound(self) -> float:
        if self._leaving:
            return 0.0
        return self.until if self.careful else self.until + BRIDGE_SECONDS

    def lasts(self) -> bool:
        with self._lock:
            attended = not self._turned.is_set()
            self._over = time.monotonic() >= (self.until if attended else self.bound())
            return not self._over

    def leaves(self) -> bool:
        with self._lock:
            self._over = self._turned.is_set()
            return self._over
