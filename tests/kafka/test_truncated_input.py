"""The broker has the committed offset of an input no more: the source's reset policy says where to go on, and the log says so.

Real broker, real clients, the instance and its runner without Spark. Retention's part is done by deleting records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.group_offsets import pause, resume
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.instance_reports import read_reports
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.errors import InputOffsetError
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka


class Bank:
    """One application that counts what it reads, epoch after epoch."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.admin, self.settings, self.name, self.directory = admin, settings, name, directory
        self.source, self.sink = f"{name}-in", f"{name}-out"
        self.input = TopicPartition(self.source, 0)
        for topic in (self.source, self.sink):
            admin.create_topic(topic, 1)
        self.warm = InstanceCache()
        self.generation = 0

    def write(self, *values: str) -> None:
        producer = make_producer(self.settings)
        for value in values:
            producer.produce(self.source, value.encode(), b"k")
        assert producer.flush(20) == 0
        producer.close()

    def plan(self, policy: str = "earliest", *, grouped: bool = False) -> ApplicationPlan:
        builder = StreamsBuilder()
        rows = builder.stream(self.source, key_serde=serdes.string, value_serde=serdes.string, offset_reset=policy)
        if grouped:
            rows = rows.select_key(lambda key, value: value)
            rows = rows.repartition(name="by-value", key_serde=serdes.string, value_serde=serdes.string)
        rows.to(self.sink, key_serde=serdes.string, value_serde=serdes.string)
        config = StreamsConfig({
            "application.id": self.name, "bootstrap.servers": self.settings.bootstrap_servers,
            "processing.guarantee": "exactly_once_v2", "state.dir": str(self.directory), "num.stream.threads": 1,
        })  # fmt: skip
        self.generation += 1
        plan = make_plan(
            builder.build(), config, self.settings, admin=self.admin, generation=self.generation, state_root=self.directory
        )
        FileChannel(Path(plan.control_directory)).signal(plan.generation, Signal.RUN)
        return plan

    def epoch(self, plan: ApplicationPlan, *wanted: str, seconds: float = 0.3) -> EpochResult:
        """Epochs until the sink has that, or one fails."""
        deadline = time.monotonic() + 30
        while True:
            control = FileInstanceControl(plan.control_directory, plan.generation, 0)
            outcome = run_instance(plan, 0, until=time.monotonic() + seconds, control=control, cache=self.warm)
            if outcome.failure is not None or self.out() == list(wanted):
                return outcome
            assert time.monotonic() < deadline, f"{self.out()} and not {wanted}"

    def out(self) -> list[str]:
        found = read_ranges(self.settings, ranges_of(self.admin, self.sink, settled=True))
        return [(value or b"").decode() for _, batch in found for value in batch.values]

    def committed(self, at: TopicPartition) -> int:
        return self.admin.committed_offsets(self.name, [at])[at].offset


@pytest.fixture
def bank(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Iterator[Bank]:
    made = Bank(admin, settings, name, tmp_path)
    yield made
    made.warm.close()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [record.getMessage() for record in warnings if record.name == "kstreams_repl.host.instance"]


def lose_two(bank: Bank) -> None:
    """It has committed offset 2 and is down; of c, d, e and f the first two are deleted."""
    bank.write("a", "b")
    bank.epoch(bank.plan(), "a", "b")
    bank.warm.close()
    bank.write("c", "d", "e", "f")
    bank.admin.delete_records({bank.input: 4})


def test_earliest_goes_on_with_the_first_record_there_is(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    lose_two(bank)
    plan = bank.plan()
    with caplog.at_level(logging.WARNING):
        assert bank.epoch(plan, "a", "b", "e", "f").state == "running"
    reports = read_reports(FileChannel(Path(plan.control_directory)), plan.generation).instances
    assert reports[0].skipped == {str(bank.input): 2}
    (warning,) = told(caplog)
    assert f"{bank.input}: the committed offset 2 is outside the log, which has offsets 4 to 6 (2 unprocessed offsets" in warning
    assert "continuing at 4 (auto.offset.reset: earliest)" in warning


@pytest.mark.slow
def test_latest_goes_on_with_what_comes_from_now_on(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    """Where it went on is committed though nothing came: the take-over after it loses nothing more."""
    lose_two(bank)
    plan = bank.plan("latest")
    with caplog.at_level(logging.WARNING):
        bank.epoch(plan, "a", "b")
    assert bank.committed(bank.input) == 6
    bank.warm.close()
    bank.write("g")
    with caplog.at_level(logging.WARNING):
        bank.epoch(bank.plan("latest"), "a", "b", "g")
    (warning,) = told(caplog)
    assert "continuing at 6 (auto.offset.reset: latest)" in warning


def test_none_stops_at_once_and_says_what_to_do(bank: Bank) -> None:
    lose_two(bank)
    outcome = bank.epoch(bank.plan("none"), "nothing")
    assert outcome.state == "failed"
    assert outcome.failure is not None
    assert outcome.failure["error"] == InputOffsetError.__name__
    assert "the committed offset 2 is outside the log, which has offsets 4 to 6" in outcome.failure["message"]
    assert "auto.offset.reset" in outcome.failure["hint"]
    assert outcome.failure["fields"] == {"topic": bank.source, "partition": 0, "offset": 2}


@pytest.mark.slow
def test_an_offset_behind_the_end_is_no_place_to_wait(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    """The log is shorter than it was, or somebody set the offset by hand."""
    bank.write("a", "b")
    bank.epoch(bank.plan(), "a", "b")
    bank.warm.close()
    bank.admin.commit_offsets(bank.name, {bank.input: 50})
    with caplog.at_level(logging.WARNING):
        bank.epoch(bank.plan(), "a", "b", "a", "b")
    (warning,) = told(caplog)
    assert "the committed offset 50 is outside the log, which has offsets 0 to 2 (the log is shorter" in warning


@pytest.mark.slow
def test_retention_that_overtakes_a_running_instance_costs_one_take_over(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    bank.write("a", "b")
    plan = bank.plan()
    bank.epoch(plan, "a", "b")
    running = bank.warm.handover(plan, 0)
    assert running is not None
    running.end()  # it rests now
    instance = bank.warm.take(plan, 0)
    assert instance is not None
    pause(instance.clients.consumer, [bank.input])  # it lags behind
    bank.write("c", "d", "e", "f")
    bank.admin.delete_records({bank.input: 4})
    resume(instance.clients.consumer, [bank.input])
    bank.warm.put(instance)
    with caplog.at_level(logging.WARNING):  # the epoch must last until its instance is dropped: between epochs that is not told
        assert bank.epoch(plan, "a", "b", "e", "f", seconds=5).state == "running"
    again, warning = told(caplog)
    assert "re-initialising the tasks" in again
    assert "the committed offset 2 is outside the log" in warning


@pytest.mark.slow
def test_a_purged_repartition_topic_is_no_loss_and_no_warning(bank: Bank, caplog: pytest.LogCaptureFixture) -> None:
    """What every commit has passed is deleted there; the offset that is committed may be older than the purge."""
    between = TopicPartition(f"{bank.name}-by-value-repartition", 0)
    bank.write("a", "b")
    bank.epoch(bank.plan(grouped=True), "a", "b")
    bank.warm.close()
    bank.admin.delete_records({between: -1})  # all there is, markers included
    first: Any = bank.admin.beginning_offsets([between])[between]
    assert first > bank.committed(between)
    bank.write("c")
    with caplog.at_level(logging.WARNING):
        bank.epoch(bank.plan(grouped=True), "a", "b", "c")
    assert told(caplog) == []
