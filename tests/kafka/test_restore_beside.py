"""Tasks whose stores are ready are processed while the restore thread brings up the others. Real broker and clients, no Spark."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.stores.engine.lmdb import is_open_here
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs import epoch_handover
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.initialization import task_initialization
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.instance.state import changelog_reader
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import positions, ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.errors import TaskCorruptedError
from kstreams_repl.system.types import TaskId, TopicPartition

pytestmark = pytest.mark.kafka
READY, RESTORED = 0, 1
"""Partitions, and tasks."""


class Hold:
    """Keeps the restore thread from seeing that it has reached the end of the second task's changelog."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.error: Exception | None = None

    def positions(self, consumer: Any, partitions: Any) -> dict[TopicPartition, int]:
        if self.error is not None:
            raise self.error
        found = positions(consumer, partitions)
        return {at: offset for at, offset in found.items() if at.partition != RESTORED or self.over.is_set()}


@dataclass
class Counts:
    """A count of two partitions in one instance, whose runner works in a thread of the test."""

    admin: Admin
    settings: ClientSettings
    plan: ApplicationPlan
    lease: FileChannel
    source: str
    sink: str
    hold: Hold
    sent: Counter[bytes] = field(default_factory=Counter)
    warm: InstanceCache = field(default_factory=InstanceCache)
    outcomes: list[EpochResult] = field(default_factory=list)
    first: int = 0
    """Outcomes of the first generation."""

    def send(self, partition: int, count: int) -> None:
        producer = make_producer(self.settings, linger_ms=0)
        for number in range(count):
            key = b"%d-%d" % (partition, number % 7)
            producer.produce(self.source, b"v", key, partition=partition)
            self.sent[key] += 1
        assert producer.flush(20) == 0
        producer.close()

    def start(self, generation: int) -> None:
        """Epochs in a row, until a signal or a failure."""
        self.plan = replace(self.plan, generation=generation)
        self.lease.signal(generation, Signal.RUN)
        control = FileInstanceControl(self.plan.control_directory, generation, 0)
        plan = self.plan

        def work() -> None:
            while True:
                outcome = run_instance(plan, 0, until=time.monotonic() + 0.4, control=control, cache=self.warm)
                self.outcomes.append(outcome)
                if outcome.state != "running":
                    return

        self.thread = threading.Thread(target=work)
        self.thread.start()

    def end(self, signal: Signal) -> None:
        self.lease.signal(self.plan.generation, signal)
        self.thread.join(30)
        assert not self.thread.is_alive()

    @property
    def report(self) -> Any:
        return self.lease.reports(self.plan.generation).get(0, {})

    def lived(self) -> None:
        """A first generation that counted 700 of each; then the second task's copy of its store is lost."""
        self.hold.over.set()
        self.start(1)
        for partition in (READY, RESTORED):
            self.send(partition, 700)
        self.settle(self.right)
        self.end(Signal.STOP)
        self.hold.over.clear()
        self.first = len(self.outcomes)
        shutil.rmtree(self.path(RESTORED))

    def path(self, partition: int) -> Path:
        return task_directory(Path(self.plan.state_directory), self.plan.application_id, TaskId(0, partition))

    def out(self) -> list[tuple[bytes | None, int]]:
        found = []
        for _, batch in read_ranges(self.settings, ranges_of(self.admin, self.sink, settled=True)):
            found += [(key, int.from_bytes(value or b"", "big")) for key, value in zip(batch.keys, batch.values, strict=True)]
        return found

    def counted(self, partition: int) -> dict[bytes, int]:
        return {key: count for key, count in self.out() if key is not None and key.startswith(b"%d-" % partition)}

    def wanted(self, partition: int) -> dict[bytes, int]:
        return {key: count for key, count in self.sent.items() if key.startswith(b"%d-" % partition)}

    def right(self, *partitions: int) -> bool:
        return all(self.counted(at) == self.wanted(at) for at in partitions or (READY, RESTORED))

    def settle(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, (self.report, self.outcomes[-1:])
            time.sleep(0.02)


@pytest.fixture
def counts(
    admin: Admin, settings: ClientSettings, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Counts]:
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        admin.create_topic(topic, 2)
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.bytes, value_serde=serdes.bytes)
    table = stream.group_by_key(key_serde=serdes.bytes, value_serde=serdes.bytes).count(store="counts")
    table.to_stream().to(sink, key_serde=serdes.bytes, value_serde=serdes.long)
    config: dict[str, Any] = {"application.id": name, "bootstrap.servers": settings.bootstrap_servers, "num.stream.threads": 1}
    config |= {"processing.guarantee": "exactly_once_v2", "state.dir": str(tmp_path)} | getattr(request, "param", {})
    plan = make_plan(builder.build(), StreamsConfig(config), settings, admin=admin, generation=1, state_root=tmp_path)
    hold = Hold()
    monkeypatch.setattr(changelog_reader, "positions", hold.positions)
    monkeypatch.setattr(task_initialization, "_MOMENT_SECONDS", 0.0)
    made = Counts(admin, settings, plan, FileChannel(Path(plan.control_directory)), source, sink, hold)
    yield made
    made.lease.signal(made.plan.generation, Signal.STOP)
    made.thread.join(30)
    made.warm.close()


GUARANTEES = pytest.mark.parametrize(
    "counts",
    [
        {"processing.guarantee": "exactly_once_v2"},
        {"processing.guarantee": "at_least_once"},
        pytest.param({"processing.guarantee": "exactly_once_v2", "num.processing.threads": 2}, marks=pytest.mark.slow),
    ],
    indirect=True,
    ids=["exactly once", "at least once", "two processing threads"],
)


def held(counts: Counts) -> None:
    """A second generation in which the first task has worked and the second one is in its restore."""
    counts.lived()
    counts.start(2)
    counts.send(READY, 350)
    counts.send(RESTORED, 350)
    counts.settle(lambda: counts.right(READY))
    assert not counts.right(RESTORED)


def nothing_twice(counts: Counts) -> bool:
    out = counts.out()
    return len(out) == len(set(out))


@pytest.mark.slow
@GUARANTEES
def test_the_ready_task_is_processed_while_the_other_one_is_restored(counts: Counts) -> None:
    held(counts)
    counts.settle(lambda: counts.report.get("restore_remaining", 0) > 0)
    told = counts.report
    assert told["state"] == "restoring", "not all of it is there"
    assert told["tasks"][f"0_{RESTORED}"]["lag"] == -1
    counts.hold.over.set()
    counts.settle(lambda: counts.right() and counts.report["state"] == "running")
    assert nothing_twice(counts)
    told, total = counts.report, restored(counts)
    assert total > 0 and told["restore_remaining"] == 0
    assert told["restored"] in (total, 0), "0: a later epoch of a busy machine has taken the tasks over again, with whole stores"


def restored(counts: Counts) -> int:
    """What epochs of the second generation told of."""
    counts.end(Signal.STOP)
    return sum(task.restored for outcome in counts.outcomes[counts.first :] for task in outcome.tasks.values())


@pytest.mark.slow
@pytest.mark.parametrize("how", [Signal.PAUSE, Signal.STOP])
def test_a_pause_or_stop_during_a_restore_loses_nothing(counts: Counts, how: Signal) -> None:
    held(counts)
    counts.end(how)
    assert counts.report["state"] == {Signal.PAUSE: "paused", Signal.STOP: "stopped"}[how]
    assert not restoring()
    counts.send(READY, 70)
    counts.hold.over.set()
    counts.start(2)
    counts.settle(lambda: counts.right() and counts.report["state"] == "running")
    assert nothing_twice(counts)


@pytest.mark.slow
def test_a_new_generation_during_a_restore_takes_over_what_is_restored_so_far(counts: Counts) -> None:
    held(counts)
    counts.settle(lambda: counts.report.get("restored") == logged(counts))
    former = counts.thread
    counts.lease.signal(3, Signal.RUN)
    former.join(30)
    counts.hold.over.set()
    counts.start(3)
    counts.settle(lambda: counts.right() and counts.report.get("state") == "running")
    assert nothing_twice(counts)
    assert counts.report["restored"] <= 2, "what was on the disk has been restored again"


def logged(counts: Counts) -> int:
    """Records in the second task's changelog, which does not grow while it is held."""
    log = ranges_of(counts.admin, f"{counts.plan.application_id}-counts-changelog", partitions=[RESTORED], settled=True)
    return sum(len(batch) for _, batch in read_ranges(counts.settings, log))


@pytest.mark.slow
def test_an_error_of_the_restore_ends_the_instance_and_leaves_nothing_open(counts: Counts) -> None:
    held(counts)
    counts.hold.error = TaskCorruptedError("the changelog is gone", hint="look for it")
    counts.thread.join(30)
    assert counts.outcomes[-1].failure is not None
    assert counts.outcomes[-1].failure["message"] == "the changelog is gone"
    assert not restoring()
    assert not is_open_here(counts.path(READY)) and not is_open_here(counts.path(RESTORED))
    counts.hold.error = None
    counts.hold.over.set()
    counts.start(3)
    counts.settle(counts.right)
    assert nothing_twice(counts)


@pytest.mark.slow
def test_an_instance_that_rests_during_a_restore_goes_on_with_it(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    held(counts)
    with monkeypatch.context() as patched:
        patched.setattr(epoch_handover, "HANDOVER_SECONDS", 0.0)
        counts.settle(lambda: counts.outcomes[-1].warm)
        counts.settle(lambda: sum(outcome.warm for outcome in counts.outcomes) > 2)
        counts.hold.over.set()
        counts.settle(lambda: counts.right() and counts.report["state"] == "running")
    assert nothing_twice(counts)
    assert counts.report["commit_id"] > 0


def restoring() -> bool:
    return any(thread.name.startswith("restore-") for thread in threading.enumerate())
