"""A world without chance, in which one step of the take-over after the other is done by hand (`steps`)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.system.types import TaskId
from tests.faults.simulation.application import APPLICATION, prepared
from tests.faults.simulation.control import LeaseControl
from tests.faults.simulation.scenario import Scenario, simulated
from tests.faults.simulation.world import Actor

SEEN_LOG = f"{APPLICATION}-seen-changelog"
TOTALS_LOG = f"{APPLICATION}-totals-changelog"
COUNTING, TOTALLING = TaskId(0, 0), TaskId(1, 0)


class Stage:
    """One instance of one partition, exactly once, with nothing that goes wrong by itself."""

    def __init__(self, directory: Path) -> None:
        scenario = self.scenario = Scenario(1, directory)
        scenario.exactly = True
        scenario.moment = 0.0
        self.world = scenario.world
        self.world.calm = True
        scenario.topics, scenario.specs, scenario.config = prepared(1, "exactly_once_v2", -1)
        scenario.broker.__init__(self.world, scenario.topics)  # type: ignore[misc]
        self.broker = scenario.broker

    def plan(self, generation: int = 1) -> ApplicationPlan:
        return ApplicationPlan(
            application_id=APPLICATION,
            generation=generation,
            config=self.scenario.config,
            settings=self.scenario.settings(),
            assignment=(tuple(self.scenario.specs.values()),),
            state_directory=str(self.scenario.directory),
            control_directory=str(self.scenario.directory / "control"),
            partition_counts=self.scenario.topics,
        )

    def open(self, generation: int = 1, in_force: Callable[[], bool] = lambda: True, *, beside: bool = False) -> Instance:
        return open_instance(self.plan(generation), 0, in_force=in_force, in_background=beside)

    def write(self, *numbers: int) -> None:
        stamp = int(self.world.now * 1000)
        self.broker.produce(None, 0, ("in", 0), [(b"k", b"%d:%d" % (number, number), stamp, None) for number in numbers])

    def epoch(self, warm: InstanceCache, seconds: float = 1.0) -> EpochResult:
        """An epoch of the slot in the current actor's process."""
        scenario = self.scenario
        scenario.lease.generation, scenario.lease.signal = 1, Signal.RUN
        directory = scenario.directory / "control"
        control = LeaseControl(self.world, scenario.lease, 1, 0, scenario.reports, directory, scenario.loops)
        return run_instance(self.plan(), 0, until=self.world.now + seconds, control=control, cache=warm)

    def worker(self) -> tuple[Actor, InstanceCache]:
        """A process that has run one epoch and waits for the next; the loop goes on in it."""
        warm, over = InstanceCache(), []

        def act() -> None:
            over.append(self.epoch(warm))
            self.world.sleep(1e6)

        actor = self.world.spawn("worker", act)
        self.world.run(lambda: bool(over), seconds=60)
        return actor, warm

    def work(self, instance: Instance) -> None:
        """Process and commit what is there."""
        from kstreams_repl.host.instance.polling.poll_loop import PollLoop

        until = self.world.now + 1.0
        PollLoop(instance, signal=lambda now: Signal.RUN, report=lambda instance: None).run(until)

    def lived(self) -> None:
        """A first generation that committed what was there and was closed."""

        def live() -> None:
            instance = self.open()
            self.work(instance)
            instance.close()

        self.as_actor(live)

    def in_doubt(self, work: Callable[[], None], *, seconds: float, end: str = "committed") -> None:
        """Somebody else's transaction that is open now and commits, or is aborted, in a while."""
        self.broker.init("somebody", 60.0)
        work()
        self.world.after(seconds, lambda: self.broker.end("somebody", 0, end))

    def hold(self, seconds: float, *, end: str = "committed") -> None:
        """The second task's changelog gets a record that nobody may read yet."""
        row = (b"g9", (1).to_bytes(8, "big"), 1, None)
        self.known(TOTALLING)
        self.in_doubt(lambda: self.broker.produce("somebody", 0, (TOTALS_LOG, 0), [row]), seconds=seconds, end=end)

    def known(self, task: TaskId) -> None:
        """The group has offsets of the task's inputs: what its changelogs hold has a past."""
        for at in self.scenario.specs[task].partitions:
            self.broker.committed.setdefault((APPLICATION, (at.topic, at.partition)), (0, ""))

    def rest(self, seconds: float) -> None:
        """Nobody does anything for about so long."""
        self.as_actor(lambda: self.world.sleep(seconds), seconds=1.2 * seconds)

    def path(self, task: TaskId) -> str:
        return str(task_directory(self.scenario.directory, APPLICATION, task).resolve())

    def out(self) -> int:
        return len(self.broker.visible("out")[0])

    def one_epoch(self, seconds: float = 8.0) -> EpochResult:
        """An epoch in a process of its own, which ends with it."""

        def live() -> EpochResult:
            warm = InstanceCache()
            told = self.epoch(warm, seconds)
            warm.close()
            return told

        told = self.as_actor(live)
        assert isinstance(told, EpochResult)
        return told

    def as_actor(self, work: Callable[[], Any], *, seconds: float = 60.0) -> Any:
        results: list[Any] = []
        errors: list[Exception] = []

        def act() -> None:
            try:
                results.append(work())
            except Exception as error:  # raised again below, outside the actor
                errors.append(error)

        actor = self.world.spawn("taking over", act)
        self.world.run(lambda: not actor.alive, seconds=seconds)
        if errors:
            raise errors[0]
        return results[0]


@contextmanager
def stage() -> Iterator[Stage]:
    directory = Path(tempfile.mkdtemp(prefix="steps-"))
    try:
        made = Stage(directory)
        with simulated(made.scenario):
            yield made
        made.world.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
