"""What an instance on a cluster says of itself, without a journal to say it in."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.journal_channel import JournalChannel, JournalInstanceControl, content_of
from kstreams_repl.host.instance.failures.failure_report import failure_of
from kstreams_repl.host.journal.journal import JournalReports
from kstreams_repl.host.journal.journal_records import Claim, DesiredState, InstanceHeartbeat, encode
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.failures.failure_translation import error_from, error_of_end
from kstreams_repl.system.errors import ApplicationFailedError, StreamsProcessingError


class _Sent:
    """Stands where the journal's follower does, and keeps what it is given to send."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.writer = self

    def send(self, record: Any) -> None:
        self.records.append(record)


def test_an_instance_without_a_claim_does_not_run_when_the_application_is_resumed_meanwhile(tmp_path: Path) -> None:
    follower: Any = SimpleNamespace(signal=lambda generation: Signal.PAUSE)
    resting = JournalInstanceControl(follower, 1, 0, executor="host-a", resting=True)
    assert resting.signal(now=0.0) is Signal.PAUSE
    follower.signal = lambda generation: Signal.RUN
    assert resting.signal(now=0.0) is Signal.SUPERSEDED
    claimed = JournalInstanceControl(follower, 1, 0, executor="host-a")
    assert claimed.signal(now=0.0) is Signal.RUN


def test_an_epoch_that_finds_the_application_at_rest_says_nothing_of_where_the_stores_are(tmp_path: Path) -> None:
    """Spark runs it anywhere: the next generation planned its tasks and copies for executors that had none of their state."""
    sent: list[Any] = []
    follower: Any = SimpleNamespace(signal=lambda generation: Signal.PAUSE, writer=SimpleNamespace(send=sent.append))
    control = JournalInstanceControl(follower, 1, 0, executor="host-a", resting=True)
    control.report({"state": "paused"})
    control.report({"state": "paused", "tasks": {}})
    assert [(said.host, bool(said.figures)) for said in sent] == [("", False), ("host-a", True)]


@pytest.mark.parametrize("tasks", [1, 20_000])
def test_a_failure_that_quotes_its_input_gets_into_the_journal(tmp_path: Path, tasks: int) -> None:
    """The client refused a report of more than a megabyte where it was made: Spark ran the epoch again and again, and told of workers that
    could not load the application.
    """
    follower: Any = _Sent()
    error = StreamsProcessingError('ValueError: not a number: "' + '"' * 2_000_000, hint="fix it", node="parse", offset=7)
    told = {f"0_{number}": {"records": number, "lag": -1} for number in range(tasks)}
    JournalInstanceControl(follower, 1, 0, executor="host-a").report(
        {"state": "failed", "failure": failure_of(error), "tasks": told}
    )
    (report,) = follower.records
    assert sum(map(len, encode(report))) < 1_000_000
    shown, failed = error_of_end("app", [content_of(report)], None, tmp_path, "python")
    assert failed and isinstance(shown, StreamsProcessingError) and shown.message.startswith("ValueError: not a number")
    assert (shown.hint, shown.node, shown.offset) == ("fix it", "parse", 7)


def test_a_failed_instance_whose_report_is_cut_is_an_error_all_the_same(tmp_path: Path) -> None:
    error, failed = error_of_end("app", [{"state": "failed"}], None, tmp_path, "python")
    assert failed and isinstance(error, ApplicationFailedError)


@pytest.mark.parametrize("word", ["no ", "ö", '"', "\x00", "\ud800"], ids=["plain", "not ASCII", "quotes", "control", "half a character"])
def test_a_failure_with_a_long_text_reaches_the_driver(tmp_path: Path, word: str) -> None:
    """The client refused a report of more than a megabyte, and half a character is no UTF-8: Spark ran the slot again and again, and nobody
    was told what the user's function had raised.
    """
    follower: Any = _Sent()
    text = f"ValueError: begins {400_000 * word} and ends"
    failure = {"error": "StreamsProcessingError", "message": text, "trace": text, "fields": {"node": "n", "line": text}}
    control = JournalInstanceControl(follower, 1, 0, executor="host-a")
    control.report({"state": "failed", "failure": failure, "records": 7})
    (report,) = follower.records
    reports = JournalReports(ClientSettings("127.0.0.1:1"), "app")
    reports.send(report)
    assert reports.failed == 0 and len(reports._producer) > 0  # it counts what the client has to say, too
    reports.close()
    told = content_of(report)
    assert (told["state"], told["records"]) == ("failed", 7)
    error = error_from(told["failure"])
    assert type(error) is StreamsProcessingError and error.message.startswith("ValueError: begins") and error.message.endswith("and ends")


def test_a_report_that_the_client_does_not_take_is_left_out() -> None:
    """It raised in the middle of whatever the instance was at, though a report never fails."""
    reports = JournalReports(ClientSettings("127.0.0.1:1"), "app")
    reports.send(InstanceHeartbeat(1, 0, "me", "running", 1, figures="x" * 2_000_000))
    assert reports.failed == 1
    reports.close()


def test_a_slot_that_a_pause_found_between_two_epochs_counts_as_paused(tmp_path: Path) -> None:
    state = JournalState()
    records = (
        DesiredState(1, "running", 1, 3, 0),
        Claim(1, 0, 0, "a", "r"),
        Claim(1, 1, 0, "b", "r", partition=1),
        InstanceHeartbeat(1, 0, "a", "running", 5, figures='{"records": 7}'),
        InstanceHeartbeat(1, 0, "a", "running", 6, done=True),
        InstanceHeartbeat(1, 1, "b", "running", 6),
        DesiredState(1, "paused", 1, 3, 0),
    )
    channel: Any = JournalChannel(tmp_path, ClientSettings("nowhere:1"), "app")
    channel._follower = SimpleNamespace(state=state)
    for offset, record in enumerate(records):
        state.apply(*encode(record), offset)
    told = channel.reports(1)
    assert {slot: report["state"] for slot, report in told.items()} == {0: "paused", 1: "running", 2: "paused"}
    assert told[0]["records"] == 7
    state.apply(*encode(InstanceHeartbeat(1, 1, "b", "paused", 8)), 9)
    assert channel.reports(1)[1]["state"] == "paused"
    assert channel.reports(2) == {}


class _Writer:
    def __init__(self, sent: list[Any]) -> None:
        self.send = sent.append

    def flush(self, seconds: float) -> bool:
        return True


@pytest.mark.parametrize(("state", "done"), [("running", [False, True]), ("paused", [False]), ("failed", [False])])
def test_the_end_of_an_epoch_is_reported_unless_the_last_report_says_so(tmp_path: Path, state: str, done: list[bool]) -> None:
    sent: list[Any] = []
    follower: Any = SimpleNamespace(signal=lambda generation: Signal.RUN, writer=_Writer(sent), application_id="app")
    control = JournalInstanceControl(follower, 1, 0, executor="host-a", claim=Claim(1, 0, 0, f"host-a:{os.getpid()}"))
    control.report({"state": state, "records": 1})
    control.end_epoch()
    assert [report.done for report in sent] == done
    assert {report.owner for report in sent} == {f"host-a:{os.getpid()}"}
