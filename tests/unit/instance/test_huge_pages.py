"""Large pages are asked for where memory is, and nowhere else."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import pytest

from kstreams_repl.instance.huge_pages import _anonymous, use_huge_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


def test_all_anonymous_memory_is_asked_for() -> None:
    memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[0] = 1
    assert use_huge_pages(30) >= 6 << 20
    assert memory[0] == 1 and memory[-1] == 0
    memory.close()


def test_memory_of_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(8 << 20))
    before = sum(end - begin for begin, end in _anonymous())
    with (tmp_path / "f").open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        assert sum(end - begin for begin, end in _anonymous()) <= before
        assert len(memory) == 8 << 20


def test_another_system_than_linux_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("madvise has other meanings there"))
    assert use_huge_pages(30) == 0
