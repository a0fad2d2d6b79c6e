"""The main job as a user runs it: the command, killed and resumed, checks itself; nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(400)]


def demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    command = [sys.executable, "-m", "kstreams_repl.cli", "demo", "--json", *arguments]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    """Its output once it ended; it does not outlive the test."""
    try:
        return process.communicate(timeout=seconds)
    finally:
        process.kill()


def verdict(process: subprocess.Popen[str]) -> dict[str, object]:
    out, err = finished(process, 150)
    assert process.returncode == 0, (out + err)[-3000:]
    told: dict[str, object] = json.loads(out.splitlines()[-1])
    return told


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


def test_interrupted_demo_ends_quietly_and_leaves_nothing(tmp_path: Path) -> None:
    process = demo(tmp_path)
    wait_for_workers(process)
    process.send_signal(signal.SIGINT)
    out, err = finished(process, 60)
    assert process.returncode == 130
    assert "Traceback" not in out + err


def test_own_rows_are_counted(tmp_path: Path) -> None:
    (tmp_path / "cities.csv").write_text("city,visitors\nRome,1\nOslo,2\nRome,3\n")
    told = verdict(demo(tmp_path, "--input", "cities.csv", "--topic", "visits", "--key", "city"))
    assert told["ok"] is True
    assert told["records"] == 3


def test_malformed_own_row_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": \n')
    process = demo(tmp_path, "--input", "rows.jsonl", "--topic", "rows")
    out, err = finished(process, 60)
    assert process.returncode == 1
    assert "line 2 of rows.jsonl is no JSON" in out + err
    assert "Traceback" not in out + err
