"""The main job as a user runs it: the command, killed and resumed, checks itself; nothing is left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kstreams_repl import connect, serdes
from kstreams_repl.demo import own_input
from tests.spark.hosting import settle

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]


COMMAND = [sys.executable, "-m", "kstreams_repl.cli", "demo"]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [*COMMAND, "--json", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    """Its output once it ended; it does not outlive the test."""
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()


def verdict(process: subprocess.Popen[str]) -> dict[str, object]:
    out, err = finished(process, 150)
    assert process.returncode == 0, (out + err)[-3000:]
    found: dict[str, object] = json.loads(out.splitlines()[-1])
    return found


def workers(process: subprocess.Popen[str]) -> Iterator[psutil.Process]:
    """Python workers under the demo that hold an open store."""
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if any("data.mdb" in mapped.path for mapped in child.memory_maps()):
                yield child
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def wait_for_workers(process: subprocess.Popen[str], seconds: float = 120) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        found = list(workers(process))
        if len(found) >= 2:
            return found
        time.sleep(0.05)
    raise AssertionError("no worker opened a store")


@pytest.mark.slow
def test_killed_worker_and_killed_driver_then_resume_gives_the_same_numbers(tmp_path: Path) -> None:
    first = demo(tmp_path)
    victim = wait_for_workers(first)[0]
    time.sleep(0.7)
    victim.kill()
    time.sleep(1.2)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    resumed = verdict(demo(tmp_path, "--resume"))
    assert resumed["ok"] is True
    assert resumed["mismatches"] == 0
    assert resumed["resumed"] is True


@pytest.mark.slow
def test_interrupted_demo_ends_quietly_and_leaves_nothing(tmp_path: Path) -> None:
    process = demo(tmp_path)
    wait_for_workers(process)
    process.send_signal(signal.SIGINT)
    out, err = finished(process, 60)
    assert process.returncode == 130
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_own_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("city,visitors\nRome,1\nOslo,2\nRome,3\n")
    found = verdict(demo(tmp_path, "--input", "cities.csv", "--topic", "visits", "--key", "city"))
    assert found["ok"] is True
    assert found["records"] == 3


def test_malformed_own_row_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": \n')
    process = demo(tmp_path, "--input", "rows.jsonl", "--topic", "rows")
    out, err = finished(process, 60)
    assert process.returncode == 1
    assert "line 2 of rows.jsonl is not valid JSON" in out + err
    assert "Traceback" not in out + err


def finish(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_kept_demo_is_read_from_another_process_and_ends_at_a_commit(tmp_path: Path) -> None:
    """A pipe after --keep ends, a second --keep is refused, the demo continues, and --stop leaves nothing."""
    (tmp_path / "cities.csv").write_text("city,visitors\nRome,1\nOslo,2\nRome,3\n")
    own_rows = ["--input", "cities.csv", "--topic", "visits", "--key", "city"]
    piped = subprocess.run(  # the shell waits for cat, and cat for everybody who could still write to it
        f"{shlex.join([*COMMAND, *own_rows, '--keep', '--json'])} | cat",
        shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    found = json.loads(piped.stdout or "{}")
    assert found.get("ok") is True, piped.stderr
    background = found["background"]
    try:
        assert stat.S_IMODE((tmp_path / ".kstreams/demo/background.json").stat().st_mode) == 0o600
        driver = psutil.Process(background["pid"])
        started = [driver, *driver.children(recursive=True)]
        directory = tmp_path / ".kstreams/demo/own/session"
        with connect(background["bootstrap_servers"], directory=directory, report=lambda line: None) as session:
            assert len(session.read("visits", n=None)) == 3
            session.produce("visits", [("Rome", {"city": "Rome", "visitors": 9})], key_serde=serdes.string, value_serde=serdes.json)
            app = session.attach(background["application"], own_input.build("visits"))
            query = f'SELECT key, value FROM "{own_input.COUNTS}"'
            settle(lambda: dict(app.sql(query).fetchall()) == {"Rome": 3, "Oslo": 1}, "the background application to continue counting")
        again = finish(tmp_path, *own_rows, "--keep")
        assert again.returncode == 1
        assert f"a background demo runs there: process {background['pid']}" in again.stderr
        assert "Hint: connect to it, or stop it: ./kstreams demo --stop" in again.stderr
    finally:
        stopped = finish(tmp_path, "--stop")
    assert stopped.returncode == 0, stopped.stderr
    assert "stopped own-input at a commit" in stopped.stdout
    assert [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []
    assert not (tmp_path / ".kstreams/demo").exists()
    twice = finish(tmp_path, "--stop")
    assert (twice.returncode, twice.stdout) == (0, f"no background demo runs in {tmp_path}/.kstreams/demo\n")


@pytest.mark.slow
def test_killed_command_takes_a_demo_with_it_that_is_not_ready_yet(tmp_path: Path) -> None:
    process = demo(tmp_path, "--keep")
    record = tmp_path / ".kstreams/demo/background.json"
    settle(lambda: (tmp_path / ".kstreams/demo/session/broker/broker.json").exists(), "the broker's start")
    driver = psutil.Process(json.loads(record.read_text())["pid"])
    process.kill()
    process.communicate()
    gone, alive = psutil.wait_procs([driver], timeout=60)
    assert not alive
