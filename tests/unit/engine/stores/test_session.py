"""Session stores: found by end and start, by key, by time; removed; expired."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.system.types import Windowed

MODES: list[dict[str, Any]] = [{}, {"suppress": True}, {"cache_bytes": 100_000}, {"cache_bytes": 100_000, "exact": False, "suppress": True}]


@pytest.mark.parametrize("mode", MODES)
def test_sessions_are_found_by_end_and_start(open_kind: Any, mode: dict[str, Any]) -> None:
    store = open_kind(StoreKind.SESSION, retention_ms=600_000, **mode).store
    sessions = [Windowed("a", 0, 5), Windowed("a", 10, 20), Windowed("a", 12, 20), Windowed("a", 400_000, 400_000), Windowed("aa", 10, 20)]
    for number, session in enumerate(sessions):
        store.put(session, number)
    assert [window for window, _ in store.find_sessions("a", 5, 12)] == sessions[:3]
    assert [window for window, _ in store.find_sessions("a", 6, 11)] == sessions[1:2]
    assert [window for window, _ in store.backward_find_sessions("a", 0, 400_000)] == sessions[3::-1]
    assert [window for window, _ in store.fetch("a")] == sessions[:4]
    assert [window for window, _ in store.all()] == [*sessions[:3], sessions[4], sessions[3]]
    assert [window for window, _ in store.find_sessions_range("a", "a", 0, 11)] == sessions[:2]
    assert store.fetch_session("a", 12, 20) == 2 and store.fetch_session("a", 11, 20) is None
    store.remove(sessions[1])
    assert [window for window, _ in store.find_sessions("a", 6, 20)] == [sessions[2]]


def test_put_and_remove_log_end_before_start(open_kind: Any) -> None:
    opened = open_kind(StoreKind.SESSION, retention_ms=100)
    opened.context.timestamp = 20
    opened.store.put(Windowed("a", 10, 20), 1)
    opened.store.remove(Windowed("a", 10, 20))
    assert opened.log() == [
        (bytes.fromhex("610000000000000014000000000000000a"), bytes.fromhex("0000000000000001"), 20),
        (bytes.fromhex("610000000000000014000000000000000a"), None, 20),
    ]


@pytest.mark.parametrize("mode", [mode for mode in MODES if not mode.get("cache_bytes") or not mode.get("exact", True)])
@pytest.mark.parametrize("flushed", [False, True])
def test_reads_hide_sessions_that_ended_before_the_retention(open_kind: Any, mode: dict[str, Any], flushed: bool) -> None:
    store = open_kind(StoreKind.SESSION, retention_ms=30, **mode).store
    for end in (10, 20, 21, 50):
        store.put(Windowed("a", 0, end), end)
        if flushed:
            store.flush()
    assert [window.end for window, _ in store.fetch("a")] == [window.end for window, _ in store.all()] == [21, 50]
    assert store.fetch_session("a", 0, 20) is None and store.fetch_session("a", 0, 21) == 21


def test_closed_sessions_come_by_end_start_and_key(open_kind: Any) -> None:
    store = open_kind(StoreKind.SESSION, retention_ms=30, options={"time_ordered": True}).store
    for session in (Windowed("b", 0, 10), Windowed("a", 5, 10), Windowed("a", 0, 9), Windowed("a", 20, 40)):
        store.put(session, 1)
    assert [window for window, _ in store.find_closed(9, 20)] == [Windowed("b", 0, 10), Windowed("a", 5, 10)]
    assert [window for window, _ in store.find_closed(0, 40)][-1] == Windowed("a", 20, 40)
