"""A stop that comes while an instance opens again, after the period in which it looked for a record that kills workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs import instance_runner
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.spark.planning.plan_builder import make_plan
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("signal", [Signal.STOP, Signal.PAUSE])
def test_rows_of_a_table_are_there_after_a_stop_that_meets_no_open_instance(
    admin: Admin, settings: ClientSettings, topic: Callable[..., str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    signal: Signal,
) -> None:  # fmt: skip
    source, rows = topic(), 100
    producer = make_producer(settings)
    for number in range(rows):
        producer.produce(source, b'{"n": %d}' % number, b"k")
    assert producer.flush(20) == 0
    producer.close()
    builder, table = StreamsBuilder(), tmp_path / "table"
    stream = builder.stream(source, key_serde="string", value_serde="json")
    stream.to_table_files(str(table), "parquet", schema={"n": "int64"}, commit_interval_ms=3_600_000)
    config = StreamsConfig({
        "application.id": name, "bootstrap.servers": settings.bootstrap_servers, "state.dir": str(tmp_path / "state"),
        "num.stream.threads": 1, "processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50,
    })  # fmt: skip
    plan = make_plan(builder.build(), config, settings, admin=admin, generation=1, state_root=tmp_path / "state")
    lease = FileChannel(Path(plan.control_directory))
    lease.signal(plan.generation, Signal.RUN)
    at, until = TopicPartition(source, 0), [0.0]

    def is_over(self: Any) -> bool:
        until[0] = time.monotonic() + 0.2
        committed = admin.committed_offsets(name, [at], stable=False)
        if at not in committed or committed[at].offset < rows:
            return False
        lease.signal(plan.generation, signal)
        return True

    monkeypatch.setattr(instance_runner._Runner, "_is_calm", is_over)
    monkeypatch.setattr(instance_runner._Runner, "_deadline", lambda self: until[0])
    control = FileInstanceControl(plan.control_directory, plan.generation, 0)
    result = instance_runner.run_instance(plan, 0, until=time.monotonic() + 60, control=control)
    assert (result.state, result.failure) == (signal.value, None)
    files = [pyarrow.parquet.read_table(file) for file in table.rglob("*.parquet")]
    assert sorted(number for file in files for number in file.column("n").to_pylist()) == list(range(rows))
