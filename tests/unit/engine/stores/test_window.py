"""Window stores: bounds, order, expiry by segment, duplicates; the same in every mode."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.engine.stores.layers.segments import segment_interval_ms
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.system.types import ValueAndTimestamp, Windowed

MODES: list[dict[str, Any]] = [{}, {"suppress": True}]
MINUTE = 60_000


def test_segments_are_half_the_retention_and_at_least_a_minute() -> None:
    assert [segment_interval_ms(retention) for retention in (0, 100_000, 200_000)] == [MINUTE, MINUTE, 100_000]


@pytest.mark.parametrize("mode", MODES)
def test_fetch_bounds_are_inclusive_and_keys_with_a_common_prefix_do_not_mix(open_kind: Any, mode: dict[str, Any]) -> None:
    store = open_kind(StoreKind.WINDOW, retention_ms=10 * MINUTE, window_size_ms=10, **mode).store
    for key, start in (("a", 0), ("a", 10), ("a", 70_000), ("aa", 10), ("a\x00", 10), ("b", 10)):
        store.put(key, start, start)
    assert list(store.fetch("a", 0, 70_000)) == [(0, 0), (10, 10), (70_000, 70_000)]
    assert list(store.fetch("a", 1, 69_999)) == [(10, 10)]
    assert list(store.backward_fetch("a", 0, 70_000)) == [(70_000, 70_000), (10, 10), (0, 0)]
    assert store.fetch("a", 10) == 10 and store.fetch("a", 11) is None
    assert list(store.fetch("a", 20, 10)) == [] and list(store.fetch("a", -50, -1)) == []


@pytest.mark.parametrize("mode", MODES)
def test_ranges_go_by_segment_then_key_then_time(open_kind: Any, mode: dict[str, Any]) -> None:
    store = open_kind(StoreKind.WINDOW, retention_ms=10 * MINUTE, window_size_ms=10, **mode).store
    interval = segment_interval_ms(10 * MINUTE)
    for key, start in (("b", 0), ("a", interval), ("a", 20), ("b", 10), ("c", 5)):
        store.put(key, 1, start)
    rows = [("a", 20), ("b", 0), ("b", 10), ("c", 5), ("a", interval)]
    assert [(key.key, key.start) for key, _ in store.all()] == rows
    assert [(key.key, key.start) for key, _ in store.backward_all()] == rows[::-1]
    assert [(key.key, key.start) for key, _ in store.fetch_all(5, 20)] == [("a", 20), ("b", 10), ("c", 5)]
    assert [(key.key, key.start) for key, _ in store.fetch_range("a", "b", 0, 15)] == [("b", 0), ("b", 10)]
    up_to_b = [("a", 20), ("b", 0), ("b", 10), ("a", interval)]
    assert [(key.key, key.start) for key, _ in store.fetch_range(None, "b", 0, interval)] == up_to_b
    assert [(key.key, key.start) for key, _ in store.backward_fetch_range("b", None, 0, 15)] == [("c", 5), ("b", 10), ("b", 0)]


@pytest.mark.parametrize("mode", [*MODES, {"cache_bytes": 100_000, "exact": False, "suppress": True}])
def test_reads_hide_what_is_older_than_the_retention(open_kind: Any, mode: dict[str, Any]) -> None:
    store = open_kind(StoreKind.TIMESTAMPED_WINDOW, retention_ms=30, window_size_ms=10, **mode).store
    for start in (0, 10, 30, 31, 60):
        store.put("a", (start, start), start)
    assert [start for start, _ in store.fetch("a", 0, 100)] == [31, 60]
    assert store.fetch("a", 30) is None and store.fetch("a", 31) == ValueAndTimestamp(31, 31)
    assert [key for key, _ in store.all()] == [Windowed("a", 31, 41), Windowed("a", 60, 70)]


@pytest.mark.parametrize("mode", MODES)
def test_a_put_is_refused_only_when_its_segment_is_dead(open_kind: Any, mode: dict[str, Any]) -> None:
    opened = open_kind(StoreKind.WINDOW, retention_ms=MINUTE, window_size_ms=10, **mode)
    store = opened.store
    store.put("a", 1, 2 * MINUTE)
    store.put("a", 2, MINUTE)
    assert opened.dropped == []
    store.put("a", 3, MINUTE - 1)
    assert opened.dropped == ["expired"]
    store.put("a", 4, 10 * MINUTE)
    store.flush()
    opened.environment.commit({}, 0)
    assert [key.start for key, _ in store.all()] == [10 * MINUTE]
    assert len(list(opened.environment.engine("st").range())) == 1


@pytest.mark.parametrize("mode", MODES)
def test_duplicates_are_kept_in_arrival_order_and_null_is_only_logged(open_kind: Any, mode: dict[str, Any]) -> None:
    opened = open_kind(StoreKind.WINDOW, retention_ms=MINUTE, window_size_ms=10, retain_duplicates=True, **mode)
    for value in (3, 1, None, 2):
        opened.store.put("a", value, 5)
    assert list(opened.store.fetch("a", 0, 10)) == [(5, 3), (5, 1), (5, 2)]
    opened.store.flush()
    keys = {key.hex() for key, _, _ in opened.log()}
    assert keys == {"6100000000000000050000000" + str(number) for number in (1, 2, 3, 4)}


def test_the_sequence_of_duplicates_goes_on_after_a_restart(open_kind: Any, environment: Any) -> None:
    described = {"retention_ms": MINUTE, "window_size_ms": 10, "retain_duplicates": True}
    first = open_kind(StoreKind.WINDOW, **described)
    first.store.put("a", 1, 5)
    environment.commit({}, 0)
    again = open_kind(StoreKind.WINDOW, **described)
    again.store.put("a", 2, 5)
    assert list(again.store.fetch("a", 0, 10)) == [(5, 1), (5, 2)]


def test_observed_time_and_segments_are_known_after_a_restart(open_kind: Any, environment: Any) -> None:
    described = {"retention_ms": 30, "window_size_ms": 10}
    first = open_kind(StoreKind.WINDOW, **described)
    for start in (0, 40):
        first.store.put("a", start, start)
    environment.commit({}, 0)
    again = open_kind(StoreKind.WINDOW, **described)
    assert list(again.store.fetch("a", 0, 100)) == [(40, 40)]


@pytest.mark.parametrize("mode", MODES)
def test_time_ordered_windows_come_by_time_and_log_the_ordinary_key(open_kind: Any, mode: dict[str, Any]) -> None:
    opened = open_kind(StoreKind.TIME_ORDERED_WINDOW, retention_ms=30, window_size_ms=10, **mode)
    store = opened.store
    for key, start in (("b", 0), ("a", 10), ("a", 0)):
        store.put(key, (1, start), start)
    assert [(key.key, key.start) for key, _ in store.fetch_all(0, 100)] == [("a", 0), ("b", 0), ("a", 10)]
    assert store.fetch("a", 10) == (1, 10) and list(store.fetch("a", 0, 5)) == [(0, (1, 0))]
    store.flush()
    assert {key.hex() for key, _, _ in opened.log()} == {
        "61000000000000000000000000",
        "61000000000000000a00000000",
        "62000000000000000000000000",
    }
    store.put("c", (1, 31), 31)
    assert [(key.key, key.start) for key, _ in store.all()] == [("a", 10), ("c", 31)]
    store.put("c", (1, 40), 40)
    assert [(key.key, key.start) for key, _ in store.all()] == [("a", 10), ("c", 31), ("c", 40)]
