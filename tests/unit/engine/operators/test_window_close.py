"""Emitting windows when they close, across a restart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kstreams_repl.engine.operators.aggregates.window_close import SessionCloser, WindowCloser
from kstreams_repl.system.types import Windowed


class _Windows:
    """A window store that holds the same rows whatever was emitted."""

    def __init__(self, starts: list[int], size: int) -> None:
        self._rows = [(Windowed("a", start, start + size), (start, start)) for start in starts]
        self.reads = 0

    def fetch_all(self, first: int, last: int) -> Iterator[tuple[Windowed, Any]]:
        self.reads += 1
        return (row for row in self._rows if first <= row[0].start <= last)

    def find_closed(self, first: int, last: int) -> Iterator[tuple[Windowed, Any]]:
        return ((key, start) for key, (start, _) in self._rows if first <= key.end <= last)


class _Node:
    def __init__(self, metadata: dict[str, int]) -> None:
        self.metadata = metadata

    def on_init(self, callback: Any) -> None:
        callback()


def _closer(store: _Windows, metadata: dict[str, int], *, step: int) -> tuple[WindowCloser, list[int]]:
    emitted: list[int] = []
    node: Any = _Node(metadata)
    return WindowCloser(node, "w", store, lambda key, *rest: emitted.append(key.start), reach_ms=10, step_ms=step), emitted


def _advance(closer: WindowCloser, close: int) -> None:
    if close >= closer.next_close:
        closer.emit(close, [])


@pytest.mark.parametrize("step", [1, 5, 10])
def test_every_window_is_emitted_exactly_once(step: int) -> None:
    starts = list(range(0, 60, step))
    closer, emitted = _closer(_Windows(starts, 10), {}, step=step)
    for close in (0, 3, 9, 10, 10, 14, 17, 31, 32, 69):
        _advance(closer, close)
    assert emitted == starts


def test_the_store_is_read_only_when_a_window_may_have_closed() -> None:
    store = _Windows([0, 10, 20], 10)
    closer, _ = _closer(store, {}, step=10)
    for close in range(31):
        _advance(closer, close)
    assert store.reads == 3


def test_what_was_emitted_before_a_restart_is_not_emitted_again() -> None:
    store, metadata = _Windows([0, 10, 20], 10), {}
    before, emitted_before = _closer(store, metadata, step=10)
    _advance(before, 25)
    after, emitted_after = _closer(store, dict(metadata), step=10)
    _advance(after, 25)
    _advance(after, 30)
    assert (emitted_before, emitted_after) == ([0, 10], [20])


def test_sessions_are_emitted_once_when_their_end_is_behind() -> None:
    store, metadata, emitted = _Windows([0, 5, 20], 10), {}, []
    node: Any = _Node(metadata)
    closer = SessionCloser(node, "w", store, lambda key, *rest: emitted.append(key.end))
    for close in (-5, 10, 11, 16, 16, 30, 31):
        closer.emit(close, [])
    assert emitted == [10, 15, 30]
    assert metadata == {"w": 31}
