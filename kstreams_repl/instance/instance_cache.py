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

from kstreams_repl.commit.offset_metadata import decode
from kstreams_repl.errors import KStreamsError, is_interrupt
from kstreams_repl.instance.application_plan import ApplicationPlan
from kstreams_repl.instance.control.channel import Signal
from kstreams_repl.instance.control.open_channel import command_in_force
from kstreams_repl.instance.epoch_handover import Bridge
from kstreams_repl.instance.gc_tuning import free_closed
from kstreams_repl.instance.instance import Instance
from kstreams_repl.instance.state.standby_tasks import Spares
from kstreams_repl.kafka.admin import committed_by
from kstreams_repl.types import TopicPartition

Place = tuple[str, int]
_LOG = logging.getLogger("kstreams_repl.instance")
_WATCH_SECONDS = 0.2
_CLOSING_SECONDS = 0.02
"""Interval between checks whether an instance that is being closed is closed."""
_SUCCESSION_SECONDS = 10.0


class WarmInstances:
    """At most one kept instance per application and slot; a background thread closes those not taken in time.

    Args:
        seconds: how long an instance is kept. It holds open connections and store environments.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds
        self._kept: dict[Place, tuple[float, Instance]] = {}
        self._spares: dict[str, Spares] = {}
        self._bridges: dict[Place, Bridge] = {}
        self._closing: Counter[str] = Counter()
        """Number of an application's instances that are being closed: no longer kept, but their stores may still be open."""
        self._lock = threading.Lock()
        self._watch: threading.Thread | None = None

    def held(self, application_id: str, generation: int) -> tuple[int, ...]:
        """Return the slots that this process holds, of that generation or, because stores may stay open, of an earlier one."""
        with self._lock:
            resting = ((place, kept.plan.generation) for place, (_, kept) in self._kept.items())
            running = ((place, bridge.generation) for place, bridge in self._bridges.items() if bridge.going_on)
            found = [slot for (name, slot), of in (*running, *resting) if name == application_id and of <= generation]
            return tuple(dict.fromkeys(found))

    def bridge(self, plan: ApplicationPlan, slot: int) -> Bridge | None:
        """Return the slot's running or last runner in this generation. The application's other runners in this process are ended.
        """
        with self._lock:
            mine = {place: self._bridges[place] for place in self._bridges if place[0] == plan.application_id}
            found = mine.get((plan.application_id, slot))
            if found is not None and found.generation != plan.generation:
                found = None
            others = [place for place, bridge in mine.items() if bridge is not found]
            ended = [self._bridges.pop(place) for place in others]
        for bridge in ended:
            bridge.end()
        return found

    def run(self, plan: ApplicationPlan, bridge: Bridge) -> None:
        """Register a bridge that is about to begin."""
        with self._lock:
            self._bridges[(plan.application_id, bridge.slot)] = bridge

    def put(self, instance: Instance) -> None:
        """Keep an instance that has just committed; close it if its changelog ends cannot be read now."""
        try:
            if instance.updater is not None:
                instance.updater.rest()
            instance.changelog_ends = _changelog_ends(instance)
        except KStreamsError:
            _close(instance)
            return
        with self._lock:
            self._kept[(instance.plan.application_id, instance.slot)] = (time.monotonic() + self._seconds, instance)
            if self._watch is None:
                watch = threading.Thread(target=self._close_forgotten, name="warm-instances", daemon=True)
                watch.start()
                self._watch = watch

    def take(self, plan: ApplicationPlan, slot: int, go_on: Callable[[], bool] = lambda: True) -> Instance | None:
        """Return the kept instance of this slot if it may continue. Every other kept instance of the application is closed when
        this returns, including those that another thread began to close.

        Args:
            go_on: called repeatedly while another thread closes; False, or an exception, ends the wait.
        """
        while True:
            with self._lock:
                if not self._closing[plan.application_id]:
                    found = self._take_out([place for place in self._kept if place[0] == plan.application_id])
                    break
            if not go_on():
                return None
            time.sleep(_CLOSING_SECONDS)
        chosen = None
        try:
            for instance in found:
                if instance.slot == slot and instance.plan.generation == plan.generation and _unchanged(instance):
                    chosen = instance
                elif instance.plan.generation < plan.generation:
                    self._spare(instance)
                else:
                    _close(instance)
        finally:
            self._closed(found)
        if chosen is not None:
            chosen.warm = True
            if chosen.updater is not None:
                chosen.updater.start()
        return chosen

    def take_spares(self, application_id: str) -> Spares:
        """Remove and return environments that instances of former generations left open for their successors in this process."""
        return self._spares.pop(application_id, {})

    def _spare(self, instance: Instance) -> None:
        try:
            spares = instance.give_up()
        except Exception as error:  # nothing is lost: processed input is committed
            _tell(instance, error)
            _close(instance)
            return
        self._spares.setdefault(instance.plan.application_id, {}).update(spares)

    def close(self) -> None:
        """End all runners and close all kept instances."""
        with self._lock:
            bridges, self._bridges = list(self._bridges.values()), {}
        for bridge in bridges:
            bridge.end()
        self.close_resting()
        while any(self._closing.values()):
            time.sleep(_CLOSING_SECONDS)

    def close_resting(self, application_id: str | None = None) -> None:
        """Close idle kept instances, of one application or of all."""
        with self._lock:
            kept = self._take_out([place for place in self._kept if application_id in (None, place[0])])
        try:
            for instance in kept:
                _close(instance)
        finally:
            self._closed(kept)

    def _take_out(self, places: Iterable[Place]) -> list[Instance]:
        """Remove these instances, and block opening their stores until `_closed`. Call with the lock held; close without it."""
        found = [self._kept.pop(place)[1] for place in places]
        self._closing.update(instance.plan.application_id for instance in found)
        return found

    def _closed(self, instances: Iterable[Instance]) -> None:
        with self._lock:
            self._closing.subtract(instance.plan.application_id for instance in instances)

    # ---- the watching thread

    def _close_forgotten(self) -> None:
        going_on = True
        while going_on:
            time.sleep(_WATCH_SECONDS)
            try:
                going_on = self._look()
            except Exception:  # after any error, the others must still be closed in time
                _LOG.exception("kept instances could not be looked after")

    def _look(self) -> bool:
        """Close instances that were not taken in time; return False when none is kept any more, and the thread ends."""
        late = self._due(time.monotonic())
        if late is None:
            return False
        for instance in late:
            try:
                _close(instance)
            except BaseException as error:  # user code that exits: in this thread it cannot end the worker
                if is_interrupt(error):
                    raise
                _tell(instance, error)
            finally:
                self._closed([instance])
        if late:
            del instance, late
            free_closed()
        return True

    def _due(self, now: float) -> list[Instance] | None:
        with self._lock:
            for place, (deadline, kept) in list(self._kept.items()):
                self._kept[place] = (_until(kept, deadline, now), kept)
            late = self._take_out([place for place, (deadline, _) in self._kept.items() if now >= deadline])
            if self._kept or late:
                return late
            self._watch = None
            return None


def _until(instance: Instance, deadline: float, now: float) -> float:
    """Return when a kept instance must be closed (monotonic), by its current signal."""
    try:
        wanted = command_in_force(instance.plan)
    except Exception as error:  # for one instance: the others are still checked
        _LOG.warning(
            "its signal cannot be read: %s: %s", type(error).__name__, error, extra={"application": instance.plan.application_id}
        )
        return deadline
    if wanted is Signal.STOP:
        return now
    if wanted is Signal.SUPERSEDED:  # a successor in this process can use its environments
        return min(deadline, now + _SUCCESSION_SECONDS)
    return deadline


def _close(instance: Instance) -> None:
    try:
        instance.close()
    except Exception as error:  # nothing is lost: processed input is committed
        _tell(instance, error)


def _tell(instance: Instance, error: BaseException) -> None:
    level = logging.INFO if isinstance(error, KStreamsError) else logging.WARNING  # the former: fenced by its successor
    where = {"application": instance.plan.application_id, "instance": instance.slot}
    _LOG.log(level, "kept until now, was not closed in order: %s: %s", type(error).__name__, error, extra=where)


def _changelog_ends(instance: Instance) -> dict[TopicPartition, int]:
    held = () if instance.updater is None else instance.updater.restoring.values()
    wanted = [at for task in (*instance.tasks, *held) for at in task.changelogs]
    return instance.admin.end_offsets(wanted, isolation="read_uncommitted") if wanted else {}


def _unchanged(instance: Instance) -> bool:
    try:
        expected = {at: (task.commit_id, task.committed[at]) for task in instance.tasks for at in task.starts}
        if instance.updater is not None:  # the offsets of its tasks are still those of the take-over
            restoring = instance.updater.restoring.values()
            expected |= {at: (start.metadata.commit_id, start.offset) for task in restoring for at, start in task.starts.items()}
        committed = committed_by(instance.consumer, list(expected), seconds=5.0)
        for at, (commit_id, offset) in expected.items():
            known = committed.get(at)
            if known is None or decode(known.metadata).commit_id != commit_id or known.offset != offset:
                return False
        for task in instance.tasks:
            task.check_owner()
        return _changelog_ends(instance) == instance.changelog_ends
    except KStreamsError:
        return False
