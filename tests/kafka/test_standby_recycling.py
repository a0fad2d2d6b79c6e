"""A store goes on from standby copy to active task and back in the process that holds it, without being closed. Real broker and instances
in two processes as in two executors, without Spark: the other one is killed, and later there is another one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.initialization.task_initialization import fence_instances
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.fencing.generation_fencing import Previous
from kstreams_repl.host.spark.planning.plan_builder import make_plan

pytestmark = pytest.mark.kafka
PARTITIONS = 4
ALL = {f"0_{number}" for number in range(PARTITIONS)}

ELSEWHERE = """
import sys, time
from pathlib import Path
from pyspark import cloudpickle
from kstreams_repl.host.instance.control.file_channel import FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_runner import run_instance

plan = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
control = FileInstanceControl(plan.control_directory, plan.generation, 1)
run_instance(plan, 1, until=time.monotonic() + 300, control=control, executor=sys.argv[2])
"""


class Application:
    """Generations of one application: slot 0 in this process, slot 1 in another one."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.admin, self.settings, self.name, self.directory = admin, settings, name, directory
        self.source = f"{name}-in"
        admin.create_topic(self.source, PARTITIONS)
        builder = StreamsBuilder()
        stream = builder.stream(self.source, key_serde=serdes.string, value_serde=serdes.string)
        stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).count(store="counts")
        self.topology = builder.build()
        self.warm = InstanceCache(seconds=300)
        self.plan: ApplicationPlan | None = None
        self.sent = 0
        self._elsewhere: subprocess.Popen[bytes] | None = None
        self._here: threading.Thread | None = None
        self._lease: FileChannel | None = None

    def start(self, generation: int, instances: int, previous: Previous) -> Previous:
        """As a driver does it; returns where tasks and copies are now."""
        config: dict[str, Any] = {"application.id": self.name, "bootstrap.servers": self.settings.bootstrap_servers}
        config |= {"num.stream.threads": instances, "num.standby.replicas": 1, "processing.guarantee": "exactly_once_v2"}
        plan = make_plan(
            self.topology,
            StreamsConfig(config | {"state.dir": str(self.directory)}),
            self.settings,
            admin=self.admin,
            generation=generation,
            state_root=self.directory,
            previous=previous,
            remote=True,
        )
        self._pause()
        self.plan = replace(plan, remote=False)
        """Where copies are is planned for a cluster; signals and reports are files here."""
        self._lease = FileChannel(Path(plan.control_directory))
        self._lease.signal(generation, Signal.RUN)
        fence_instances(self.settings, self.name, range(2), timeout_ms=10_000)
        if instances > 1:
            file = self.directory / "plan.pickle"
            file.write_bytes(cloudpickle.dumps(self.plan))
            self._elsewhere = subprocess.Popen([sys.executable, "-c", ELSEWHERE, str(file), f"executor-{generation}"])
        former, self._here = self._here, threading.Thread(target=self._run, args=(self.plan,))
        if former is not None:
            former.join()
        self._here.start()
        return Previous(
            {spec.task_id: slot for slot, specs in enumerate(plan.assignment) for spec in specs},
            {spec.task_id: (slot,) for slot, specs in enumerate(plan.standbys) for spec in specs},
        )

    def _pause(self) -> None:
        if self._lease is not None and self.plan is not None:
            self._lease.signal(self.plan.generation, Signal.PAUSE)
            self.settle(lambda: self.here["state"] == "paused")

    def _run(self, plan: ApplicationPlan) -> None:
        control = FileInstanceControl(plan.control_directory, plan.generation, 0)
        run_instance(plan, 0, until=time.monotonic() + 300, control=control, executor="executor-0", cache=self.warm)

    @property
    def here(self) -> dict[str, Any]:
        """The report of slot 0."""
        assert self._lease is not None and self.plan is not None
        return self._lease.reports(self.plan.generation).get(0, {})

    def kill_the_other(self) -> None:
        assert self._elsewhere is not None
        self._elsewhere.send_signal(signal.SIGKILL)
        self._elsewhere.wait(20)

    def send(self, count: int) -> None:
        producer = make_producer(self.settings)
        for number in range(self.sent, self.sent + count):
            producer.produce(self.source, b"v", b"key-%d" % (number % 100))
        assert producer.flush(20) == 0
        producer.close()
        self.sent += count

    def counted(self) -> int:
        """Records counted, as the changelog tells."""
        found: dict[bytes | None, bytes | None] = {}
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, f"{self.name}-counts-changelog", settled=True)):
            found |= dict(zip(batch.keys, batch.values, strict=True))
        return sum(int.from_bytes((value or b"")[-8:], "big") for value in found.values())

    def settle(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, self.here
            time.sleep(0.02)

    def close(self) -> None:
        if self._lease is not None and self.plan is not None:
            self._lease.signal(self.plan.generation, Signal.STOP)
        if self._here is not None:
            self._here.join()
        if self._elsewhere is not None:
            self._elsewhere.wait(30)
        self.warm.close()


@pytest.fixture
def application(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Iterator[Application]:
    made = Application(admin, settings, name, tmp_path)
    yield made
    made.close()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tasks whose environments this process has opened."""
    names: list[str] = []
    original = LmdbEnvironment.__init__

    def opening(self: LmdbEnvironment, path: Any, *arguments: Any, **options: Any) -> None:
        names.append(Path(path).name)
        original(self, path, *arguments, **options)

    monkeypatch.setattr(LmdbEnvironment, "__init__", opening)
    return names


@pytest.mark.slow
def test_copies_become_tasks_and_tasks_become_copies_in_environments_that_stay_open(application: Application, opened: list[str]) -> None:
    app = application
    app.send(2_000)
    places = app.start(1, 2, Previous())
    own = {str(task) for task, slot in places.tasks.items() if slot == 0}
    app.settle(lambda: app.counted() == 2_000)
    app.settle(lambda: app.here.get("standbys") == dict.fromkeys(ALL - own, 0))
    assert sorted(opened) == sorted(ALL), "each store was opened once, as a task's or as a copy"
    opened.clear()

    app.kill_the_other()
    app.send(100)
    places = app.start(2, 1, places)
    app.settle(lambda: app.counted() == 2_100)
    app.settle(lambda: app.here.get("state") == "running" and set(app.here["tasks"]) == ALL)
    assert app.here["recycled"] == PARTITIONS
    assert app.here["restored"] < 100, "a copy only lacks what came last"
    assert opened == []

    places = app.start(3, 2, places)
    away = {str(task) for task, slot in places.tasks.items() if slot == 1}
    assert len(away) == 2
    app.send(100)
    app.settle(lambda: app.counted() == 2_200)
    app.settle(lambda: app.here.get("standbys") == dict.fromkeys(away, 0))
    assert app.here["recycled"] == PARTITIONS - len(away)
    assert opened == [], "what were tasks are copies now, in the same environments"
