"""One seed from its beginning to its verdict: a driver, workers, epochs, faults, and at last calm and a look at everything.

The instances are the project's own `run_instance` with its loop, take-over, restore, commit, bridges between epochs, warm instances and
LMDB environments. Simulated are the client library, LMDB's file, the clock, threads, the lease, the lock of a slot, and Spark's part: which
worker gets which slot of an epoch, starting workers, starting them again, using them for the next generation.
"""

from __future__ import annotations

import hashlib
import logging
import sys
import time as real_time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from kstreams_repl.engine.commit import failpoints
from kstreams_repl.engine.stores.engine import lmdb as lmdb_module
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.epochs import epoch_handover as bridge_module
from kstreams_repl.host.instance.epochs import instance_cache, instance_runner
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import EpochResult, run_instance
from kstreams_repl.host.instance.initialization import task_initialization
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.reports import slot_reporter
from kstreams_repl.host.instance.state import state_manager, state_updater
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.kafka import clients as client_module
from kstreams_repl.host.kafka import transactional
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.planning.task_assignment import assign_tasks
from kstreams_repl.system.errors import KStreamsError
from tests.faults.simulation.application import APPLICATION, prepared, violations, waiting_calls
from tests.faults.simulation.broker import Broker
from tests.faults.simulation.calls import SimulatedResultLog, begin, call_runner_of
from tests.faults.simulation.clients import AdminClient, Consumer, Network, Producer
from tests.faults.simulation.control import Lease, LeaseControl, Loops
from tests.faults.simulation.disk import Disk, waiting
from tests.faults.simulation.world import Actor, Killed, Stuck, Threads, World

END_SECONDS = 300.0


@dataclass
class Verdict:
    """What came of one seed."""

    seed: int
    violations: list[str]
    trace: list[str]
    seconds: float
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()


class _Nothing:
    """A lock, a thread and a pool for a world where one thing happens at a time."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> None: ...

    def watch(self, *_: object) -> None: ...

    def forget(self, *_: object) -> None: ...

    def map(self, function: Any, items: Any) -> Iterator[Any]:
        return map(function, items)


def _call(
    self: Any,
    function: Callable[[], Any],
    seconds: float,
    meanwhile: Callable[[], bool] | None = None,
    begun: Callable[[], None] = lambda: None,
) -> Any:
    """A watched call: the other work first, the call after it; both at once is what the network's pauses stand for."""
    begun()
    for _ in range(3):
        if meanwhile is None or not meanwhile():
            break
    return function()


class _Threads:
    Lock = Thread = _Nothing


class _OpenPaths(dict[str, Any]):
    """What is open where, by simulated process."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def _key(self, path: str) -> str:
        current = self._world.current
        return f"{id(current and current.process)}:{path}"

    def __contains__(self, path: object) -> bool:
        return super().__contains__(self._key(str(path)))

    def __setitem__(self, path: str, environment: Any) -> None:
        super().__setitem__(self._key(path), environment)

    def get(self, path: str, default: Any = None) -> Any:  # type: ignore[override]
        return super().get(self._key(path), default)

    def pop(self, path: str, default: Any = None) -> Any:  # type: ignore[override]
        return super().pop(self._key(path), default)


class Scenario:
    """Args:
    seed: decides the guarantee, the sizes, the faults and their times.
    directory: an empty one; the simulated disk only uses its names.
    calls: whether the application has an asynchronous node.
    sql: whether its repartitioned count is one by SQL.
    aligned: whether its partitions advance together in event time.
    """

    def __init__(self, seed: int, directory: Path, *, calls: bool = False, sql: bool = False, aligned: bool = False) -> None:
        self.seed = seed
        world = self.world = World(seed, kill=0.0015, stop=0.0008)
        random = world.random
        self.exactly = random.random() < 0.75
        guarantee = "exactly_once_v2" if self.exactly else "at_least_once"
        sizes = random.choice((1, 2, 3)), guarantee, random.choice((5, -1))
        drift = random.choice((0, 50, 1_000)) if aligned else None
        self.topics, self.specs, self.config = prepared(*sizes, random.choice(("key", "partition")) if calls else None, sql, drift)
        self.calls = calls
        begin(seed)
        self.broker = Broker(world, self.topics)
        self.network = Network(world, self.broker, trouble=random.choice((0.0, 0.01, 0.04)))
        self.disk = Disk(world, trouble=random.choice((0.0, 0.0, 0.02)))
        self.directory = directory
        self.lease = Lease()
        self.reports: dict[tuple[int, int], Mapping[str, Any]] = {}
        self.sent: dict[bytes, list[int]] = {}
        self.written = 0
        self.total = random.choice((30, 60, 100))
        self.moment = random.choice((0.0, 0.0, 0.2))
        """How long ready tasks wait for those that are restored."""
        self.slots_ever: set[int] = set()
        self.workers: dict[tuple[int, int], Actor] = {}
        self.jobs: dict[Actor, ApplicationPlan] = {}
        """The generation that a worker process is used for."""
        self.claims: dict[tuple[int, int], Actor] = {}
        """Which process runs an epoch of which slot now."""
        self.loops = Loops(world)
        self.plan: ApplicationPlan | None = None
        self.finished = False
        self._settled_at: float | None = None
        self.outcomes: list[EpochResult] = []
        self.failures: list[BaseException] = []
        """What an instance took for its failure, killed or not."""
        self.owners: dict[str, Actor] = {}

    # ---- what a driver and Spark do

    def settings(self) -> ClientSettings:
        return ClientSettings("simulated:1")

    def deploy(self, instances: int) -> None:
        """A new generation: raise it, fence every id that was ever used, start the workers."""
        world = self.world
        self.lease.generation += 1
        self.lease.signal = Signal.RUN
        generation = self.lease.generation
        slots = assign_tasks(list(self.specs), min(instances, len(self.specs)))
        self.plan = plan = ApplicationPlan(
            application_id=APPLICATION,
            generation=generation,
            config=self.config,
            settings=self.settings(),
            assignment=tuple(tuple(self.specs[task] for task in slot) for slot in slots),
            state_directory=str(self.directory),
            control_directory=str(self.directory / "control"),
            partition_counts=self.topics,
        )
        world.tell(f"generation {generation}: {plan.instances} instances")
        while True:
            try:
                task_initialization.fence_instances(
                    self.settings(), APPLICATION, sorted(self.slots_ever), timeout_ms=self.config["transaction.timeout.ms"]
                )
                break
            except KStreamsError as error:
                world.tell(f"fencing failed: {error.message}")
                world.sleep(0.2)
        self.slots_ever.update(range(plan.instances))
        for slot in range(plan.instances):
            self.start(plan, slot)

    def start(self, plan: ApplicationPlan, number: int) -> None:
        """A worker for the generation: one of an earlier generation that is there, or a new one."""
        key = (plan.generation, number)
        self.reports.pop(key, None)
        world = self.world
        there = [
            worker
            for worker, job in self.jobs.items()
            if worker.alive and job.generation < plan.generation and worker.stopped_until <= world.now
        ]
        if there and world.random.random() < 0.5:
            worker = self.workers[key] = world.random.choice(there)
            world.tell(f"{worker.name} goes on as {key}")
            self.jobs[worker] = plan
        else:
            worker = self.workers[key] = world.spawn(f"g{plan.generation}-s{number}", self._work)
            self.jobs[worker] = plan

    def _work(self) -> None:
        """A worker process: one epoch after the other, of whatever slot is free, going on or at rest in between."""
        world, kept, me = self.world, InstanceCache(), self.world.current
        assert me is not None
        while True:
            plan = self.jobs[me]
            slot = self._claim(plan, kept)
            control = LeaseControl(
                world, self.lease, plan.generation, slot, self.reports, self.directory / "control", self.loops
            )
            until = world.now + world.random.choice((1.0, 3.0, 8.0))
            outcome = run_instance(plan, slot, until=until, control=control, cache=kept)
            self.claims.pop((plan.generation, slot), None)
            self.outcomes.append(outcome)
            if outcome.state in ("stopped", "superseded", "failed"):
                why = outcome.failure["message"].replace(str(self.directory), "state") if outcome.failure else ""
                world.tell(f"{outcome.state} {why[:200]}")
                if self.jobs[me] is plan:
                    kept.close()
                    return
            world.pause(world.random.choice((0.02, 0.1, 0.1, 0.5, 6.5)), "between epochs")

    def _claim(self, plan: ApplicationPlan, kept: InstanceCache) -> int:
        """A slot that nobody runs now: mostly one that this process holds, sometimes any."""
        world = self.world
        while True:
            free = [
                slot
                for slot in range(plan.instances)
                if (holder := self.claims.get((plan.generation, slot))) is None or not holder.alive
            ]
            held = [slot for slot in kept.held(APPLICATION, plan.generation) if slot in free]
            if free:
                slot = held[0] if held and world.random.random() < 0.8 else world.random.choice(free)
                assert world.current is not None
                self.claims[(plan.generation, slot)] = world.current
                world.tell(f"an epoch of slot {slot}, holding {held}")
                return slot
            world.pause(0.01, "no slot is free", fragile=False)

    def _watch(self) -> None:
        """Spark: a worker that died is started again."""
        plan = self.plan
        if plan is not None and self.lease.generation == plan.generation and self.lease.signal is not Signal.STOP:
            for slot in range(plan.instances):
                worker = self.workers.get((plan.generation, slot))
                if worker is not None and not worker.alive:
                    self.start(plan, slot)
        if not self.finished:
            self.world.after(0.3, self._watch)

    def _write(self) -> None:
        """The source of the input."""
        random = self.world.random
        for _ in range(min(random.randrange(1, 12), self.total - self.written)):
            key = b"k%d" % random.randrange(5)
            numbers = self.sent.setdefault(key, [])
            numbers.append(self.written)
            stamp = int(self.world.now * 1000)
            row = (key, b"%d:%d" % (self.written, len(numbers)), stamp, None)
            self.broker.produce(None, 0, ("in", key[1] % self.topics["in"]), [row])
            self.written += 1
        if self.written < self.total:
            self.world.after(random.uniform(0.05, 1.5), self._write)

    def _drive(self) -> None:
        """The story: deploys, pauses, faults from outside; then calm until all is done."""
        world, random = self.world, self.world.random
        self.deploy(random.choice((1, 2, 2, 3)))
        for _ in range(random.randrange(2, 7)):
            world.pause(random.uniform(0.3, 6.0), "the driver waits", fragile=False)
            self._happen(random.choice(("deploy", "deploy", "kill", "stop", "broker", "pause", "machine", "wipe", "freeze")))
        world.pause(1.0, "the driver waits", fragile=False)
        world.calm = True
        world.tell("calm")
        if self.lease.signal is not Signal.RUN or random.random() < 0.7:
            self.deploy(random.choice((1, 2, 4)))

    def _happen(self, what: str) -> None:
        world, random = self.world, self.world.random
        world.tell(f"event: {what}")
        alive = [actor for actor in world.actors if actor.alive and actor.process is actor is not world.current]
        if what == "deploy":
            self.deploy(random.choice((1, 2, 3, 4)))
        elif what == "kill" and alive:
            world.kill(random.choice(alive), "from outside")
        elif what in ("stop", "freeze") and alive:
            # "freeze": all of a generation sleep while the next one takes over, and wake as zombies.
            for actor in alive if what == "freeze" else [random.choice(alive)]:
                actor.stopped_until = world.now + random.choice((2.0, 5.0, 10.0))
            if what == "freeze":
                self.deploy(random.choice((1, 2, 4)))
        elif what == "broker":
            self.broker.down_until = world.now + random.choice((0.3, 2.0, 6.0))
        elif what == "pause" and self.lease.signal is Signal.RUN:
            self.lease.signal = Signal.PAUSE
            world.pause(random.uniform(0.2, 2.0), "paused", fragile=False)
            if random.random() < 0.5:
                self.lease.signal = Signal.RUN
                self._restart_rested()
            else:
                self.deploy(random.choice((1, 2)))
        elif what == "machine":
            for actor in alive:
                world.kill(actor, "the machine went down")
            self.disk.power_cut()
        elif what == "wipe":
            for actor in alive:
                world.kill(actor, "moved to another machine")
            self.disk.files.clear()

    def _restart_rested(self) -> None:
        plan = self.plan
        assert plan is not None
        for slot in range(plan.instances):
            worker = self.workers.get((plan.generation, slot))
            if worker is None or not worker.alive:
                self.start(plan, slot)

    # ---- the end

    def _done(self) -> bool:
        """All is processed, nobody sleeps, and nothing has moved for a while: a zombie may just have fenced an owner."""
        if not self._settled():
            self._settled_at = None
            return False
        if self._settled_at is None:
            self._settled_at = self.world.now
        return self.world.now >= self._settled_at + 1.5

    def _settled(self) -> bool:
        if not self.world.calm or self.written < self.total or self._driver.alive:
            return False
        plan = self.plan
        assert plan is not None
        owners = {
            self.workers[(plan.generation, slot)] for slot in range(plan.instances) if (plan.generation, slot) in self.workers
        }
        if plan.generation != self.lease.generation or any(actor.alive and actor.process not in owners for actor in self.world.actors):
            return False
        if any(self.reports.get((plan.generation, slot), {}).get("state") != "running" for slot in range(plan.instances)):
            return False
        ends = {place: log for place, log in self.broker.logs.items() if place[0] in self._inputs}
        for place, log in ends.items():
            offset, _ = self.broker.committed.get((APPLICATION, place), (log.start, ""))
            if any(not entry.marker and _counts(entry) for entry in log.entries[offset - log.start :]):
                return False
            if log.open:
                return False
        return not self.calls or not waiting_calls(self.broker)

    def run(self) -> Verdict:
        started = real_time.perf_counter()
        found: list[str] = []
        world = self.world
        self._inputs = {at.topic for spec in self.specs.values() for at in spec.partitions}
        try:
            self._write()
            self.world.after(0.3, self._watch)
            self._driver = world.spawn("driver", self._drive)
            self._unbreakable(self._driver)
            world.run(self._done, seconds=END_SECONDS)
            self.lease.signal = Signal.STOP
            world.run(lambda: not any(actor.alive for actor in world.actors), seconds=END_SECONDS)
            world.run(lambda: not any(found.ending for found in self.broker.ids.values()), seconds=60)
        except Stuck as error:
            alive = {actor.name: self.reports.get(key) for key, actor in self.workers.items() if actor.alive}
            found.append(f"stuck: {error}; {alive}")
        self.finished = True
        failures = [outcome.failure for outcome in self.outcomes if outcome.failure is not None]
        if self.disk.trouble:  # a disk that fails ends an application with a typed error; it is started again above
            failures = [failure for failure in failures if failure["error"] != "StateStoreError"]
        found += [f"an instance failed: {failure['error']}: {failure['message']}\n{failure['trace']}" for failure in failures]
        if not found:
            paths = {task: str(task_directory(self.directory, APPLICATION, task).resolve()) for task in self.specs}
            found = violations(self.broker, self.disk, paths, self.sent, exactly=self.exactly, generation=self.lease.generation)
        world.close()
        found += SimulatedResultLog.repeated
        found += [f"a kill was taken for a failure: {error!r}" for error in self.failures if isinstance(_first_cause(error), Killed)]
        counts = {"generations": self.lease.generation, "actors": len(world.actors), "aborted": self.broker.aborts}
        return Verdict(self.seed, found, world.trace, real_time.perf_counter() - started, counts)

    def failure_of(self, tell: Callable[[BaseException], dict[str, Any]], error: BaseException) -> dict[str, Any]:
        """In place of `failure_report.failure_of`."""
        self.failures.append(error)
        return tell(error)

    def _unbreakable(self, actor: Actor) -> None:
        """The story itself goes on; a driver that dies is `deploy` again, which the story has too."""
        original = self.world.pause

        def pause(seconds: float, what: str, *, fragile: bool = True) -> None:
            original(seconds, what, fragile=fragile and self.world.current is not actor)

        self.world.pause = pause  # type: ignore[method-assign]

    def holder_lives(self, token: str) -> bool:
        actor = self.owners.get(token)
        current = self.world.current
        return actor is not None and actor.alive and (current is None or actor is not current.process)

    def kill_holder(self, token: str | None) -> bool:
        """In place of the kill -9 of a recorded process."""
        actor = self.owners.get(token or "")
        current = self.world.current
        if actor is None or current is None or actor is current.process:
            return False
        self.world.kill(actor, "held the write lock")
        return True


def _first_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _counts(entry: Any) -> bool:
    return entry.transaction is None or entry.transaction.state == "committed"


@contextmanager
def simulated(scenario: Scenario) -> Iterator[None]:
    """The project's modules see the scenario's clock, clients and disk."""
    world, disk = scenario.world, scenario.disk
    tokens = iter(range(1, 1 << 30))

    def token(generation: int, slot: int) -> str:
        name = f"{generation}/{slot}/{next(tokens)}/0/0"
        if world.current is not None:
            scenario.owners[name] = world.current.process
        return name

    def locked(path: str, seconds: float) -> Exception:
        return lmdb_module.LockedError(f"the write lock of {path} was not free within {seconds} s", path=path)

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith(("kstreams_repl.host.instance", "kstreams_repl.host.kafka", "kstreams_repl.engine.commit")):
                if getattr(module, "time", None) is real_time:
                    stack.enter_context(patch.object(module, "time", world))
        for target, name, value in (
            (client_module, "_Consumer", partial(Consumer, scenario.network)),
            (client_module, "_Producer", partial(Producer, scenario.network)),
            (client_module, "AdminClient", partial(AdminClient, scenario.network)),
            (transactional.WatchedCalls, "call", _call),
            (task_initialization, "ThreadPoolExecutor", _Nothing),
            (task_initialization, "owner_token", token),
            (instance_cache, "threading", _Threads),
            (bridge_module, "threading", Threads(world)),
            (state_updater, "threading", Threads(world)),
            (task_initialization, "_MOMENT_SECONDS", scenario.moment),
            (slot_reporter, "METRICS_THREAD", _Nothing()),
            (instance_runner, "free_closed", lambda: None),
            (instance_runner, "failure_of", partial(scenario.failure_of, instance_runner.failure_of)),
            (Instance, "call_runner", call_runner_of(world, scenario.broker)),
            (state_manager, "discard", disk.discard),
            (state_manager, "end_process", scenario.kill_holder),
            (state_manager, "is_alive", scenario.holder_lives),
            (lmdb_module, "lmdb", disk),
            (lmdb_module, "_OPEN", _OpenPaths(world)),
            (lmdb_module, "_OPEN_LOCK", _Nothing()),
            (lmdb_module, "within", waiting(disk, locked)),
            (lmdb_module, "boot_id", lambda: disk.boot),
        ):
            stack.enter_context(patch.object(target, name, value))
        logger = logging.getLogger("kstreams_repl")
        level = logger.level
        stack.callback(logger.setLevel, level)
        logger.setLevel(logging.CRITICAL + 1)
        for name in ("F1", "F2", "F3", "F4", "F5", "F7", "F8"):
            failpoints.hook(name, lambda name=name: world.pause(0.0003, name))  # type: ignore[misc]
            stack.callback(failpoints.hook, name, None)
        yield
