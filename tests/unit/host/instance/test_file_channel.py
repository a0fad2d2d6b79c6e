"""Signals in, reports out: the lease of one generation says nothing to another."""

from __future__ import annotations

import os
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.commit import failpoints
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.control.file_channel import FileChannel, FileInstanceControl
from kstreams_repl.host.instance.epochs.epoch_handover import Epoch
from kstreams_repl.host.instance.epochs.instance_runner import _Runner


def make(tmp_path: Path, generation: int = 1) -> tuple[FileChannel, FileInstanceControl]:
    writer = FileChannel(tmp_path / "control")
    writer.signal(generation, Signal.RUN)
    return writer, FileInstanceControl(str(tmp_path / "control"), generation, 0)


def test_signal_follows_the_lease(tmp_path: Path) -> None:
    writer, control = make(tmp_path)
    assert control.signal() is Signal.RUN
    writer.signal(1, Signal.PAUSE)
    assert control.signal() is Signal.PAUSE


def test_another_generation_supersedes(tmp_path: Path) -> None:
    writer, control = make(tmp_path)
    writer.signal(2, Signal.RUN)
    assert control.signal() is Signal.SUPERSEDED


def test_lower_generation_cannot_take_the_lease_back(tmp_path: Path) -> None:
    writer, _ = make(tmp_path, 5)
    assert not writer.signal(4, Signal.STOP)
    assert writer.generation() == 5


def test_a_directory_that_was_deleted_meanwhile_is_made_again(tmp_path: Path) -> None:
    """`session.reset` deletes it while a stopped application keeps its channel."""
    channel = FileChannel(tmp_path / "control")
    channel.signal(1, Signal.STOP)
    shutil.rmtree(channel.directory)
    assert channel.signal(2, Signal.RUN)
    assert channel.generation() == 2


def test_missing_lease_stops(tmp_path: Path) -> None:
    writer, control = make(tmp_path)
    (writer.directory / "lease.json").unlink()
    assert control.signal() is Signal.STOP


def test_dead_parent_stops(tmp_path: Path) -> None:
    writer, _ = make(tmp_path)
    orphan = FileInstanceControl(str(writer.directory), 1, 0, parent=os.getppid() + 1)
    assert orphan.signal() is Signal.STOP


def test_reports_are_kept_by_generation_and_slot(tmp_path: Path) -> None:
    writer, control = make(tmp_path)
    control.report({"state": "running", "records": 5})
    zombie = FileInstanceControl(str(writer.directory), 0, 0)
    zombie.report({"state": "superseded"})
    assert writer.reports(1)[0]["records"] == 5
    assert control.has_reported("running") and not control.has_reported("paused")
    writer.clear()
    assert writer.reports(1) == {}


def test_the_disk_is_not_asked_every_round(tmp_path: Path) -> None:
    writer, control = make(tmp_path)
    assert control.signal(now=100.0) is Signal.RUN
    writer.signal(1, Signal.STOP)
    assert control.signal(now=100.001) is Signal.RUN
    assert control.signal(now=101.0) is Signal.STOP


@pytest.mark.parametrize("damaged", ["{}", '{"generation": 1, "signal": "runninf"}', '{"generation": "x", "signal": "running"}', "["])
def test_a_damaged_lease_leaves_what_was_said_last(tmp_path: Path, damaged: str) -> None:
    writer, control = make(tmp_path)
    assert control.signal() is Signal.RUN
    (writer.directory / "lease.json").write_text(damaged)
    assert control.signal() is Signal.RUN and writer.generation() == 0
    writer.signal(1, Signal.PAUSE)
    assert control.signal() is Signal.PAUSE


@pytest.mark.parametrize("damaged", ["{}", '{"slou": 0, "state": "x"}', '{"slot":"x","state":"failed","pid":1,"generation":1,"at_ms":1}'])
def test_a_damaged_report_hides_no_other(tmp_path: Path, damaged: str) -> None:
    """The driver's watching thread ended at it: the application was "running" for ever, whatever became of it."""
    writer, control = make(tmp_path)
    (writer.directory / "report-1-1.json").write_text(damaged)
    control.report({"state": "failed"})
    assert {slot: report["state"] for slot, report in writer.reports(1).items()} == {0: "failed"}


def test_reports_of_a_running_instance_do_not_wait_for_the_disk(tmp_path: Path) -> None:
    """The newest is written, and none after a final one."""
    writer, control = make(tmp_path)

    def report_soon(disk: threading.Event) -> None:
        failpoints.hook("F10", lambda: disk.wait(10))
        try:
            for number in range(5):
                control.report({"state": "running", "number": number}, soon=True)
        finally:
            failpoints.hook("F10", None)

    slow = threading.Event()
    report_soon(slow)
    slow.set()
    deadline = time.monotonic() + 10
    while writer.reports(1).get(0, {}).get("number") != 4:
        assert time.monotonic() < deadline, writer.reports(1)
        time.sleep(0.01)
    slow = threading.Event()
    report_soon(slow)
    assert writer.reports(1)[0]["number"] == 4
    threading.Timer(0.05, slow.set).start()
    control.report({"state": "paused"})
    assert writer.reports(1)[0]["state"] == "paused"
    control.report({"state": "running"})
    assert writer.reports(1)[0]["state"] == "running"


def test_who_is_fenced_looks_into_the_journal_for_a_driver_with_another_directory(tmp_path: Path) -> None:
    writer, _ = make(tmp_path)

    def fenced(in_force: int | None) -> Signal:
        return FileInstanceControl(str(writer.directory), 1, 0, in_force=lambda: in_force).signal_when_fenced()

    assert [fenced(2), fenced(1), fenced(None)] == [Signal.SUPERSEDED, Signal.RUN, Signal.RUN]
    writer.signal(1, Signal.STOP)
    assert fenced(2) is Signal.STOP


def test_a_pause_does_not_overwrite_the_lease_of_a_successor_that_comes_in_between(tmp_path: Path) -> None:
    """Two kernels: the one looked at the lease, the other raised the generation, and the first one's word took its instances away."""
    writer, _ = make(tmp_path, 5)
    with ThreadPoolExecutor(1) as other:
        raised: list[Future[bool]] = []

        def successor() -> None:
            failpoints.hook("F10", None)
            raised.append(other.submit(FileChannel(writer.directory).signal, 6, Signal.RUN))
            wait(raised, 0.1)

        failpoints.hook("F10", successor)
        try:
            writer.signal(5, Signal.PAUSE)
        finally:
            failpoints.hook("F10", None)
        assert raised[0].result(10)
    assert FileInstanceControl(str(writer.directory), 6, 0).signal() is Signal.RUN


@pytest.mark.parametrize("rest", [Signal.STOP, Signal.PAUSE])
def test_an_epoch_at_rest_leaves_the_report_of_a_failure(tmp_path: Path, rest: Signal) -> None:
    """A restarted kernel knows of the failure by this report alone; its side panel said "stopped" of an application that had failed."""
    writer, control = make(tmp_path)
    control.report({"state": "failed", "failure": {"message": "no price"}})
    writer.signal(1, rest)
    plan: Any = SimpleNamespace(application_id="app", config=StreamsConfig({"application.id": "app"}), generation=1)
    told = _Runner(plan, 0, control, "", None, Epoch(time.monotonic() + 2), None).run()
    assert told.state == rest.value
    assert writer.reports(1)[0]["failure"] == {"message": "no price"}
