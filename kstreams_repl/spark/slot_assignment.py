"""Assign the slots of an epoch to workers. Spark schedules its tasks again in every epoch; a *claim* keeps a slot where its clients and
stores are.

On the driver's host a claim is a flock per slot (`FileClaim`). On a cluster it is a journal record, of which the first in log
order wins (`JournalClaim`): a process claims immediately a slot that it holds warm or that had no owner, a moment later one of the same
executor directory, and still later one of another directory, whose worker may only be slow. A later attempt of the same Spark task
inherits the slot that the earlier one claimed, so that a killed worker is replaced without waiting.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress

from kstreams_repl.instance.application_plan import ApplicationPlan
from kstreams_repl.instance.control.file_control import Signal
from kstreams_repl.instance.control.journal_control import Follower
from kstreams_repl.kafka.journal_records import Claim

_CLAIM_SECONDS = 30.0
_SAME_PLACE_SECONDS = 0.15
_OTHER_PLACE_SECONDS = 0.5


class FileClaim:
    """The claim to one slot of an epoch, as a context manager that returns the slot; None when all slots of the epoch are done."""

    def __init__(self, plan: ApplicationPlan, partition: int, epoch: str, held: tuple[int, ...]) -> None:
        self._directory = plan.control_directory
        self._generation = plan.generation
        self._epoch = epoch
        count = plan.instances
        rest = [slot for slot in range(partition, partition + count)]
        held = tuple(slot for slot in held if slot < count)  # an earlier generation may have had more slots
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
        file = os.open(self._path(slot), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        epoch, _, owner = os.pread(file, 200, 0).decode("ascii", "replace").strip().partition(" ")
        others = owner.isdecimal() and int(owner) != self._pid and os.path.exists(f"/proc/{owner}")
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


class JournalClaim:
    """The claim to one slot of an epoch across executors; used like `FileClaim`. It is not released: the next epoch's claims replace
    it.

    Args:
        run, epoch: the query and its batch number.
        partition, attempt: Spark's partition id and attempt number.
    """

    def __init__(
        self,
        plan: ApplicationPlan,
        follower: Follower,
        place: str,
        *,
        run: str,
        epoch: int,
        partition: int,
        attempt: int,
        held: tuple[int, ...],
    ) -> None:
        self._plan = plan
        self._follower = follower
        self._place = place
        self._run, self._epoch = run, epoch
        self._partition, self._attempt = partition, attempt
        self._held = held
        self._owner = f"{place}:{os.getpid()}"
        self.held: Claim | None = None
        """The claim that won."""

    def __enter__(self) -> int | None:
        follower, count = self._follower, self._plan.instances
        follower.refresh()
        earlier = follower.state.claimed_by(self._partition, self._epoch, self._run)
        began = time.monotonic()
        order = [slot % count for slot in range(self._partition, self._partition + count)]
        while (waited := time.monotonic() - began) < _CLAIM_SECONDS:
            signal = follower.signal(self._plan.generation)
            if signal is Signal.SUPERSEDED:
                return self._partition % count  # its signal is to leave
            if earlier is not None:
                if signal is not Signal.RUN or self._claim(earlier.slot):
                    return earlier.slot
                earlier = None
            free = [slot for slot in order if follower.state.claim_of(slot, self._epoch, self._run) is None]
            if not free:
                return None
            if signal is not Signal.RUN:
                return free[0]  # the application is to rest: no claim is needed
            chosen = next((slot for slot in free if self._patience(slot) <= waited), None)
            if chosen is None:
                follower.watch(0.02)
            elif self._claim(chosen):
                return chosen
        return None

    def _patience(self, slot: int) -> float:
        """Return for how many seconds to leave a slot to other workers."""
        if slot in self._held:
            return 0.0
        if self._held:
            return _OTHER_PLACE_SECONDS
        places = self._plan.places
        last = self._follower.state.last_claim(slot, self._run)
        home = last.place if last is not None else places[slot] if slot < len(places) else None
        if home is None:
            return 0.0
        return _SAME_PLACE_SECONDS if home == self._place else _OTHER_PLACE_SECONDS

    def _claim(self, slot: int) -> bool:
        """Write the claim and return whether it won."""
        follower, state = self._follower, self._follower.state
        follower.writer.send(
            Claim(
                self._plan.generation,
                slot,
                self._epoch,
                self._owner,
                self._run,
                self._partition,
                self._attempt,
                self._place,
            )
        )
        generation = self._plan.generation

        def decided() -> bool:
            claim = state.claim_of(slot, self._epoch, self._run)
            if claim is None:
                return follower.signal(generation) is Signal.SUPERSEDED
            return claim.partition != self._partition or claim.attempt >= self._attempt

        follower.wait_for(decided, _CLAIM_SECONDS, f"the claim to slot {slot}")
        claim = state.claim_of(slot, self._epoch, self._run)
        if claim is not None and (claim.partition, claim.attempt) == (self._partition, self._attempt):
            self.held = claim
        return claim is None or claim is self.held

    def __exit__(self, *exc: object) -> None:
        return None
