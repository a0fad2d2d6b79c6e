"""Instances kept by a worker process between epochs: running ones (`epoch_handover`), and idle ones.

A kept idle instance may continue only if nothing happened to its tasks in the meantime: the group's committed metadata still
carries its commit id *and* the changelogs still end where they did. The same position alone does not prove ownership. Otherwise
the instance is closed and its tasks are taken over again. A running instance is not here: its thread owns it until it puts it
here, idle.

Invariant: while any thread closes an instance of an application here, no other one of that application is returned. Closing syncs
its stores, which takes seconds after heavy writes, and an environment can be opened only once in a process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.open_channel import command_in_force
from kstreams_repl.host.instance.epochs.epoch_handover import EpochHandover
from kstreams_repl.host.instance.epochs.lifecycle import RunnerLifecycle
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.process.gc_tuning import free_closed
from kstreams_repl.host.instance.state.state_manager import OpenEnvironments
from kstreams_repl.host.kafka.group_admin import committed_by
from kstreams_repl.system.errors import KStreamsError, is_interrupt
from kstreams_repl.system.types import TopicPartition

SlotKey = tuple[str, int]
"""Application and slot."""
_LOG = logging.getLogger("kstreams_repl.host.instance")
_WATCH_SECONDS = 0.2
_CLOSING_SECONDS = 0.02
"""Interval between checks whether an instance that is being closed is closed."""
_SUCCESSION_SECONDS = 10.0


@dataclass(slots=True)
class _Kept:
    instance: Instance
    changelog_ends: dict[TopicPartition, int]
    deadline: float
    """When to close it (monotonic)."""


class InstanceCache:
    """At most one kept instance per application and slot; a background thread closes those not taken in time.

    Args:
        seconds: how long an instance is kept. It holds open connections and store environments.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds
        self._kept: dict[SlotKey, _Kept] = {}
        self._environments: dict[str, OpenEnvironments] = {}
        self._handovers: dict[SlotKey, EpochHandover] = {}
        self._lifecycles: dict[SlotKey, tuple[int, RunnerLifecycle]] = {}
        self._closing: Counter[str] = Counter()
        """Number of an application's instances that are being closed: no longer kept, but their stores may still be open."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def held(self, application_id: str, generation: int) -> tuple[int, ...]:
        """Return the slots that this process holds, of that generation or, because stores may stay open, of an earlier one."""
        with self._lock:
            idle = ((key, kept.instance.plan.generation) for key, kept in self._kept.items())
            running = ((key, handover.generation) for key, handover in self._handovers.items() if handover.is_running)
            slots = [slot for (name, slot), of in (*running, *idle) if name == application_id and of <= generation]
            return tuple(dict.fromkeys(slots))

    def lifecycle(self, plan: ApplicationPlan, slot: int) -> RunnerLifecycle:
        """Return the states of a slot in this generation; after a final one, new ones."""
        generation, life = self._lifecycles.get((plan.application_id, slot), (-1, None))
        if life is None or generation != plan.generation or life.state.is_final:
            life = RunnerLifecycle(plan.application_id, slot, plan.generation)
            self._lifecycles[plan.application_id, slot] = plan.generation, life
        return life

    def handover(self, plan: ApplicationPlan, slot: int) -> EpochHandover | None:
        """Return the slot's running or last runner in this generation. The application's other runners in this process are ended.
        """
        with self._lock:
            mine = {key: handover for key, handover in self._handovers.items() if key[0] == plan.application_id}
            current = mine.get((plan.application_id, slot))
            if current is not None and current.generation != plan.generation:
                current = None
            ended = [self._handovers.pop(key) for key, handover in mine.items() if handover is not current]
        for handover in ended:
            handover.end()
        return current

    def register(self, plan: ApplicationPlan, handover: EpochHandover) -> None:
        """Register a runner that is about to begin."""
        with self._lock:
            self._handovers[(plan.application_id, handover.slot)] = handover

    def put(self, instance: Instance) -> None:
        """Keep an instance that has just committed; close it if its changelog ends cannot be read now."""
        try:
            instance.rest()
            ends = _settled_ends(instance)
        except KStreamsError:
            _close(instance)
            return
        with self._lock:
            self._kept[(instance.plan.application_id, instance.slot)] = _Kept(instance, ends, time.monotonic() + self._seconds)
            if self._thread is None:
                thread = threading.Thread(target=self._close_expired, name="instance-cache", daemon=True)
                thread.start()
                self._thread = thread

    def take(self, plan: ApplicationPlan, slot: int, go_on: Callable[[], bool] = lambda: True) -> Instance | None:
        """Return the kept instance of this slot if it may continue. Every other kept instance of the application is closed when
        this returns, including those that another thread began to close.

        Args:
            go_on: called repeatedly while another thread closes; False, or an exception, ends the wait.
        """
        while True:
            with self._lock:
                if not self._closing[plan.application_id]:
                    found = self._take_out([key for key in self._kept if key[0] == plan.application_id])
                    break
            if not go_on():
                return None
            time.sleep(_CLOSING_SECONDS)
        chosen, ended = None, 0
        try:
            for kept in found:
                instance = kept.instance
                if instance.slot == slot and instance.plan.generation == plan.generation and _unchanged(kept):
                    chosen = instance
                    continue
                ended += 1
                if instance.plan.generation < plan.generation:
                    self._keep_environments(instance)
                else:
                    _close(instance)
        finally:
            self._closed(found)
        if ended:
            del found, kept, instance
            free_closed()  # else the clients of each edit stay until Python collects, which may be a thousand threads later
        if chosen is not None:
            chosen.resume()
        return chosen

    def take_environments(self, application_id: str) -> OpenEnvironments:
        """Remove and return environments that instances of former generations left open for their successors in this process."""
        return self._environments.pop(application_id, {})

    def _keep_environments(self, instance: Instance) -> None:
        try:
            environments = instance.hand_over()
        except Exception as error:  # nothing is lost: processed input is committed
            _log_failed_close(instance, error)
            _close(instance)
            return
        self._environments.setdefault(instance.plan.application_id, {}).update(environments)

    def close(self) -> None:
        """End all runners and close all kept instances."""
        with self._lock:
            handovers, self._handovers = list(self._handovers.values()), {}
        for handover in handovers:
            handover.end()
        self.close_idle()
        while any(self._closing.values()):
            time.sleep(_CLOSING_SECONDS)

    def close_idle(self, application_id: str | None = None) -> None:
        """Close idle kept instances, of one application or of all."""
        with self._lock:
            taken = self._take_out([key for key in self._kept if application_id in (None, key[0])])
        try:
            for kept in taken:
                _close(kept.instance)
        finally:
            self._closed(taken)

    def _take_out(self, keys: Iterable[SlotKey]) -> list[_Kept]:
        """Remove these instances, and block opening their stores until `_closed`. Call with the lock held; close without it."""
        taken = [self._kept.pop(key) for key in keys]
        self._closing.update(kept.instance.plan.application_id for kept in taken)
        return taken

    def _closed(self, found: Iterable[_Kept]) -> None:
        with self._lock:
            self._closing.subtract(kept.instance.plan.application_id for kept in found)

    # ---- the watching thread

    def _close_expired(self) -> None:
        keeps_any = True
        while keeps_any:
            time.sleep(_WATCH_SECONDS)
            try:
                keeps_any = self._check_deadlines()
            except Exception:  # after any error, the others must still be closed in time
                _LOG.exception("checking the kept instances failed, retrying")

    def _check_deadlines(self) -> bool:
        """Close instances that were not taken in time; return False when none is kept any more, and the thread ends."""
        expired = self._take_expired(time.monotonic())
        if expired is None:
            return False
        for kept in expired:
            try:
                _close(kept.instance)
            except BaseException as error:  # user code that exits: in this thread it cannot end the worker
                if is_interrupt(error):
                    raise
                _log_failed_close(kept.instance, error)
            finally:
                self._closed([kept])
        if expired:
            del kept, expired
            free_closed()
        return True

    def _take_expired(self, now: float) -> list[_Kept] | None:
        with self._lock:
            for kept in self._kept.values():
                kept.deadline = _deadline(kept, now)
            expired = self._take_out([key for key, kept in self._kept.items() if now >= kept.deadline])
            if self._kept or expired:
                return expired
            self._thread = None
            return None


def _deadline(kept: _Kept, now: float) -> float:
    """Return when a kept instance must be closed (monotonic), by its current signal."""
    plan = kept.instance.plan
    try:
        signal = command_in_force(plan)
    except Exception as error:  # for one instance: the others are still checked
        _LOG.warning("reading its signal failed: %s: %s", type(error).__name__, error, extra={"application": plan.application_id})
        return kept.deadline
    if signal is Signal.STOP:
        return now
    if signal is Signal.SUPERSEDED:  # a successor in this process can use its environments
        return min(kept.deadline, now + _SUCCESSION_SECONDS)
    return kept.deadline


def _close(instance: Instance) -> None:
    try:
        instance.close()
    except Exception as error:  # nothing is lost: processed input is committed
        _log_failed_close(instance, error)


def _log_failed_close(instance: Instance, error: BaseException) -> None:
    level = logging.INFO if isinstance(error, KStreamsError) else logging.WARNING  # the former: fenced by its successor
    about = {"application": instance.plan.application_id, "instance": instance.slot}
    _LOG.log(level, "closing a kept instance failed: %s: %s", type(error).__name__, error, extra=about)


def _settled_ends(instance: Instance) -> dict[TopicPartition, int]:
    """Return the ends behind the last commit's markers, which come after its acknowledgement."""
    if instance.clients.transactions is not None:
        instance.clients.admin.settled_end_offsets(_changelogs(instance))
    return _changelog_ends(instance)


def _changelog_ends(instance: Instance) -> dict[TopicPartition, int]:
    return dict(instance.clients.changelog_ends(_changelogs(instance)))


def _changelogs(instance: Instance) -> list[TopicPartition]:
    restoring = () if instance.updater is None else instance.updater.restoring.values()
    return [log for task in (*instance.tasks, *restoring) for log in task.changelogs]


def _unchanged(kept: _Kept) -> bool:
    instance = kept.instance
    try:
        expected = {
            partition: (task.commit_id, task.committed[partition]) for task in instance.tasks for partition in task.starts
        }
        if instance.updater is not None:  # the offsets of its tasks are still those of the take-over
            for task in instance.updater.restoring.values():
                expected |= {partition: (start.metadata.commit_id, start.offset) for partition, start in task.starts.items()}
        committed = committed_by(instance.clients.consumer, list(expected), seconds=5.0)
        for partition, (commit_id, offset) in expected.items():
            known = committed.get(partition)
            if known is None or decode(known.metadata).commit_id != commit_id or known.offset != offset:
                return False
        for active in instance.tasks:
            active.check_owner()
        return _changelog_ends(instance) == kept.changelog_ends
    except KStreamsError:
        return False
