"""R32 on Spark: workers of a deployed application killed with calls in flight; a service that never answers: memory, and the time of a
stop.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests.faults.counts import full
from tests.faults.paid_service import PaidService, paying
from tests.faults.reliability import note
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
KEYS, IN_FLIGHT = 50, 8


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


@pytest.fixture
def service() -> Iterator[PaidService]:
    running = PaidService()
    yield running
    running.close()


def deployed(session: ks.Session, service: PaidService, in_flight: int = IN_FLIGHT) -> ks.Application:
    name = f"paid-{uuid.uuid4().hex[:8]}"
    for topic in ("in", "out", "counts"):
        session.create_topic(f"{name}-{topic}", partitions=2)
    builder = ks.StreamsBuilder()
    both: Any = {"key_serde": "string", "value_serde": "bytes"}
    values = builder.stream(f"{name}-in", **both)
    paid = values.map_values_async(paying(service.port), name="pay", durable=True, in_flight=in_flight, result_serde="bytes")
    paid.to(f"{name}-out", **both)
    counts = paid.group_by_key(**both).count(store="counts").to_stream()
    counts.to(f"{name}-counts", key_serde="string", value_serde="long")
    config = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2}
    return session.deploy(builder, name, config=config)


def write(session: ks.Session, app: ks.Application, begin: int, count: int, size: int = 0) -> None:
    rows = [(f"k{number % KEYS}", b"%d" % number + bytes(size)) for number in range(begin, begin + count)]
    session.produce(f"{app.name}-in", rows)


def pids_of(app: ks.Application) -> list[int]:
    return [report.pid for report in app.reports.instances.values()]


def test_killed_workers_repeat_no_finished_call(session: ks.Session, service: PaidService) -> None:
    app, written, kills, open_at_kills = deployed(session, service), 0, full(10), 0
    for number in range(kills):
        write(session, app, written, 200)
        written += 200
        settle(lambda: bool(service.unanswered), "calls in flight", story=lambda: app)
        settle(lambda: bool(pids_of(app)), "the workers", story=lambda: app)
        open_at_kills += len(service.unanswered)
        os.kill(pids_of(app)[number % len(pids_of(app))], signal.SIGKILL)
        enough = min(len(service.answered) + 50, written)
        settle(lambda enough=enough: len(service.answered) >= enough, "the application to go on", story=lambda: app)  # type: ignore[misc]
    settle(lambda: len(service.answered) == written, "all calls", story=lambda: app)
    settle(lambda: app.sql("SELECT sum(value) FROM counts").fetchall() == [(written,)], "the counts", story=lambda: app)
    app.stop()
    seen = Counter(record.value for record in session.read(f"{app.name}-out", n=None, value_serde="bytes"))
    wanted = Counter(b"%d" % number for number in range(written))
    wrong = [f"{len(wanted - seen)} lost, {len(seen - wanted)} repeated"] if seen != wanted else []
    counted = dict(app.sql("SELECT key, value FROM counts").fetchall())
    if counted != {f"k{key}": written // KEYS for key in range(KEYS)}:
        wrong.append(f"the store: {counted}")
    if service.repeated > kills * IN_FLIGHT:
        wrong.append(f"{service.repeated} calls were repeated")
    figures = {"records": written, "calls": service.asked.total(), "unanswered_calls_at_the_kills": open_at_kills}
    note("R32", "kill -9 of Spark's workers with calls in flight, durable results", kills, len(wrong), **figures,
         repeated_calls=service.repeated)  # fmt: skip
    assert not wrong, wrong


def test_a_service_that_never_answers_holds_neither_a_stop_nor_memory(session: ks.Session, service: PaidService) -> None:
    app = deployed(session, service, in_flight=100)
    write(session, app, 0, 100)
    settle(lambda: len(service.answered) == 100, "the first calls", story=lambda: app)
    service.silent.set()
    write(session, app, 100, 1_000)
    settle(lambda: len(service.unanswered) >= KEYS, "calls that wait", story=lambda: app)
    before = max(psutil.Process(pid).memory_info().rss for pid in pids_of(app)) / 1e6
    for begin in range(1_100, 201_100, 20_000):
        write(session, app, begin, 20_000, size=1_000)
    until = time.monotonic() + 5
    after = 0.0
    while time.monotonic() < until:
        after = max(after, *(psutil.Process(pid).memory_info().rss / 1e6 for pid in pids_of(app)))
        time.sleep(0.2)
    began = time.monotonic()
    app.stop()
    took = time.monotonic() - began
    waiting = app.sql('SELECT count(*) FROM "pay-pending"').fetchall()[0][0]
    assert 0 < waiting <= 2 * 2 * 100
    note("R32", "a service that never answers, 200 MB of input behind it", 1, 0, stop_seconds=f"{took:.2f}", waiting_records=waiting,
         largest_worker_MB=f"{before:.0f} before, {after:.0f} after")  # fmt: skip
