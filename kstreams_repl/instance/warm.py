"""Instances kept by a worker process between epochs: those that go on (`bridge`), and those at rest.

A kept instance may go on only if nothing happened to its tasks meanwhile: the group's committed metadata still carries its
commit id *and* the changelogs still end where they did. "Same position" alone is not "still mine". Else it is closed and the
tasks are taken over anew. A running one is not here: its thread owns it until it puts it here, at rest.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

from kstreams_repl.commit.offset_metadata import decode
from kstreams_repl.errors import KStreamsError
from kstreams_repl.instance.bridge import Bridge
from kstreams_repl.instance.control import LEASE, Signal, read_whole
from kstreams_repl.instance.garbage import free_closed
from kstreams_repl.instance.instance import Instance
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.instance.remote_control import followed
from kstreams_repl.instance.standby import Spares
from kstreams_repl.kafka.admin import committed_by
from kstreams_repl.types import TopicPartition

Place = tuple[str, int]
_WATCH_SECONDS = 0.2
_SUCCESSION_SECONDS = 10.0


class WarmInstances:
    """At most one kept instance per application and slot; those not fetched in time are closed by a watching thread.

    Args:
        seconds: how long an instance is kept. It holds open connections and store environments.
    """

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds
        self._kept: dict[Place, tuple[float, Instance]] = {}
        self._spares: dict[str, Spares] = {}
        self._bridges: dict[Place, Bridge] = {}
        self._lock = threading.Lock()
        self._watch: threading.Thread | None = None

    def held(self, application_id: str, generation: int) -> tuple[int, ...]:
        """Slots that this process holds warm, of that generation or, with stores that may stay open, of one before."""
        with self._lock:
            resting = ((place, kept.plan.generation) for place, (_, kept) in self._kept.items())
            running = ((place, bridge.generation) for place, bridge in self._bridges.items() if bridge.going_on)
            found = [slot for (name, slot), of in (*running, *resting) if name == application_id and of <= generation]
            return tuple(dict.fromkeys(found))

    def bridge(self, plan: ApplicationPlan, slot: int) -> Bridge | None:
        """What runs, or ran last, this slot in this generation. Whatever else of the application goes on here is ended."""
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
        """Know of a bridge that is about to begin."""
        with self._lock:
            self._bridges[(plan.application_id, bridge.slot)] = bridge

    def put(self, instance: Instance) -> None:
        """Keep an instance that has just committed; one whose changelog ends cannot be learnt now is closed."""
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
                self._watch = threading.Thread(target=self._close_forgotten, name="warm-instances", daemon=True)
                self._watch.start()

    def take(self, plan: ApplicationPlan, slot: int) -> Instance | None:
        """The kept instance of this slot if it may go on. Everything else kept for the application is closed."""
        with self._lock:
            mine = [place for place in self._kept if place[0] == plan.application_id]
            found = [(place, self._kept.pop(place)[1]) for place in mine]
        chosen = None
        for (_, held), instance in found:
            if held == slot and instance.plan.generation == plan.generation and _unchanged(instance):
                chosen = instance
            elif instance.plan.generation < plan.generation:
                self._spare(instance)
            else:
                _close(instance)
        if chosen is not None:
            chosen.warm = True
            if chosen.updater is not None:
                chosen.updater.start()
        return chosen

    def take_spares(self, application_id: str) -> Spares:
        """Environments that instances of former generations left open for their successors in this process."""
        return self._spares.pop(application_id, {})

    def _spare(self, instance: Instance) -> None:
        try:
            spares = instance.give_up()
        except KStreamsError:  # nothing is lost: what it had processed is committed
            return
        self._spares.setdefault(instance.plan.application_id, {}).update(spares)

    def close(self) -> None:
        """End what goes on and close what is kept."""
        with self._lock:
            bridges, self._bridges = list(self._bridges.values()), {}
        for bridge in bridges:
            bridge.end()
        self.close_resting()

    def close_resting(self, application_id: str | None = None) -> None:
        """Close what is kept at rest, of one application or of all."""
        with self._lock:
            places = [place for place in self._kept if application_id in (None, place[0])]
            kept = [self._kept.pop(place)[1] for place in places]
        for instance in kept:
            _close(instance)

    def _close_forgotten(self) -> None:
        while True:
            time.sleep(_WATCH_SECONDS)
            now = time.monotonic()
            with self._lock:
                for place, (deadline, kept) in list(self._kept.items()):
                    wanted = _wanted(kept)
                    if wanted is Signal.STOP:
                        self._kept[place] = (now, kept)
                    elif wanted is Signal.SUPERSEDED:  # its environments are of use to a successor in this process
                        self._kept[place] = (min(deadline, now + _SUCCESSION_SECONDS), kept)
                over = [place for place, (deadline, _) in self._kept.items() if now >= deadline]
                late = [self._kept.pop(place)[1] for place in over]
                if not self._kept and not late:
                    self._watch = None
                    return
            for instance in late:
                _close(instance)
            if late:
                del instance, late, kept
                free_closed()


def _wanted(instance: Instance) -> Signal:
    """What is wanted of its generation now."""
    if instance.plan.remote:
        follower = followed(instance.plan.application_id)
        return Signal.STOP if follower is None else follower.signal(instance.plan.generation)
    lease = read_whole(Path(instance.plan.control_directory) / LEASE)
    if lease is None or lease["signal"] == Signal.STOP.value:
        return Signal.STOP
    return Signal(lease["signal"]) if lease["generation"] == instance.plan.generation else Signal.SUPERSEDED


def _close(instance: Instance) -> None:
    with suppress(KStreamsError):  # nothing is lost: what it had processed is committed
        instance.close()


def _changelog_ends(instance: Instance) -> dict[TopicPartition, int]:
    held = () if instance.updater is None else instance.updater.restoring.values()
    wanted = [at for task in (*instance.tasks, *held) for at in task.changelogs]
    return instance.admin.end_offsets(wanted, isolation="read_uncommitted") if wanted else {}


def _unchanged(instance: Instance) -> bool:
    try:
        expected = {at: (task.commit_id, task.committed[at]) for task in instance.tasks for at in task.starts}
        if instance.updater is not None:  # of these the offsets are as they were found
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
