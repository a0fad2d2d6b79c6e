"""The lock that keeps the loops of a slot apart, between real processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kstreams_repl.host.instance.control import slot_lock
from kstreams_repl.host.instance.control.slot_lock import LoopLock

HOLD = """
import sys, time
from pathlib import Path
from kstreams_repl.host.instance.control.slot_lock import LoopLock
lock = LoopLock(Path(sys.argv[1]), 3, 0)
print(lock.take(end_holder=False), flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the lock."""
    command = [sys.executable, "-c", HOLD, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "True\n"
            yield process
        finally:
            process.kill()


def test_a_holder_sees_that_it_is_wanted_and_the_other_has_it_when_it_lets_go(tmp_path: Path) -> None:
    first, second = LoopLock(tmp_path, 3, 0), LoopLock(tmp_path, 3, 0)
    assert first.take(end_holder=False)
    assert not first.wanted(1.0)
    got: list[bool] = []
    waiting = threading.Thread(target=lambda: got.append(second.take(end_holder=False)))
    waiting.start()
    now = 2.0
    while not first.wanted(now):
        now += 1.0
        time.sleep(0.001)
    assert not got
    first.release()
    waiting.join()
    assert got == [True]
    assert not second.wanted(now + 1.0)
    second.release()


def test_the_end_of_a_process_lets_go(tmp_path: Path) -> None:
    mine = LoopLock(tmp_path, 3, 0)
    with holder(tmp_path) as other:
        other.kill()
        assert mine.take(end_holder=False)
    mine.release()


def test_a_holder_that_does_not_leave_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_lock, "PATIENCE_SECONDS", 0.05)
    with holder(tmp_path) as other:
        assert not LoopLock(tmp_path, 3, 0).take(end_holder=False)
        assert other.poll() is None


def test_at_least_once_a_holder_that_does_not_leave_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_lock, "PATIENCE_SECONDS", 0.5)
    mine = LoopLock(tmp_path, 3, 0)
    with holder(tmp_path) as other:
        assert mine.take(end_holder=True)
        assert other.wait() == -9
    mine.release()


def test_other_slots_and_generations_are_apart(tmp_path: Path) -> None:
    locks = [LoopLock(tmp_path, 3, 0), LoopLock(tmp_path, 3, 1), LoopLock(tmp_path, 4, 0)]
    assert all(lock.take(end_holder=False) for lock in locks)
    for lock in locks:
        lock.release()


def test_without_a_directory_nothing_is_held(tmp_path: Path) -> None:
    lock = LoopLock(tmp_path / "gone", 3, 0)
    assert not lock.take(end_holder=False)
    assert not lock.wanted(1.0)
    lock.release()
