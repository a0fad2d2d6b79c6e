"""Between two epochs: a slot's runner goes on, on a thread of its own, and epochs only *attend* it.

When an epoch ends Spark collects what it reported, writes its log, plans the next one and starts its tasks: some 200 ms on an idle
machine, seconds on a busy one. Nothing of that concerns the records. So nothing is handed over at a turn: the thread that opened the
instance runs it until it rests, and the task of an epoch waits until the loop has passed the epoch's deadline at a round of its own.

Actors: the *runner's thread*, the *epoch's task* (`attend`, `end`), the slot's lock (`loop_lock`). Who owns the instance and its
environments: the runner's thread from their opening until `WarmInstances.put` or `close`; from then on the warm store. Invariants:

1. One runner of a slot in a process: a new one begins only when the thread of the former has ended.
2. One runner of a slot and generation on a host: it holds the slot's lock, and leaves, at a commit, when another worker wants it while no
   epoch attends it.
3. Only an attended runner takes tasks over. One that meets an error between epochs closes its instance and ends; else two workers that
   Spark gave the same slot in turn could fence each other for ever.
4. What it ended with is told by the next epoch of its slot: a failure as the failure, anything else as records.

An epoch's turn is work for Spark (a plan, a job, its log), which an application that waits for records pays for nothing. So an epoch in
which nothing came in is *put off*: it goes on until a record has come in, another slot of the application has ended it, or for
``repl.epoch.idle.ms``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kstreams_repl.instance.loop_lock import SlotLock
from kstreams_repl.instance.outcome import Outcome, TaskOutcome
from kstreams_repl.instance.refusals import Refusals

BRIDGE_SECONDS = 5.0
"""An epoch that has not come by then may never come: its query was stopped."""


_PUT_OFF_SECONDS = 0.25
"""How far apart looks are whether an epoch that was put off has to end."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long an epoch without records may last.

    Attributes:
        until: no longer than that (monotonic).
        over: whether another slot has ended the epoch; its loop goes on for some seconds only.
    """

    until: float
    over: Callable[[], bool]


class Attendance:
    """How long a runner may go on, as the runner sees it. This one: for one epoch, with nothing before or after it."""

    def __init__(self, until: float) -> None:
        self.until = until
        """The deadline of the epoch."""
        self.refusals = Refusals()
        self.careful = False
        """Whether the runner looks closely, at refused output or deadly records: then it rests between epochs."""
        self.carried: Mapping[str, TaskOutcome] = {}
        """What the slot's tasks have done that no epoch has told yet."""

    def look(self, now: float, turn: Callable[[], Outcome], records: int = 0) -> None:
        """Called in every round of the loop. `turn` gives what has been done since it was last called; an epoch ends with that.

        Args:
            records: how many the instance has processed or restored so far.
        """

    def bound(self) -> float:
        """When the loop is to end."""
        return self.until

    def lasts(self) -> bool:
        """Whether a loop that ended at its bound, or in an error, may begin again. After False it may not."""
        return time.monotonic() < self.until

    def leaves(self) -> bool:
        """Whether it has to end with the error that it met, for no epoch attends it. After True it has to."""
        return False


class Bridge(Attendance):
    """A runner on a thread of its own.

    Args:
        run: the runner's work, which asks the bridge how long it may go on.
        lock: taken for as long as it runs.
        end_holder: as for `SlotLock.take`.
        former: of the slot, which has ended.
        patience: with an epoch in which nothing comes in; None: none.
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
        """Records processed when the epoch before this one ended, or this first one began."""
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
        """Start, and attend it for the epoch that it was made for."""
        self._thread.start()
        return self._wait()

    def attend(self, until: float, patience: Patience | None = None) -> Outcome | None:
        """Let the epoch go on until then; returns what it came to.

        Returns:
            None: it had ended, with nothing but records to tell. Nothing of it runs any more.
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
        """Let it end at a commit; returns when it has, and its instance rests in the warm store or is closed."""
        self._leaving = True
        self._thread.join()

    @property
    def going_on(self) -> bool:
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
        except BaseException as error:  # the epoch's task raises it: a user function that exits ends the worker
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
