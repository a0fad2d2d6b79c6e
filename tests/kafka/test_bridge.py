"""Between epochs an instance goes on, and the next epoch takes it over at a commit. Real broker and clients, no Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.config import StreamsConfig
from kstreams_repl.instance import bridge
from kstreams_repl.instance.control import Control, LeaseWriter, Signal
from kstreams_repl.instance.outcome import Outcome
from kstreams_repl.instance.plan import ApplicationPlan
from kstreams_repl.instance.run import run_instance
from kstreams_repl.instance.warm import WarmInstances
from kstreams_repl.kafka.admin import Admin
from kstreams_repl.kafka.clients import ClientSettings, make_producer
from kstreams_repl.kafka.reading import ranges_of, read_ranges
from kstreams_repl.spark.planning import make_plan

pytestmark = pytest.mark.kafka


@dataclass
class Epochs:
    """One application of one instance whose epochs are called by hand."""

    admin: Admin
    settings: ClientSettings
    plan: ApplicationPlan
    lease: LeaseWriter
    source: str
    sink: str
    warm: WarmInstances

    def epoch(self, seconds: float) -> Outcome:
        control = Control(self.plan.control_directory, self.plan.generation, 0)
        return run_instance(self.plan, 0, until=time.monotonic() + seconds, control=control, warm=self.warm)

    def send(self, *values: bytes) -> None:
        producer = make_producer(self.settings, linger_ms=0)
        for value in values:
            producer.produce(self.source, value, b"k")
        assert producer.flush(20) == 0
        producer.close()

    def out(self) -> list[bytes | None]:
        return [value for _, batch in read_ranges(self.settings, ranges_of(self.admin, self.sink)) for value in batch.values]

    def settle(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)


def refusing(value: str) -> str:
    if value == "poison":
        raise ValueError("I do not like this one")
    return value


@pytest.fixture
def epochs(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Iterator[Epochs]:
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        admin.create_topic(topic, 1)
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string).map_values(refusing)
    counts = stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).count(store="counts")
    counts.to_stream().map_values(str).to(sink, key_serde=serdes.string, value_serde=serdes.string)
    config: dict[str, Any] = {"application.id": name, "bootstrap.servers": settings.bootstrap_servers, "num.stream.threads": 1}
    config |= {"processing.guarantee": "exactly_once_v2", "state.dir": str(tmp_path)}
    plan = make_plan(builder.build(), StreamsConfig(config), settings, admin=admin, generation=1, state_root=tmp_path)
    lease = LeaseWriter(Path(plan.control_directory))
    lease.write(1, Signal.RUN)
    made = Epochs(admin, settings, plan, lease, source, sink, WarmInstances())
    yield made
    made.warm.close()


def test_records_go_through_between_two_epochs_and_are_told_by_the_next(epochs: Epochs) -> None:
    epochs.send(b"a")
    first = epochs.epoch(3)
    epochs.send(b"b", b"c")
    epochs.settle(lambda: b"3" in epochs.out())
    second = epochs.epoch(0.2)
    assert (first.state, second.state, second.warm) == ("running", "running", True)
    assert [sum(task.records for task in told.tasks.values()) for told in (first, second)] == [1, 2]
    assert epochs.out()[-1] == b"3"


def test_an_epoch_that_comes_late_finds_the_instance_at_rest(epochs: Epochs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "BRIDGE_SECONDS", 0.05)
    epochs.send(b"a")
    epochs.epoch(3)
    (running,) = epochs.warm._bridges.values()
    epochs.settle(lambda: not running._thread.is_alive())
    epochs.send(b"b")
    late = epochs.epoch(3)
    assert late.warm and not running.unbroken
    assert epochs.out()[-1] == b"2"


def test_an_error_between_epochs_is_told_by_the_next(epochs: Epochs) -> None:
    epochs.send(b"a")
    epochs.epoch(3)
    (running,) = epochs.warm._bridges.values()
    epochs.send(b"poison")
    epochs.settle(lambda: not running._thread.is_alive())
    told = epochs.epoch(20)
    assert told.state == "failed" and "I do not like this one" in str(told.failure)
    assert epochs.out()[-1] == b"1"


def test_a_stop_between_epochs_ends_the_instance(epochs: Epochs) -> None:
    epochs.send(b"a")
    epochs.epoch(3)
    (running,) = epochs.warm._bridges.values()
    epochs.lease.write(1, Signal.STOP)
    epochs.settle(lambda: not epochs.warm.held(epochs.plan.application_id, 1) and not running._thread.is_alive())
    assert epochs.out() == [b"1"]
