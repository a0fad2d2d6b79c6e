"""Stores read as columns from a snapshot, in the process that writes or another, as the store itself would show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.errors import InvalidStateStoreError
from kstreams_repl.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.stores.engine.snapshot import LmdbSnapshot
from kstreams_repl.stores.snapshot_columns import StoreView
from kstreams_repl.topology.stores import StoreKind
from kstreams_repl.types import Windowed


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LmdbEnvironment]:
    environment = LmdbEnvironment(tmp_path / "disk", map_bytes=64 << 20)
    yield environment
    environment.close()


def seen(opened: Any, disk: LmdbEnvironment) -> Any:
    opened.store.flush()
    disk.commit({}, 7)
    with LmdbSnapshot(disk.path or "") as snapshot:
        columns = StoreView(opened.builder, snapshot).columns()
    assert columns.complete and columns.commit_id == 7
    return list(columns.rows())


def test_key_value_rows(open_kind: Any, disk: LmdbEnvironment) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, inside=disk)
    opened.store.put("b", (2, 20))
    opened.store.put("", (1, 10))
    assert seen(opened, disk) == [("", 1, 10), ("b", 2, 20)]
    with LmdbSnapshot(disk.path or "") as snapshot:
        view = StoreView(opened.builder, snapshot)
        assert view.get("b") == (2, 20) and view.get("x") is None
        raw = view.columns(raw=True, limit=1)
    assert (raw.keys, raw.values, raw.complete) == ([b""], [serdes.long.serialize(1)], False)


def test_window_rows_without_the_expired(open_kind: Any, disk: LmdbEnvironment) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_WINDOW, inside=disk, retention_ms=30, window_size_ms=10)
    for start in (0, 20, 40):
        opened.store.put("a", (start, start + 1), start)
    assert seen(opened, disk) == [("a", 20, 30, 20, 21), ("a", 40, 50, 40, 41)]
    assert [key.start for key, _ in opened.store.all()] == [20, 40]


def test_time_ordered_window_rows(open_kind: Any, disk: LmdbEnvironment) -> None:
    opened = open_kind(StoreKind.TIME_ORDERED_WINDOW, inside=disk, retention_ms=30, window_size_ms=10)
    for key, start in (("b", 10), ("a", 10), ("a", 9), ("a", 40)):
        opened.store.put(key, (1, start), start)
    assert seen(opened, disk) == [("a", 10, 20, 1, 10), ("b", 10, 20, 1, 10), ("a", 40, 50, 1, 40)]


def test_session_rows(open_kind: Any, disk: LmdbEnvironment) -> None:
    opened = open_kind(StoreKind.SESSION, inside=disk, retention_ms=30)
    opened.store.put(Windowed("a", 1, 5), 1)
    opened.store.put(Windowed("a", 10, 35), 2)
    assert seen(opened, disk) == [("a", 10, 35, 2)]


def test_versioned_rows_are_the_latest_versions(open_kind: Any, disk: LmdbEnvironment) -> None:
    opened = open_kind(StoreKind.VERSIONED, inside=disk, retention_ms=1000)
    opened.store.put("a", 1, 10)
    opened.store.put("a", 2, 20)
    assert seen(opened, disk) == [("a", 2, 20)]


def test_parked_and_buffered_rows(open_kind: Any, disk: LmdbEnvironment) -> None:
    opened = open_kind(StoreKind.OUTER_JOIN, inside=disk)
    opened.store.put(10, True, "b", 1)
    opened.store.put(10, True, "b", 2)
    opened.store.put(10, False, "z", 3)
    assert seen(opened, disk) == [("z", False, 3, 10), ("b", True, 1, 10), ("b", True, 2, 10)]


def test_a_windowed_store_has_no_single_row_per_key(open_kind: Any, disk: LmdbEnvironment) -> None:
    opened = open_kind(StoreKind.WINDOW, inside=disk, retention_ms=30, window_size_ms=10)
    disk.commit({}, 0)
    with LmdbSnapshot(disk.path or "") as snapshot, pytest.raises(InvalidStateStoreError):
        StoreView(opened.builder, snapshot).get("a")


@pytest.mark.parametrize("kind", [StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW])
def test_a_window_without_an_end_ends_with_the_last_time_there_is(open_kind: Any, disk: LmdbEnvironment, kind: StoreKind) -> None:
    opened = open_kind(kind, inside=disk, retention_ms=30, window_size_ms=2**63 - 1)
    opened.store.put("a", (1, 20), 5)
    assert seen(opened, disk) == [("a", 5, 2**63 - 1, 1, 20)]


def test_a_store_that_is_made_after_the_view_began_is_not_in_it(disk: LmdbEnvironment) -> None:
    """LMDB refuses its handle in an older transaction: a reader of an application that had just started failed with that."""
    disk.engine("early").put(b"a", b"1")
    disk.commit({}, 1)
    with LmdbSnapshot(disk.path or "") as snapshot, snapshot.transaction() as view:
        disk.engine("late").put(b"b", b"2")
        disk.commit({}, 2)
        for read in (view.columns, view.read, view.count):
            with pytest.raises(InvalidStateStoreError, match="no store 'late'"):
                read("late")
        assert view.columns("early") == ([b"a"], [b"1"], True)
    with LmdbSnapshot(disk.path or "") as snapshot, snapshot.transaction() as view:
        assert view.columns("late") == ([b"b"], [b"2"], True)
