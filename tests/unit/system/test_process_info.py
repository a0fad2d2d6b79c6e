"""Processes are known by more than their ids, with ``/proc`` and, as on macOS, without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kstreams_repl.host.instance.process.executor_directory import executor_process
from kstreams_repl.host.instance.state.owner_token import end_process, is_alive, owner_token
from kstreams_repl.system import process_info
from kstreams_repl.system.process_info import boot_id, parent, start_time
from kstreams_repl.system.processes import ProcessMark


@pytest.fixture(params=["/proc", "psutil"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    kind: str = request.param
    if kind == "psutil":
        monkeypatch.setattr(process_info, "PROC", tmp_path / "absent")
    elif not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    return kind


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_has_a_start_time_and_a_parent_while_it_lives(system: str, child: subprocess.Popen[bytes]) -> None:
    began = start_time(child.pid)
    assert began and began == start_time(child.pid) != start_time(os.getpid())
    assert parent(child.pid) == os.getpid()
    assert executor_process(child.pid) == os.getpid()
    child.kill()
    child.wait()
    assert start_time(child.pid) == "" and parent(child.pid) is None
    assert executor_process(child.pid) == child.pid


def test_only_the_process_of_a_token_is_killed_for_it(system: str, child: subprocess.Popen[bytes]) -> None:
    """A token without a start time fits no process. It fitted every one where there was no /proc, and that one was killed."""
    generation, slot, _, _, number = owner_token(1, 0).split("/")
    own = f"{generation}/{slot}/{child.pid}/{start_time(child.pid)}/{number}"
    for token in (f"{generation}/{slot}/{child.pid}//{number}", f"{generation}/{slot}/{child.pid}/1/{number}", owner_token(1, 0)):
        assert not is_alive(token) and not end_process(token)
    assert child.poll() is None
    assert is_alive(own) and end_process(own)
    child.wait(10)
    assert not is_alive(own)


def test_a_mark_fits_one_process_until_it_ends(system: str, child: subprocess.Popen[bytes]) -> None:
    mark = ProcessMark.of(child.pid)
    assert mark.is_alive and mark == ProcessMark.of(child.pid) != ProcessMark.of(os.getpid())
    for born in ("", start_time(os.getpid()), psutil.Process(child.pid).create_time()):  # the last as older versions wrote it
        ProcessMark(child.pid, born).ask_to_end()  # type: ignore[arg-type]
    assert child.poll() is None
    mark.ask_to_end()
    assert mark.wait(10)  # a zombie does not run
    child.wait()
    assert not mark.is_alive and not ProcessMark.of(child.pid).is_alive


def test_a_mark_of_another_boot_fits_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    mark = ProcessMark.own()
    monkeypatch.setattr(process_info, "boot_id", lambda: b"another")
    assert not mark.is_alive


def test_the_boot_has_an_id_everywhere(system: str) -> None:
    assert boot_id() and boot_id() == boot_id()
