"""User code that takes long neither keeps the loop from its signals nor a transaction open beyond its time."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.spark.planning.plan_builder import make_plan

pytestmark = pytest.mark.kafka
RECORDS = 500


@pytest.mark.slow
def test_a_task_whose_records_take_long_takes_few_at_a_time(
    admin: Admin, settings: ClientSettings, name: str, tmp_path: Path
) -> None:
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        admin.create_topic(topic, 1)
    producer = make_producer(settings)
    for _ in range(RECORDS):
        producer.produce(source, b"v", b"k")
    assert producer.flush(20) == 0
    producer.close()

    def work(value: str) -> str:
        time.sleep(0.006)
        return value

    builder = StreamsBuilder()
    builder.stream(source, key_serde=serdes.string, value_serde=serdes.string).map_values(work).to(
        sink, key_serde=serdes.string, value_serde=serdes.string
    )
    config = StreamsConfig({
        "application.id": name, "bootstrap.servers": settings.bootstrap_servers, "processing.guarantee": "exactly_once_v2",
        "state.dir": str(tmp_path), "num.stream.threads": 1,
    })  # fmt: skip
    plan = make_plan(builder.build(), config, settings, admin=admin, generation=1, state_root=tmp_path)
    instance = open_instance(plan, 0, in_force=lambda: True)
    seen = [0]

    def signal(now: float) -> Signal:
        seen.append(instance.counters.records)
        return Signal.PAUSE if seen[-1] >= RECORDS else Signal.RUN

    try:
        PollLoop(instance, signal=signal, report=lambda instance: None).run(time.monotonic() + 60)
    finally:
        instance.close()
    taken = [after - before for before, after in pairwise(seen) if after > before]
    assert sum(taken) == RECORDS
    assert max(taken) <= 64 and max(taken[2:]) < 20
    assert instance.counters.commits > 10
