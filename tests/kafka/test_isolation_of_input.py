"""Under at least once, which records of its input an application sees is for it to say (``consumer.isolation.level``)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.application_plan import client_settings
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.initialization.task_initialization import open_instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_transactional_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(("level", "seen"), [(None, {b"aborted", b"committed"}), ("read_committed", {b"committed"})])
def test_records_of_aborted_transactions_are_seen_only_by_who_reads_uncommitted(
    admin: Admin, settings: ClientSettings, name: str, tmp_path: Path, level: str | None, seen: set[bytes]
) -> None:
    source, sink = f"{name}-in", f"{name}-out"
    for topic in (source, sink):
        admin.create_topic(topic, 1)
    producer = make_transactional_producer(settings, transactional_id=name)
    producer.init_transactions(20)
    for value in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce(source, value)
        producer.flush(20)
        producer.commit_transaction(20) if value == b"committed" else producer.abort_transaction(20)
    producer.close()

    builder = StreamsBuilder()
    builder.stream(source, key_serde=serdes.bytes, value_serde=serdes.bytes).to(sink)
    given = {"application.id": name, "bootstrap.servers": settings.bootstrap_servers, "state.dir": str(tmp_path)}
    config = StreamsConfig(given if level is None else {**given, "consumer.isolation.level": level})
    plan = make_plan(builder.build(), config, client_settings(config), admin=admin, generation=1, state_root=tmp_path)
    instance = open_instance(plan, 0, in_force=lambda: True)
    try:
        deadline = time.monotonic() + 30

        def signal(now: float) -> Signal:
            return Signal.PAUSE if instance.counters.records >= len(seen) or now > deadline else Signal.RUN

        PollLoop(instance, signal=signal, report=lambda instance: None).run(deadline + 5)
    finally:
        instance.close()
    assert {value for _, batch in read_ranges(settings, ranges_of(admin, sink, settled=True)) for value in batch.values} == seen
