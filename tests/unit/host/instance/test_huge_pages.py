"""Large pages are asked for where memory is, and nowhere else."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kstreams_repl.host.instance.process import huge_pages
from kstreams_repl.host.instance.process.huge_pages import _anonymous, use_huge_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


def test_all_anonymous_memory_is_asked_for() -> None:
    memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[0] = 1
    assert use_huge_pages(30) >= 6 << 20
    assert memory[0] == 1 and memory[-1] == 0
    memory.close()


def test_what_is_at_an_address_is_moved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []

    def madvise(address: int, size: int, advice: int) -> int:
        asked.append((address, advice))
        return 0

    monkeypatch.setattr(huge_pages, "_moved", set())
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(madvise=madvise))
    memory = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    use_huge_pages(30)
    use_huge_pages(30)
    memory.close()
    moved = [address for address, advice in asked if advice == huge_pages._COLLAPSE]
    assert len(moved) == len(set(moved)) >= 3


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
