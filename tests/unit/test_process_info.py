"""Processes are known by more than their ids, with ``/proc`` and, as on macOS, without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kstreams_repl import process_info
from kstreams_repl.instance.executor_directory import executor_process
from kstreams_repl.instance.state.owner_token import end_process, is_alive, owner_token
from kstreams_repl.process_info import boot_id, parent, start_time


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


def test_the_boot_has_an_id_everywhere(system: str) -> None:
    assert boot_id() and boot_id() == boot_id()
