from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from kstreams_repl.host.instance.control.open_channel import open_orders
from kstreams_repl.host.journal.journal import JournalControl, JournalReader, JournalReports, ensure_journal
from kstreams_repl.host.journal.journal_records import (
    Assignment,
    Claim,
    DesiredState,
    InstanceHeartbeat,
    RetryOrder,
    TaskHeartbeat,
    VersionRecord,
)
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.system.errors import BrokerUnavailableError, ProducerFencedError, ProductionError, UnknownTopicError

pytestmark = pytest.mark.kafka


@pytest.fixture
def application(admin: Admin, name: str) -> str:
    ensure_journal(admin, name)
    return name


@pytest.fixture
def reader(settings: ClientSettings, application: str) -> Iterator[JournalReader]:
    reading = JournalReader(settings, application)
    yield reading
    reading.close()


def _until(reader: JournalReader, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, f"never came: {reader.state!r}"
        reader.wait(0.1)


def test_what_control_and_instances_write_is_read_by_others(
    settings: ClientSettings, admin: Admin, application: str, reader: JournalReader
) -> None:
    control, reports = JournalControl(settings, application), JournalReports(settings, application)
    version = VersionRecord.of("builder.stream('in').to('out')", generation=1, version=1)
    control.write(DesiredState(1, "running", 1, 2), Assignment(1, {"0": ("0_0",), "1": ("0_1",)}), version)
    report = InstanceHeartbeat(1, 0, "host:1:2", "running", at_ms=5, tasks={"0_0": TaskHeartbeat("RUNNING", {"in-0": 7}, lag=0)})
    reports.send(report)
    reports.send(Claim(1, 0, epoch=3, owner="host:1:2"))
    assert reports.flush()
    state = reader.catch_up(admin)
    assert state.desired == DesiredState(1, "running", 1, 2)
    assert state.assignment is not None and state.assignment.tasks == {"0": ("0_0",), "1": ("0_1",)}
    assert state.versions == {1: version}
    assert state.reports == {0: report}
    assert getattr(state.claim_of(0, 3), "owner", None) == "host:1:2"
    assert state.ignored == 0 and reports.failed == 0
    control.close()
    reports.close()


def test_a_clients_order_is_read_by_instances_until_it_is_removed(
    settings: ClientSettings, application: str, reader: JournalReader, tmp_path: Path
) -> None:
    """The client does not take control: the driver writes on."""
    control = JournalControl(settings, application)
    control.write(DesiredState(1, "running", 1, 2))
    box = open_orders(tmp_path, settings, application, remote=True)
    order = RetryOrder(1, "0123456789abcdef", "pay", "retry", {"0": tuple(range(100_000)), "1": (7,)}, until_ms=1)
    box.put(order)
    _until(reader, lambda: sum(len(part.rows.get("1", ())) for part in reader.state.orders.values()) == 1)
    parts = list(reader.state.orders.values())
    assert sorted(number for part in parts for number in part.rows.get("0", ())) == list(range(100_000))
    assert {(part.node, part.action, part.until_ms) for part in parts} == {("pay", "retry", 1)} and len(parts) == 3
    control.write(DesiredState(1, "paused", 1, 2))
    box.close()
    _until(reader, lambda: not reader.state.orders)
    assert reader.state.ignored == 0
    control.close()


def test_a_second_control_fences_the_first(settings: ClientSettings, admin: Admin, application: str, reader: JournalReader) -> None:
    forgotten = JournalControl(settings, application)
    forgotten.write(DesiredState(1, "running", 1, 1))
    attached = JournalControl(settings, application)
    attached.write(DesiredState(2, "paused", 1, 1))
    with pytest.raises(ProducerFencedError, match="another session has taken control"):
        forgotten.write(DesiredState(3, "running", 1, 1))
    with pytest.raises(ProducerFencedError):
        forgotten.write(DesiredState(4, "running", 1, 1))
    assert reader.catch_up(admin).desired == DesiredState(2, "paused", 1, 1)
    attached.close()
    forgotten.close()


def test_an_unfinished_command_is_never_seen(settings: ClientSettings, admin: Admin, application: str, reader: JournalReader) -> None:
    from kstreams_repl.host.journal.journal_records import encode

    dying = JournalControl(settings, application)
    dying._producer.begin_transaction()
    key, value = encode(DesiredState(9, "stopped", 1, 1))
    dying._producer.produce(f"{application}-journal", key=key, value=value)
    dying._producer.flush(10)
    JournalControl(settings, application).close()  # aborts what the dead one left open
    assert reader.catch_up(admin).desired is None


def test_polling_never_waits_and_sees_a_command_soon(
    settings: ClientSettings, admin: Admin, application: str, reader: JournalReader
) -> None:
    reader.catch_up(admin)
    started = time.process_time()
    assert not any(reader.poll() for _ in range(1000))
    assert time.process_time() - started < 5
    control = JournalControl(settings, application)
    control.write(DesiredState(1, "paused", 1, 1))
    _until(reader, lambda: reader.state.desired is not None)
    control.close()


def test_garbage_in_the_topic_is_ignored_and_counted(
    settings: ClientSettings, admin: Admin, application: str, reader: JournalReader
) -> None:
    producer = make_producer(settings)
    wrong = b'{"kind": "desired", "generation": "1"}'
    for key, value in [(b"control/desired", b"{"), (b"\xff", b"{}"), (b"control/desired", wrong), (b"x", None)]:
        producer.produce(f"{application}-journal", key=key, value=value)
    producer.flush(10)
    producer.close()
    state = reader.catch_up(admin)
    assert state.desired is None and state.ignored == 4


def test_an_application_without_a_journal_is_unknown(settings: ClientSettings, admin: Admin, name: str) -> None:
    reader = JournalReader(settings, name)
    with pytest.raises(UnknownTopicError):
        reader.catch_up(admin)
    reader.close()


def test_control_without_a_broker_is_a_typed_error_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstreams_repl.host.journal.journal.CALL_SECONDS", 1.0)
    with pytest.raises(BrokerUnavailableError, match="taking control"):
        JournalControl(ClientSettings("127.0.0.1:1"), "nowhere")


def test_a_command_that_cannot_be_written_leaves_nothing_open(
    settings: ClientSettings, admin: Admin, application: str, reader: JournalReader
) -> None:
    """Whoever read waited for its transaction's time to pass: ten minutes after an edit with a row that was too large."""
    control = JournalControl(settings, application, transaction_timeout_ms=60_000)
    control.write(DesiredState(1, "paused", 1, 1))
    with pytest.raises(ProductionError, match="larger than"):
        control.write(DesiredState(2, "running", 1, 1), VersionRecord.of("x" * 2_000_000, generation=2, version=1))
    with suppress(KafkaException):  # it may have come to its end with the abort
        control._producer.flush(10)
    assert reader.catch_up(admin).desired == DesiredState(1, "paused", 1, 1)
    control.close()
