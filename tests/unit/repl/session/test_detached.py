"""What the files between a detached application's process and its clients mean, and where a detached deploy is refused."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

import kstreams_repl as ks
from kstreams_repl.cli.apps import main
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.application.detached import mailbox as boxes
from kstreams_repl.repl.session.application.detached.client import DetachedDeployment
from kstreams_repl.repl.session.application.detached.mailbox import DriverRecord, Mailbox
from kstreams_repl.repl.session.application.starting.driver_selection import refuse_unsaved
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.session_file import save_version
from kstreams_repl.repl.session.source.source_slice import Program
from kstreams_repl.system.errors import DetachedApplicationError, KStreamsError
from kstreams_repl.system.processes import ProcessMark, let_go, open_log, start_apart
from tests.unit.repl.session.small_cluster import SmallCluster, SmallSession


@pytest.fixture
def box(tmp_path: Path) -> Mailbox:
    return Mailbox(tmp_path, "app").make()


def own(**more: Any) -> DriverRecord:
    mark = ProcessMark.own()
    return DriverRecord("app", mark.pid, mark.born, **more)


def test_the_folder_is_its_users_alone(box: Mailbox) -> None:
    box.write(own())
    assert stat.S_IMODE(box.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((box.folder / "driver.json").stat().st_mode) == 0o600


def test_another_process_with_the_number_drives_nothing(box: Mailbox) -> None:
    box.write(own(state="running"))
    assert box.driven is not None
    for other in (ProcessMark.of(1).born, ""):
        box.write(DriverRecord("app", os.getpid(), other, "running"))
        assert box.driven is None
        assert not boxes.end(box)  # and is not ended for it


def test_a_record_of_an_older_version_names_no_process(box: Mailbox) -> None:
    """It has the start as seconds since 1970, which move with the clock."""
    content = {"application": "app", "pid": os.getpid(), "born": psutil.Process().create_time(), "state": "running"}
    (box.folder / "driver.json").write_text(json.dumps(content))
    assert box.record is not None and box.driven is None
    assert not boxes.end(box)


def test_there_is_one_driver_process_at_a_time(box: Mailbox) -> None:
    assert box.take() and not box.take()
    box.release()
    assert box.take()
    box.release()


def test_a_change_is_for_the_process_it_names_and_is_carried_out_once(box: Mailbox) -> None:
    record = own(state="running")
    wanted = {"id": "1", "pid": record.pid, "born": "1", "state": "stopped"}
    (box.folder / "desired.json").write_text(json.dumps(wanted))
    assert box.desired(record) is None
    (box.folder / "desired.json").write_text(json.dumps(wanted | {"born": record.born, "state": "paused"}))
    found = box.desired(record)
    assert found is not None and found.state == "paused"
    assert box.desired(own(observed="1")) is None
    (box.folder / "desired.json").write_text("{")
    assert box.desired(record) is None


def test_changes_of_two_clients_are_carried_out_one_after_the_other_and_nothing_stays(box: Mailbox) -> None:
    record = own(state="running")
    box.write(record)
    refused: dict[str, Any] = {}
    carried_out: list[str] = []

    def client(state: str) -> None:
        refused[state] = Mailbox(box.folder.parents[2], "app").change(record, state)

    clients = [threading.Thread(target=client, args=(state,)) for state in ("paused", "running")]
    for one in clients:
        one.start()
    while any(one.is_alive() for one in clients):
        wanted = box.desired(record)
        if wanted is not None:
            carried_out.append(wanted.state)
            record = replace(record, observed=wanted.id, refused={"error": "no"} if wanted.state == "paused" else {})
            box.write(record)
    assert sorted(carried_out) == ["paused", "running"] and refused == {"paused": {"error": "no"}, "running": {}}
    assert sorted(path.name for path in box.folder.iterdir()) == ["desired.lock", "driver.json"]


def test_a_change_for_a_process_that_ends_raises(box: Mailbox) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    record = DriverRecord("app", process.pid, ProcessMark.of(process.pid).born, "running")
    process.communicate()
    with pytest.raises(DetachedApplicationError, match="ended before it had done what was asked \\(paused\\)") as caught:
        box.change(record, "paused")
    assert str(box.log) in (caught.value.hint or "")


def test_a_damaged_record_is_none(box: Mailbox) -> None:
    for text in ("{", "{}", "[]"):
        (box.folder / "driver.json").write_text(text)
        assert box.record is None and box.driven is None


def test_a_process_that_ended_by_itself_is_a_failed_application(tmp_path: Path) -> None:
    cluster = SmallCluster()
    config = ks.StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:9092", "state.dir": str(tmp_path)})
    apart = DetachedDeployment(ks.Topology(), config, cluster.settings, tmp_path, None)
    assert apart.status == "created" and apart.error is None
    apart.mailbox.make().write(DriverRecord("app", os.getpid(), "1", "running", generation=3, restarts=["12:00:00 started again"]))
    assert apart.restarts == ["12:00:00 started again"]
    assert apart.status == "failed" and "has ended by itself (it was running)" in str(apart.error)
    assert apart.plan is not None and apart.plan.generation == 3
    apart.stop()  # which does not make it unseen
    assert apart.status == "stopped" and "has ended by itself (it was running)" in str(apart.error)


def test_passwords_go_through_standard_input_alone(tmp_path: Path) -> None:
    config = ks.StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:9092", "state.dir": str(tmp_path)})
    settings = ClientSettings("nowhere:9092", {"sasl.password": "hunter2"})
    request = DetachedDeployment(ks.Topology(), config, settings, tmp_path, None)._request()
    assert json.loads(json.dumps(request))["client_settings"] == {"sasl.password": "hunter2"}
    log = open_log(tmp_path / "log")
    process = start_apart("timeit", ["-n1", "-r1", "-s", "import sys", "print(len(sys.stdin.read()))"], log, stdin=b"hunter2")
    arguments = " ".join(map(str, process.args))  # type: ignore[arg-type]
    let_go(process)
    process.wait()
    os.close(log)
    assert "hunter2" not in arguments and (tmp_path / "log").read_text().startswith("7\n")


def test_an_object_among_the_settings_is_refused(tmp_path: Path) -> None:
    given = {"application.id": "app", "bootstrap.servers": "nowhere:9092", "state.dir": str(tmp_path), "consumer.error_cb": print}
    apart = DetachedDeployment(ks.Topology(), ks.StreamsConfig(given), SmallCluster.settings, tmp_path, None)
    with pytest.raises(KStreamsError, match=r"consumer\.error_cb is a builtin_function"):
        apart._request()


def test_a_password_that_no_file_has_is_told_to_the_process(tmp_path: Path) -> None:
    address = "sftp://me:hunter2@host/dir"
    config = ks.StreamsConfig({"application.id": "app", "state.dir": str(tmp_path), "repl.snapshot.dir": address})
    saved = save_version(1, 0, Program("x = 1\n"), "", config)
    refuse_unsaved("app", saved)
    request = DetachedDeployment(ks.Topology(), config, ClientSettings("b:1"), tmp_path, None)._request()
    assert request["config"]["repl.snapshot.dir"] == address


def test_a_driver_without_a_whole_request_ends(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    process = start_apart("kstreams_repl.repl.session.application.detached.driver", [], log, stdin=b'{"application": "ap')
    assert process.wait() == 2
    os.close(log)
    assert "exited before it sent the job" in (tmp_path / "log").read_text()


def test_a_broker_that_ends_with_the_kernel_refuses_a_detached_deploy(tmp_path: Path) -> None:
    session = ks.Session(None, directory=SessionDirectory(tmp_path))
    with pytest.raises(DetachedApplicationError, match="a broker that outlives this process") as caught:
        session.deploy(ks.StreamsBuilder(), "app", detached=True)
    assert "./kstreams broker start" in (caught.value.hint or "")
    assert not session.started


def test_a_temporary_directory_refuses_a_detached_deploy() -> None:
    session = SmallSession(SmallCluster(), Path("unused"))
    session.client.directory = SessionDirectory("temporary")
    try:
        with pytest.raises(DetachedApplicationError, match="a directory that outlives this process"):
            session.deploy(ks.StreamsBuilder(), "app", detached=True)
    finally:
        session.directory.close()


def test_the_command_lists_and_knows_names(box: Mailbox, tmp_path: Path) -> None:
    box.write(own(state="paused", version=2))
    told = CliRunner().invoke(main, ["list", "--state", str(tmp_path)]).output
    assert f"app: paused, process {os.getpid()}, version 2" in told
    with pytest.raises(KStreamsError, match="no application 'ap'") as caught:
        CliRunner().invoke(main, ["stop", "--state", str(tmp_path), "ap"], catch_exceptions=False)
    assert "did you mean 'app'" in (caught.value.hint or "")
    box.write(DriverRecord("app", os.getpid(), 1.0, "running"))
    assert "app: process ended" in CliRunner().invoke(main, ["list", "--state", str(tmp_path)]).output
    assert "app does not run" in CliRunner().invoke(main, ["stop", "--state", str(tmp_path), "app"]).output
