"""What an instance writes to its log: states, assignments, restores, commits, fencing, each line with application, instance and task;
and no line per record. Real broker, real clients, the runner without Spark.
"""

from __future__ import annotations

import logging
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_cache import InstanceCache
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.initialization import task_initialization
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.host.spark.planning.plan_builder import make_plan

pytestmark = pytest.mark.kafka
RECORDS = 3_000


class Counts:
    """One application that counts the words of a topic."""

    def __init__(self, admin: Admin, settings: ClientSettings, name: str, directory: Path) -> None:
        self.admin, self.settings, self.name, self.directory, self.generation = admin, settings, name, directory, 0
        admin.create_topic(f"{name}-in", 1)
        self.warm = InstanceCache()

    def plan(self) -> ApplicationPlan:
        builder = StreamsBuilder()
        words = builder.stream(f"{self.name}-in", key_serde=serdes.string, value_serde=serdes.string)
        words.group_by_key().count(store="counts")
        config = StreamsConfig({
            "application.id": self.name, "bootstrap.servers": self.settings.bootstrap_servers,
            "processing.guarantee": "exactly_once_v2", "state.dir": str(self.directory), "commit.interval.ms": 50,
        })  # fmt: skip
        self.generation += 1
        plan = make_plan(builder.build(), config, self.settings, admin=self.admin, generation=self.generation, state_root=self.directory)
        FileChannel(Path(plan.control_directory)).signal(plan.generation, Signal.RUN)
        return plan

    def write(self, count: int) -> None:
        producer = make_producer(self.settings)
        for number in range(count):
            producer.produce(f"{self.name}-in", b"word", f"key-{number % 100}".encode())
        assert producer.flush(20) == 0
        producer.close()

    def run(self, plan: ApplicationPlan, seconds: float = 3) -> EpochResult:
        control = FileInstanceControl(plan.control_directory, plan.generation, 0)
        return run_instance(plan, 0, until=time.monotonic() + seconds, control=control, cache=self.warm)


@pytest.fixture
def counts(admin: Admin, settings: ClientSettings, name: str, tmp_path: Path) -> Iterator[Counts]:
    made = Counts(admin, settings, name, tmp_path / "state")
    yield made
    made.warm.close()


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "kstreams_repl.host.instance"]


@pytest.mark.slow
def test_a_life_is_told_with_application_instance_and_task_and_no_record_has_a_line(
    counts: Counts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_initialization, "_MOMENT_SECONDS", 30.0)  # the whole restore is within the take-over
    caplog.set_level(logging.DEBUG, "kstreams_repl")
    counts.write(RECORDS)
    assert counts.run(counts.plan()).state == "running"
    told = lines(caplog)
    assert told and all((record.application, record.instance) == (counts.name, 0) for record in told)  # type: ignore[attr-defined]
    texts = [record.getMessage() for record in told]
    assert texts[0] == f"{counts.name}[0]: created -> restoring (generation 1)"
    wanted = [r"\[0\] 0_0: created -> running \(", r"\[0\]: assigned 0_0; 0 records restored", r"\[0\]: restoring -> running"]
    places = [next(place for place, text in enumerate(texts) if re.search(pattern, text)) for pattern in wanted]
    assert places == sorted(places)
    commits = [record for record in told if ": commit " in record.getMessage()]
    assert commits and all(record.levelno == logging.DEBUG for record in commits)
    steps = [record for record in told if "committing" in record.getMessage()]
    assert all((record.levelno, record.task) == (logging.DEBUG, "0_0") for record in steps)  # type: ignore[attr-defined]
    assert len(told) - len(commits) - len(steps) < 10 and len(steps) <= 3 * len(commits) + 2
    assert len(told) < RECORDS / 10

    caplog.clear()  # another generation, whose stores are gone
    counts.warm.close()
    shutil.rmtree(counts.directory)
    plan = counts.plan()
    assert counts.run(plan).state == "running"
    texts = [record.getMessage() for record in lines(caplog)]
    restored = [re.search(r"\[0\] 0_0: restored (\d+) records in \d+\.\d s", text) for text in texts]
    assert [found for found in restored if found and int(found.group(1)) >= 100], texts  # one row for each key at least
    assert any("[0] 0_0: restoring up to " in text for text in texts)
    assert any(re.search(r"\[0\]: assigned 0_0; [1-9]\d* records restored", text) for text in texts)

    running = counts.warm.handover(plan, 0)
    assert running is not None
    running.end()  # it rests: fenced between epochs it would leave without a word
    caplog.clear()  # somebody else takes the transactional id
    fencing = TransactionalProducer(plan.settings, plan.transactional_id(0), timeout_ms=10_000)
    fencing.initialise()
    fencing.close()
    counts.write(10)
    assert counts.run(plan, 4).state == "running"
    fenced = [record for record in lines(caplog) if "fenced by a newer owner, retry 1" in record.getMessage()]
    assert [record.levelno for record in fenced] == [logging.WARNING]
    assert any("-> recovering" in record.getMessage() for record in lines(caplog))
