"""Two kernels run one application from different directories: what the one raises stands in the journal alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.instance_runner import run_instance
from kstreams_repl.host.instance.reports.epoch_result import EpochResult
from kstreams_repl.host.journal.journal import JournalControl, ensure_journal, generation_in_force
from kstreams_repl.host.journal.journal_records import DesiredState
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.host.spark.planning.plan_builder import make_plan

pytestmark = pytest.mark.kafka
SECONDS = 40.0


@pytest.mark.slow
def test_an_instance_leaves_when_it_is_fenced_by_a_generation_that_stands_in_the_journal_alone(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str], name: str, tmp_path: Path
) -> None:
    """It took its tasks over again, and so did the other one: they fenced each other for ever, and neither kernel was told."""
    source, sink = topic(), topic()
    builder = StreamsBuilder()
    counts = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string).group_by_key().count(store="counts")
    counts.to_stream().to(sink, value_serde=serdes.long)
    topology = builder.build()
    ensure_journal(admin, name)

    def kernel(generation: int) -> tuple[FileChannel, Callable[[], EpochResult]]:
        root = tmp_path / f"kernel-{generation}"
        config: dict[str, Any] = {"application.id": name, "bootstrap.servers": settings.bootstrap_servers, "state.dir": str(root)}
        config |= {"processing.guarantee": "exactly_once_v2", "default.key.serde": serdes.string}
        plan = make_plan(topology, StreamsConfig(config), settings, admin=admin, generation=generation, state_root=root)
        journal = JournalControl(settings, name)
        journal.write(DesiredState(generation, "running", 1, 1))
        journal.close()
        lease = FileChannel(Path(plan.control_directory))
        lease.signal(generation, Signal.RUN)
        control = FileInstanceControl(plan.control_directory, generation, 0, in_force=partial(generation_in_force, settings, name))
        return lease, lambda: run_instance(plan, 0, until=time.monotonic() + 100, control=control)

    def send(value: str) -> None:
        producer = make_producer(settings, linger_ms=0)
        producer.produce(source, value, b"k")
        assert producer.flush(20) == 0
        producer.close()

    def counted(*, until: int) -> None:
        want = [number.to_bytes(8, "big") for number in range(1, until + 1)]
        deadline = time.monotonic() + SECONDS
        found: list[bytes | None] = []
        while found != want:
            assert time.monotonic() < deadline, found
            found = [row for _, batch in read_ranges(settings, ranges_of(admin, sink, settled=True)) for row in batch.values]

    with ThreadPoolExecutor(2) as kernels:
        _, run = kernel(1)
        former: Future[EpochResult] = kernels.submit(run)
        send("a")
        counted(until=1)
        lease, run = kernel(2)
        latter = kernels.submit(run)
        try:
            for number in range(2, 1000):
                send("b")
                counted(until=number)
                if former.done():
                    break
            assert former.result(0).state == "superseded"
        finally:
            lease.signal(2, Signal.STOP)
        assert latter.result(SECONDS).state == "stopped"
