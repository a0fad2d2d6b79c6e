"""A tap that this session may not request says so, and one without instances waits for them."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import NodeTaps
from kstreams_repl.host.instance.control.node_taps import TapBoard, TapFiles
from kstreams_repl.host.journal.journal_records import DesiredState, encode
from kstreams_repl.host.journal.journal_records import InstanceHeartbeat as Reported
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport
from kstreams_repl.repl.session.views.values import live_taps
from kstreams_repl.repl.session.views.values.journaled_run import JournaledRun
from kstreams_repl.repl.session.views.values.live_taps import LiveTap, live_tail, live_tap
from kstreams_repl.system.errors import AuthorizationError, TapUnavailableError
from kstreams_repl.system.types import TaskId


def application(directory: Path, *places: str | None) -> Any:
    config = StreamsConfig({"application.id": "counts", "bootstrap.servers": "nowhere:1", "state.dir": str(directory)})
    (directory / "counts" / "control").mkdir(parents=True, exist_ok=True)
    reports = ApplicationReport(1, {slot: InstanceReport(slot, "running", 1, 0, place=place) for slot, place in enumerate(places)})
    client = SimpleNamespace(settings=ClientSettings("nowhere:1"))
    return SimpleNamespace(name="counts", config=config, reports=reports, status="running", generation=1, client=client)


class Refused:
    """A client whose user has no right to write to the journal."""

    def __init__(self) -> None:
        self.closed = 0

    def put(self, request: Any) -> None:
        raise AuthorizationError("no right to do this on topic counts-journal", hint="ask for it")

    def drop(self, request_id: str) -> None: ...

    def close(self) -> None:
        self.closed += 1


def test_a_tap_without_the_right_to_write_to_the_journal_names_the_right_and_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far, refused = application(tmp_path, "executor-far-0"), Refused()
    monkeypatch.setattr(live_taps, "open_taps", lambda *where, remote: refused)
    with pytest.raises(TapUnavailableError, match="on other hosts, and no right") as raised, LiveTap(far, "kept"):
        pass
    assert "session.values('kept')" in str(raised.value) and "WRITE on topic counts-journal" in str(raised.value)
    assert raised.value.fields["topic"] == "counts-journal" and refused.closed == 1
    with pytest.raises(TapUnavailableError):
        live_tap(far, "kept", 1, 1.0)
    with pytest.raises(TapUnavailableError):
        next(live_tail(far, "kept", 1.0))
    assert refused.closed == 3


def test_a_tap_begins_when_it_is_known_where_the_instances_run(tmp_path: Path) -> None:
    app = application(tmp_path)
    requests = tmp_path / "counts" / "control" / "taps"
    with LiveTap(app, "kept") as tap:
        assert tap.new() == [] and not requests.exists()
        app.reports = application(tmp_path, None).reports
        assert tap.new() == [] and len(list(requests.iterdir())) == 1
    assert list(requests.iterdir()) == []


class Journal:
    """What is read of a follower: the journal's state."""

    def __init__(self) -> None:
        self.state = JournalState()
        self._offset = 0

    def write(self, record: Any) -> None:
        self.state.apply(*encode(record), self._offset)
        self._offset += 1

    def report(self, generation: int, at: float, host: str = "executor-far-0") -> None:
        self.write(Reported(generation, 0, "far:7", "running", int(at * 1000), host=host))


def test_a_run_of_another_kernel_is_what_its_journal_says(tmp_path: Path) -> None:
    app, journal, now = application(tmp_path), Journal(), time.time()
    run = JournaledRun(app.name, app.config, app.client, journal)  # type: ignore[arg-type]
    assert (run.status, run.generation) == ("stopped", 0), "it never ran"
    journal.write(DesiredState(3, "running", 1, 1))
    assert (run.status, run.generation) == ("stopped", 3), "no instance has reported"
    journal.report(3, now - 60)
    assert run.status == "stopped", "its kernel was killed: instances report every five seconds"
    journal.report(3, now)
    assert run.status == "running" and run.reports.remote
    journal.write(DesiredState(4, "running", 1, 1))
    assert run.status == "stopped" and not run.reports.instances, "the reports are of the run before"
    journal.report(4, now)
    assert (run.status, run.generation) == ("running", 4)
    journal.write(DesiredState(4, "paused", 1, 1))
    assert run.status == "stopped"


def test_a_run_on_the_host_of_another_kernel_is_not_tapped(tmp_path: Path) -> None:
    """Its instances read files of that kernel's directory."""
    app, journal = application(tmp_path), Journal()
    journal.write(DesiredState(1, "running", 1, 1))
    journal.report(1, time.time(), host="")
    assert JournaledRun(app.name, app.config, app.client, journal).status == "stopped"  # type: ignore[arg-type]


def test_a_peek_returns_the_first_of_many_that_pass_at_once(tmp_path: Path) -> None:
    """Of ten values "the next five" were the last five: the instance kept no more rows than were asked for."""
    app = application(tmp_path, None)
    point = SimpleNamespace(attach=lambda observer: observers.append(observer), detach=lambda observer: None)
    task = SimpleNamespace(id=TaskId(0, 0), taps=lambda node: NodeTaps([point], False, None))
    observers: list[Any] = []
    board = TapBoard(TapFiles(tmp_path / "counts" / "control"), 1, 0)
    ended = threading.Event()

    def instance() -> None:
        while not ended.wait(0.01):
            board.serve([task])
            while observers:
                observer = observers.pop()
                for number in range(10):
                    observer.record(f"k{number}", number, number, [])

    thread = threading.Thread(target=instance)
    thread.start()
    try:
        assert [record.value for record in live_tap(app, "kept", 5, 10.0)] == [0, 1, 2, 3, 4]
    finally:
        ended.set()
        thread.join()
