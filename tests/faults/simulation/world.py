"""One seeded world: a clock, actors that only run when it is their turn, and what may happen to them.

Actors are greenlets that run the project's real code. Every call into the simulated clients, disk or clock is a place where an actor
may be made to wait, be stopped (SIGSTOP) or be killed. The next actor is always the one with the earliest time, times are jittered by
the seed's generator, and nothing here asks the real clock: the same seed gives the same run, byte for byte.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import greenlet


class Killed(KeyboardInterrupt):
    """Raised inside an actor that was killed; its clean-up code meets it again at every call of the simulated world. It comes from outside
    as Ctrl-C does, in the main thread: the engine lets it pass, and takes it for no error of user code (`errors.is_interrupt`).
    """


class Stuck(AssertionError):
    """The world did not come to its end within its time."""


class Actor:
    """A process of the simulated machines, or a further thread of one: what ends or stops one of them ends or stops all."""

    def __init__(self, world: World, name: str, work: Callable[[], Any], process: Actor | None = None) -> None:
        self.name = name
        self.process = process or self
        self.threads: list[Actor] = []
        """Of a process, besides itself."""
        self.process.threads += [] if process is None else [self]
        self.alive = True
        self.stopped_until = 0.0
        self.sleeping: object = None
        self.holds: Any = None
        """The file of the simulated disk whose write lock this actor has."""
        self._world = world
        self._work = work
        self.greenlet = greenlet.greenlet(self._run)

    def _run(self) -> None:
        try:
            self._work()
        except Killed:
            pass
        finally:
            self.alive = False

    def __repr__(self) -> str:
        return self.name


class World:
    """Args:
    seed: decides everything.
    kill, stop: probability of either at each place where an actor may be interrupted.
    """

    def __init__(self, seed: int, *, kill: float = 0.0, stop: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000.0
        self.kill_chance = kill
        self.stop_chance = stop
        self.trace: list[str] = []
        self.actors: list[Actor] = []
        self.calm = False
        self.over = False
        self.main = greenlet.getcurrent()
        self._queue: list[tuple[float, int, Any]] = []
        self._order = 0
        self._by_greenlet: dict[Any, Actor] = {}

    # ---- the clock as the project's modules see it (they are given the world in place of the module `time`)

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    def sleep(self, seconds: float) -> None:
        self.pause(seconds, "sleep")

    # ---- actors

    @property
    def current(self) -> Actor | None:
        return self._by_greenlet.get(greenlet.getcurrent())

    def spawn(self, name: str, work: Callable[[], Any], process: Actor | None = None) -> Actor:
        actor = Actor(self, name, work, process)
        self.actors.append(actor)
        self._by_greenlet[actor.greenlet] = actor
        self._wake(actor, self.random.uniform(0, 0.01))
        return actor

    def tell(self, text: str) -> None:
        actor = self.current
        self.trace.append(f"{self.now - 1_000_000:.6f} {actor.name if actor else '-'} {text}")

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen that belongs to no actor: a late request, a marker that is written."""
        self._push(self.now + seconds, act)

    def check_alive(self) -> None:
        actor = self.current
        if self.over or (actor is not None and not actor.alive):
            raise Killed

    def pause(self, seconds: float, what: str, *, fragile: bool = True) -> None:
        """Give way for some time. A fragile place may also end or stop the actor."""
        self.check_alive()
        actor = self.current
        if actor is None:
            self.now += seconds
            return
        if fragile and not self.calm:
            dice = self.random.random()
            if dice < self.kill_chance:
                self.tell(f"killed at {what}")
                self._kill_all(actor.process)
                raise Killed
            if dice < self.kill_chance + self.stop_chance:
                held = self.random.choice((0.5, 3.0, 6.0, 12.0))
                self.tell(f"stopped for {held} s at {what}")
                actor.process.stopped_until = self.now + held
        self._wake(actor, max(seconds, 0.0) * self.random.uniform(0.9, 1.1) + 1e-5)
        self.main.switch()
        if self.over or not actor.alive:
            raise Killed

    def kill(self, actor: Actor, why: str) -> None:
        """End the process of an actor from outside, as kill -9 would."""
        if actor.alive:
            self.trace.append(f"{self.now - 1_000_000:.6f} {actor.name} killed: {why}")
            self._kill_all(actor.process)

    def _kill_all(self, process: Actor) -> None:
        """End all threads of a process; the current one, if it is among them, is to raise `Killed`."""
        ending = [actor for actor in (process, *process.threads) if actor.alive]
        for actor in ending:
            actor.alive = False
        for actor in ending:
            self._end(actor)

    def _end(self, actor: Actor) -> None:
        """Unwind an actor that may do nothing any more, and free the lock it held. One that is in the middle of unwinding the current one
        goes on with it, and unwinds itself at its next step.
        """
        above = greenlet.getcurrent().parent
        while above is not None and above is not actor.greenlet:
            above = above.parent
        if actor.greenlet and actor is not self.current and above is None:
            greenlet_of = actor.greenlet
            parent, greenlet_of.parent = greenlet_of.parent, greenlet.getcurrent()
            greenlet_of.throw(Killed)
            del parent
        if actor.holds is not None:
            actor.holds.holder = None
            actor.holds = None

    def _wake(self, actor: Actor, seconds: float) -> None:
        self._push(self.now + seconds, actor)

    def _push(self, at: float, what: Any) -> None:
        self._order += 1
        heapq.heappush(self._queue, (at, self._order, what))

    def run(self, done: Callable[[], bool], *, seconds: float) -> None:
        """Let the world go on until `done`.

        Raises:
            Stuck: it was not done after so many simulated seconds.
        """
        deadline = self.now + seconds
        while not done():
            if not self._queue:
                raise Stuck("nothing is left to happen")
            at, _, what = heapq.heappop(self._queue)
            self.now = max(self.now, at)
            if self.now > deadline:
                raise Stuck(f"not done after {seconds:.0f} simulated seconds")
            if not isinstance(what, Actor):
                what()
                continue
            if not what.alive:
                continue
            if what.process.stopped_until > self.now:
                self._push(what.process.stopped_until, what)
                continue
            what.greenlet.switch()
            if not what.alive:
                self._end(what)

    def close(self) -> None:
        """End all actors."""
        self.over = True
        for actor in self.actors:
            actor.alive = False
            self._end(actor)
        self._queue.clear()


class Threads:
    """What stands in for the module `threading` where the project's code starts threads that work: further actors of the process."""

    def __init__(self, world: World) -> None:
        self._world = world

    def Thread(self, *, target: Callable[[], Any], name: str, daemon: bool) -> _Thread:
        return _Thread(self._world, target, name)

    def Event(self) -> _Event:
        return _Event(self._world)

    def Lock(self) -> nullcontext[None]:
        """Actors give way only where the world makes them wait, and nobody waits inside a lock."""
        return nullcontext()


class _Thread:
    def __init__(self, world: World, target: Callable[[], Any], name: str) -> None:
        self._world, self._target, self._name = world, target, name
        self._actor: Actor | None = None

    def start(self) -> None:
        current = self._world.current
        assert current is not None
        self._actor = self._world.spawn(f"{current.process.name}/{self._name}", self._target, current.process)

    def join(self) -> None:
        while self._actor is not None and self._actor.alive:
            self._world.pause(0.002, "joining a thread", fragile=False)

    def is_alive(self) -> bool:
        return self._actor is not None and self._actor.alive


class _Event:
    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[Actor] = []
        self._set = False

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for actor in waiting:
            self._world._wake(actor, self._world.random.uniform(0.00001, 0.001))

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self) -> bool:
        world, actor = self._world, self._world.current
        assert actor is not None
        while not self._set:
            world.check_alive()
            self._waiting.append(actor)
            world.main.switch()
        world.check_alive()
        return True
