"""Signals, reports and the lock of a slot, in memory: what files of the control directory are to real instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kstreams_repl.host.instance.control import slot_lock
from kstreams_repl.host.instance.control.channel import ReportedTimes, Signal
from kstreams_repl.host.instance.control.node_taps import TapFiles
from tests.faults.simulation.world import Actor, World


@dataclass
class Lease:
    generation: int = 0
    signal: Signal = Signal.STOP
    times: dict[int, dict[int, tuple[list[int], float]]] = field(default_factory=dict)
    """What the slots of each generation tell each other about event time."""


class SimulatedTimes:
    """`event_times.FileTimes` in memory."""

    def __init__(self, world: World, told: dict[int, tuple[list[int], float]], slot: int, slots: int) -> None:
        self._world, self._told, self._slot, self._slots = world, told, slot, slots

    def report(self, times: Sequence[int]) -> None:
        self._world.check_alive()
        self._told[self._slot] = (list(times), self._world.now)

    def others(self) -> list[ReportedTimes | None]:
        found = [self._told.get(slot) for slot in range(self._slots) if slot != self._slot]
        return [None if told is None else (told[0], self._world.now - told[1]) for told in found]


class Loops:
    """The locks of all slots, as flocks are: the end of a process lets go of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held: dict[tuple[int, int], tuple[Actor, SimulatedLock]] = {}
        self.wanted: set[tuple[int, int]] = set()


class SimulatedLock:
    """`instance.control.slot_lock.LoopLock` over a dictionary."""

    def __init__(self, loops: Loops, generation: int, slot: int) -> None:
        self._loops = loops
        self._key = (generation, slot)
        self._next_look = 0.0

    def take(self, *, end_holder: bool) -> bool:
        loops, world = self._loops, self._loops.world
        deadline = world.now + slot_lock.PATIENCE_SECONDS
        while (held := loops.held.get(self._key)) is not None and held[0].alive:
            loops.wanted.add(self._key)
            if world.now >= deadline:
                if not end_holder or held[0] is world.current:
                    return False
                world.kill(held[0], "held the slot")
            world.pause(0.005, "waiting for a slot")
        assert world.current is not None
        loops.held[self._key] = (world.current.process, self)
        loops.wanted.discard(self._key)
        return True

    def release(self) -> None:
        held = self._loops.held.get(self._key)
        if held is not None and held[1] is self:
            del self._loops.held[self._key]

    def wanted(self, now: float) -> bool:
        if now < self._next_look:
            return False
        self._next_look = now + 0.005
        return self._key in self._loops.wanted


class LeaseControl:
    """`instance.control.file_channel.FileInstanceControl` over a lease in memory."""

    def __init__(
        self,
        world: World,
        lease: Lease,
        generation: int,
        slot: int,
        reports: dict[tuple[int, int], Mapping[str, Any]],
        directory: Path,
        loops: Loops,
    ) -> None:
        self._loops = loops
        self._world = world
        self._lease = lease
        self._reports = reports
        self.taps = TapFiles(directory)
        self.generation = generation
        self.slot = slot

    def signal(self, *, now: float | None = None) -> Signal:
        self._world.check_alive()
        return self._lease.signal if self._lease.generation == self.generation else Signal.SUPERSEDED

    def signal_when_fenced(self) -> Signal:
        return self.signal()

    def has_reported(self, *states: str) -> bool:
        return self._reports.get((self.generation, self.slot), {}).get("state") in states

    def metrics(self, snapshot: Mapping[str, Any]) -> None: ...

    def orders(self, now_ms: int) -> tuple[()]:
        return ()

    def event_times(self, slots: int, groups: int) -> SimulatedTimes:
        return SimulatedTimes(self._world, self._lease.times.setdefault(self.generation, {}), self.slot, slots)

    def loop_lock(self) -> SimulatedLock:
        return SimulatedLock(self._loops, self.generation, self.slot)

    def report(self, content: Mapping[str, Any], *, soon: bool = False) -> None:
        self._world.check_alive()
        self._reports[(self.generation, self.slot)] = content
