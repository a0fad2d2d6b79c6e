"""Between epochs an instance goes on, and the next epoch takes it over at a commit. Real broker and clients, no Spark."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment, is_open_here
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs import epoch_handover
from kstreams_repl.host.instance.epochs.epoch_handover import IdleEpochLimit
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan

pytestmark = pytest.mark.kafka
LARGE = random.Random(7).randbytes(1_000).hex()
"""Does not become much smaller when it is compressed."""


@dataclass
class Epochs:
    """One application of one instance whose epochs are called by hand."""

    admin: Admin
    settings: ClientSettings
    plan: ApplicationPlan
    lease: FileChannel
    source: str
    sink: str
    warm: InstanceCache

    own_process: bool = False
    """As in Spark's worker: what user code does to the process is watched."""

    def epoch(self, seconds: float, patience: IdleEpochLimit | None = None) -> EpochResult:
        control, until = FileInstanceControl(self.plan.control_directory, self.plan.generation, 0), time.monotonic() + seconds
        return run_instance(
            self.plan, 0, until=until, control=control, cache=self.warm, own_process=self.own_process, idle_limit=patience
        )

    def quiet_epoch(self, over: Callable[[], bool]) -> Future[EpochResult]:
        """A short one that may last long while nothing comes in, on a thread."""
        told: Future[EpochResult] = Future()
        patience = IdleEpochLimit(time.monotonic() + 60, over)
        threading.Thread(target=lambda: told.set_result(self.epoch(0.05, patience)), daemon=True).start()
        return told

    @property
    def running(self) -> threading.Thread:
        """The thread of the last epoch's runner."""
        (found,) = self.warm._handovers.values()
        return found._thread

    def run_elsewhere(self, seconds: float) -> str:
        """An epoch in another process, as when Spark gives the slot to another worker."""
        file = Path(self.plan.state_directory) / "plan.pickle"
        file.write_bytes(cloudpickle.dumps(self.plan))
        command = [sys.executable, "-c", ELSEWHERE, str(file), str(seconds)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()

    def send(self, *values: bytes) -> None:
        producer = make_producer(self.settings, linger_ms=0)
        for value in values:
            producer.produce(self.source, value, b"k")
        assert producer.flush(20) == 0
        producer.close()

    def begin(self) -> EpochResult:
        """A first epoch, and the first record."""
        self.send(b"a")
        told = self.epoch(0.5)
        self.settle(lambda: self.out() == [b"1"])
        return told

    def out(self) -> list[bytes | None]:
        return [value for _, batch in read_ranges(self.settings, ranges_of(self.admin, self.sink, settled=True)) for value in batch.values]

    def settle(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)


ELSEWHERE = """
import sys, time
from pathlib import Path
from pyspark import cloudpickle
from kstreams_repl.host.instance.control.file_channel import FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache

plan = cloudpickle.loads(Path(sys.argv[1]).read_bytes())
warm = InstanceCache()
control = FileInstanceControl(plan.control_directory, plan.generation, 0)
print(run_instance(plan, 0, until=time.monotonic() + float(sys.argv[2]), control=control, cache=warm).state)
warm.close()
"""


def clients() -> int:
    """Threads of client libraries in this process: each client has some."""
    names = (path.read_text() for path in Path("/proc/self/task").glob("*/comm"))
    return sum(name.startswith("rdk:") for name in names)


def large_third(count: int) -> str:
    return str(count) if count != 3 else LARGE


def refusing(value: str) -> str:
    if value == "poison":
        raise ValueError("I do not like this one")
    return value


@pytest.fixture
def epochs(
    admin: Admin, settings: ClientSettings, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Epochs]:
    monkeypatch.setattr(epoch_handover, "HANDOVER_SECONDS", 60.0)  # what a test does between epochs may take long
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        admin.create_topic(topic, 1)
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string).map_values(refusing)
    counts = stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).count(store="counts")
    counts.to_stream().map_values(large_third).to(sink, key_serde=serdes.string, value_serde=serdes.string)
    config: dict[str, Any] = {"application.id": name, "bootstrap.servers": settings.bootstrap_servers, "num.stream.threads": 1}
    config |= {"processing.guarantee": "exactly_once_v2", "state.dir": str(tmp_path)}
    plan = make_plan(builder.build(), StreamsConfig(config), settings, admin=admin, generation=1, state_root=tmp_path)
    lease = FileChannel(Path(plan.control_directory))
    lease.signal(1, Signal.RUN)
    made = Epochs(admin, settings, plan, lease, source, sink, InstanceCache())
    yield made
    made.warm.close()


@pytest.mark.slow
def test_records_go_through_between_two_epochs_and_are_told_by_the_next(epochs: Epochs) -> None:
    first = epochs.begin()
    epochs.send(b"b", b"c")
    epochs.settle(lambda: LARGE.encode() in epochs.out())
    second = epochs.epoch(0.2)
    assert (first.state, second.state, second.warm) == ("running", "running", True)
    assert sum(task.records for told in (first, second) for task in told.tasks.values()) == 3
    assert epochs.out()[-1] == LARGE.encode()


def test_an_epoch_that_comes_late_finds_the_instance_at_rest(epochs: Epochs, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs.begin()
    with monkeypatch.context() as patched:
        patched.setattr(epoch_handover, "HANDOVER_SECONDS", 0.05)
        epochs.settle(lambda: not epochs.running.is_alive())
    epochs.send(b"b")
    late = epochs.epoch(0.5)
    assert late.warm
    epochs.settle(lambda: len(epochs.out()) == 2)
    assert epochs.out()[-1] == b"2"


@pytest.mark.slow
def test_an_epoch_in_which_nothing_comes_in_goes_on_until_a_record_comes(epochs: Epochs) -> None:
    epochs.begin()
    epochs.epoch(0.05)  # tells of the first record, if the first epoch was over too soon for it
    looks: list[int] = []
    told = epochs.quiet_epoch(lambda: bool(looks.append(1)))
    epochs.settle(lambda: len(looks) > 2)
    assert not told.done()
    epochs.send(b"b")
    assert sum(task.records for task in told.result(30).tasks.values()) == 1
    assert epochs.running.is_alive(), "records wait for the next epoch"


def test_an_epoch_in_which_records_came_ends_when_it_is_due(epochs: Epochs) -> None:
    epochs.begin()
    epochs.send(b"b")
    epochs.settle(lambda: len(epochs.out()) == 2)
    told = epochs.quiet_epoch(lambda: False).result(30)
    assert sum(task.records for task in told.tasks.values()) > 0


def test_an_epoch_in_which_nothing_comes_in_ends_with_that_of_another_slot(epochs: Epochs) -> None:
    epochs.begin()
    epochs.epoch(0.05)
    others_end = threading.Event()
    told = epochs.quiet_epoch(others_end.is_set)
    others_end.set()
    assert sum(task.records for task in told.result(30).tasks.values()) == 0


def test_an_epoch_in_which_nothing_comes_in_ends_at_last(epochs: Epochs) -> None:
    epochs.begin()
    epochs.epoch(0.05)
    told = epochs.epoch(0.05, IdleEpochLimit(time.monotonic() + 0.3, lambda: False))
    assert told.state == "running" and sum(task.records for task in told.tasks.values()) == 0


def test_an_error_between_epochs_is_told_by_the_next(epochs: Epochs) -> None:
    epochs.begin()
    epochs.send(b"poison")
    epochs.settle(lambda: not epochs.running.is_alive())
    told = epochs.epoch(20)
    assert told.state == "failed" and "I do not like this one" in str(told.failure)
    assert epochs.out()[-1] == b"1"


def test_a_pause_between_epochs_ends_the_loop_and_says_so_itself(epochs: Epochs) -> None:
    epochs.begin()
    epochs.lease.signal(1, Signal.PAUSE)
    epochs.settle(lambda: epochs.lease.reports(1).get(0, {}).get("state") == "paused")
    epochs.send(b"b")
    assert epochs.epoch(3).state == "paused"
    assert epochs.out() == [b"1"]
    epochs.lease.signal(1, Signal.RUN)
    assert epochs.epoch(0.5).warm
    epochs.settle(lambda: len(epochs.out()) == 2)
    assert epochs.out()[-1] == b"2"


@pytest.mark.slow
def test_an_epoch_that_comes_while_its_stores_are_still_being_closed_waits_for_them(
    epochs: Epochs, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Event(), threading.Event()
    sync = LmdbEnvironment._mark_closed

    def slowly(environment: LmdbEnvironment) -> bool:
        begun.set()
        assert gate.wait(60)
        return sync(environment)

    epochs.begin()
    epochs.lease.signal(1, Signal.PAUSE)
    epochs.settle(lambda: bool(epochs.warm.held(epochs.plan.application_id, 1)) and not epochs.running.is_alive())
    monkeypatch.setattr(LmdbEnvironment, "_mark_closed", slowly)
    epochs.lease.signal(1, Signal.STOP)
    assert begun.wait(60)
    epochs.lease.signal(1, Signal.RUN)
    epochs.send(b"b")
    threading.Timer(0.5, gate.set).start()
    told = epochs.epoch(3)
    assert (told.state, told.failure, told.warm) == ("running", None, False)
    epochs.settle(lambda: len(epochs.out()) == 2)
    assert epochs.out()[-1] == b"2"


@pytest.mark.parametrize("own_process", [False, True])
def test_after_a_stop_between_epochs_no_loop_runs_and_no_client_or_environment_is_open(epochs: Epochs, own_process: bool) -> None:
    epochs.own_process = own_process
    gc.collect()
    before = clients()
    epochs.begin()
    assert clients() > before
    epochs.lease.signal(1, Signal.STOP)
    epochs.settle(lambda: epochs.lease.reports(1).get(0, {}).get("state") == "stopped")
    epochs.settle(lambda: not epochs.running.is_alive() and clients() <= before)
    assert not epochs.warm.held(epochs.plan.application_id, 1)
    assert not [path for path in Path(epochs.plan.state_directory).rglob("data.mdb") if is_open_here(path.parent)]
    assert epochs.out() == [b"1"]


def test_a_new_generation_in_the_same_worker_ends_what_goes_on_and_takes_its_stores_over(epochs: Epochs) -> None:
    epochs.begin()
    former, epochs.plan = epochs.running, replace(epochs.plan, generation=2)
    epochs.lease.signal(2, Signal.RUN)
    epochs.send(b"b")
    assert epochs.epoch(0.5).state == "running"
    epochs.settle(lambda: len(epochs.out()) == 2)
    assert not former.is_alive()
    assert epochs.out()[-1] == b"2"


@pytest.mark.slow
def test_a_worker_that_is_given_the_slot_waits_until_the_other_ones_loop_has_committed(epochs: Epochs) -> None:
    epochs.begin()
    epochs.send(b"b")
    assert epochs.run_elsewhere(1) == "running"
    assert not epochs.running.is_alive()
    assert epochs.warm.held(epochs.plan.application_id, 1) == (0,), "it did not end at a commit"
    assert epochs.out()[-1] == b"2"


def test_a_record_that_is_refused_between_epochs_is_found_by_the_next(epochs: Epochs) -> None:
    epochs.admin.alter_topic_configs(epochs.sink, {"max.message.bytes": "500"})
    epochs.begin()
    epochs.send(b"b", b"c")
    epochs.settle(lambda: not epochs.running.is_alive())
    told = epochs.epoch(20)
    assert told.state == "failed" and told.failure is not None
    assert (told.failure["fields"]["topic"], told.failure["fields"]["offset"]) == (epochs.source, 2)
    assert epochs.out() == [b"1"]
