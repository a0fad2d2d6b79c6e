"""Cleanup removes the state that nobody owns, and only that."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.state.state_cleanup import clean, discard_unused, opening

DELAY = 600.0
HANG = 20.0
HOLD_IT_OPEN = """
import sys
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
environment = LmdbEnvironment(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def state_of(folder: Path, task: str, *, age: float) -> Path:
    """A task's directory with an environment, last written so many seconds ago."""
    path = folder / task
    LmdbEnvironment(path).close()
    aged(path, age)
    return path


def aged(path: Path, age: float) -> None:
    written = time.time() - age
    for part in (path / "data.mdb", path):
        if part.exists():
            os.utime(part, (written, written))


def test_state_that_is_unowned_for_the_delay_is_removed(tmp_path: Path) -> None:
    old, fresh = state_of(tmp_path, "0_0", age=DELAY + 1), state_of(tmp_path, "0_1", age=DELAY - 60)
    assert clean(tmp_path, (), DELAY) == ["0_0"]
    assert not old.exists() and fresh.exists()


def test_state_of_the_plan_stays_whatever_its_age(tmp_path: Path) -> None:
    path = state_of(tmp_path, "0_0", age=10 * DELAY)
    assert clean(tmp_path, {"0_0"}, DELAY) == []
    assert path.exists()


def test_what_is_no_task_directory_stays(tmp_path: Path) -> None:
    for name in ("held.json", "0_0.bak", "control", "x_1"):
        (tmp_path / name).mkdir()
        aged(tmp_path / name, 10 * DELAY)
    assert clean(tmp_path, (), DELAY) == []
    assert {path.name for path in tmp_path.iterdir()} >= {"held.json", "0_0.bak", "control", "x_1"}


def test_what_a_crash_left_half_removed_goes_too(tmp_path: Path) -> None:
    left = tmp_path / ".0_0.0123abcd"
    left.mkdir()
    (left / "data.mdb").write_bytes(b"x")
    aged(left, DELAY + 1)
    assert clean(tmp_path, (), DELAY) == []
    assert not left.exists()


def test_state_open_in_this_process_stays(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "0_0")
    try:
        aged(tmp_path / "0_0", 10 * DELAY)
        assert clean(tmp_path, (), DELAY) == []
    finally:
        environment.close()
    aged(tmp_path / "0_0", 10 * DELAY)
    assert clean(tmp_path, (), DELAY) == ["0_0"]


def test_state_open_in_another_process_stays_until_that_ends(tmp_path: Path) -> None:
    path = state_of(tmp_path, "0_0", age=0)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD_IT_OPEN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        aged(path, 10 * DELAY)
        assert clean(tmp_path, (), DELAY) == []
        process.kill()
    aged(path, 10 * DELAY)
    assert clean(tmp_path, (), DELAY) == ["0_0"]


def test_nothing_is_removed_while_somebody_opens_an_environment(tmp_path: Path) -> None:
    state_of(tmp_path, "0_0", age=10 * DELAY)
    with opening(tmp_path):
        assert clean(tmp_path, (), DELAY) == []
    assert clean(tmp_path, (), DELAY) == ["0_0"]


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert clean(tmp_path / "none", (), DELAY) == []
    assert not (tmp_path / "none").exists()


@pytest.fixture
def calls() -> list[float]:
    return []


def test_a_periodic_thread_calls_until_it_is_forgotten_and_ends_then(calls: list[float]) -> None:
    from kstreams_repl.host.instance.polling.background_threads import PeriodicThread

    thread, enough = PeriodicThread("test-periodic"), threading.Event()

    def call() -> None:
        calls.append(time.monotonic())
        if len(calls) == 3:
            enough.set()
        if len(calls) == 2:
            raise OSError("a call that fails ends nothing")

    thread.watch("me", 0.001, call)
    assert enough.wait(HANG)
    thread.forget("me")
    made = len(calls)
    deadline = time.monotonic() + HANG
    while thread.alive:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert len(calls) == made


def test_a_snapshot_that_was_being_fetched_when_its_process_died_goes_too(tmp_path: Path) -> None:
    left, new = tmp_path / ".0_0.incoming-0123abcd", tmp_path / ".0_1.incoming-0123abcd"
    for path, age in ((left, DELAY + 1), (new, DELAY - 60)):
        path.mkdir()
        (path / "data.mdb").write_bytes(b"x")
        aged(path, age)
    assert clean(tmp_path, (), DELAY) == []
    assert not left.exists() and new.exists()


def test_an_environment_that_is_open_or_being_opened_is_not_discarded(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "0_0")
    assert not discard_unused(tmp_path / "0_0")
    environment.close()
    with opening(tmp_path):
        assert not discard_unused(tmp_path / "0_0")
    assert discard_unused(tmp_path / "0_0")
    assert [path.name for path in tmp_path.iterdir()] == [".cleanup.lock"]
