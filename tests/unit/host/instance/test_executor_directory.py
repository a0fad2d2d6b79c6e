"""Which directory an executor keeps its stores in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kstreams_repl.host.instance.process.executor_directory import executor_process, take_directory
from kstreams_repl.system.errors import InvalidNameError


def test_an_executor_finds_the_place_it_holds(tmp_path: Path) -> None:
    assert take_directory(tmp_path, "app", os.getpid()) == take_directory(tmp_path, "app", os.getpid())


def test_two_living_executors_have_two_places(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        mine, its = take_directory(tmp_path, "app", os.getpid()), take_directory(tmp_path, "app", other.pid)
        assert mine != its and take_directory(tmp_path, "app", os.getpid()) == mine
    finally:
        other.communicate(b"\n")


def test_the_place_of_an_executor_that_is_gone_is_taken_over(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    its = take_directory(tmp_path, "app", other.pid)
    other.communicate(b"\n")
    assert take_directory(tmp_path, "app", os.getpid()) == its


def test_no_name_leads_out_of_the_state_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidNameError):
        take_directory(tmp_path / "state", "../elsewhere", os.getpid())
    assert not list(tmp_path.iterdir())


def test_the_executor_is_the_parent_of_the_parent() -> None:
    script = "import os; print(os.getppid())"
    child = subprocess.run(["sh", "-c", f"'{sys.executable}' -c '{script}'; :"], capture_output=True, text=True, check=True)
    assert child.stdout.strip().isdigit()
    assert executor_process(os.getpid()) == os.getppid()
