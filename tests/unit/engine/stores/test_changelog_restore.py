"""A changelog put back into an empty environment gives the rows that made it, for every kind of store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.engine.runtime.calls.pending_rows import PendingRow
from kstreams_repl.engine.stores.engine import lmdb_engine
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.kinds import lru
from kstreams_repl.engine.stores.log.changelog_restore import Restorer
from kstreams_repl.engine.stores.log.changelog_rows import logged_row, row_key
from kstreams_repl.engine.topology.store_builder import HISTORY_SUFFIX, KINDS_WITH_HEADERS, StoreBuilder, StoreKind
from kstreams_repl.system.errors import SerializationError, TaskCorruptedError
from kstreams_repl.system.types import RecordBatch, Windowed

CONTEXT = ContextSnapshot("in", 0, 1, 5, [("h", b"x")])

WINDOWS: dict[str, Any] = {"retention_ms": 600_000, "window_size_ms": 10}
CASES: list[tuple[StoreKind, dict[str, Any], list[tuple[Any, ...]]]] = [
    (StoreKind.KEY_VALUE, {}, [("put", "a", 1), ("put", "b", 2), ("put", "a", None), ("put", "", 3), ("put", "k" * 600, 4)]),
    (StoreKind.TIMESTAMPED_KEY_VALUE, {}, [("put", "a", (1, 5)), ("put", "a", (2, 3)), ("put", "b", (1, 1)), ("put", "b", None)]),
    (StoreKind.LRU, {"max_entries": 2}, [("put", "a", 1), ("put", "b", 2), ("put", "c", 3)]),
    (StoreKind.WINDOW, WINDOWS, [("put", "a", 1, 0), ("put", "a", 2, 400_000), ("put", "a", None, 0)]),
    (StoreKind.WINDOW, {**WINDOWS, "retain_duplicates": True}, [("put", "a", 1, 0), ("put", "a", 2, 0), ("put", "a", None, 0)]),
    (StoreKind.TIMESTAMPED_WINDOW, WINDOWS, [("put", "a", (1, 7), 0), ("put", "b", (1, 9), 400_000)]),
    (StoreKind.TIME_ORDERED_WINDOW, WINDOWS, [("put", "a", (1, 7), 0), ("put", "b", (1, 9), 10)]),
    (
        StoreKind.SESSION,
        {"retention_ms": 600_000},
        [("put", Windowed("a", 0, 5), 1), ("remove", Windowed("a", 0, 5)), ("put", Windowed("a", 0, 400_000), 2)],
    ),
    (
        StoreKind.VERSIONED,
        {"retention_ms": 10_000},
        [("put", "a", 1, 10), ("put", "a", 2, 5), ("put", "a", None, 20), ("put", "b", 3, 15_000)],
    ),
    (StoreKind.OUTER_JOIN, {}, [("put", 5, True, "a", 1), ("put", 5, True, "a", 2), ("put", 6, False, "b", 3), ("remove", 6, False, "b")]),
    (StoreKind.SUPPRESS_BUFFER, {}, [("put", 5, "a", 1, None, CONTEXT), ("put", 6, "b", 2, 1, CONTEXT), ("evict_first", lambda *_: None)]),
    (StoreKind.JOIN_GRACE_BUFFER, {}, [("put", 5, "a", 1, CONTEXT), ("put", 7, "b", 2, CONTEXT), ("evict_until", 6, lambda *_: None)]),
    (StoreKind.SUBSCRIPTION, {}, [("put", b"\x00\x00\x00\x01fa", (1, 5)), ("put", b"\x00\x00\x00\x01fb", (2, 5))]),
]


def batch_of(sent: list[tuple[Any, ...]], first_offset: int = 0) -> RecordBatch:
    return RecordBatch(
        [record[0] for record in sent],
        [record[1] for record in sent],
        [record[2] if record[2] is not None else 0 for record in sent],
        list(range(first_offset, first_offset + len(sent))),
        [record[3] for record in sent],
    )


@pytest.mark.parametrize(("kind", "described", "calls"), CASES, ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)])
@pytest.mark.parametrize("batch_size", [1, 100])
def test_a_replayed_changelog_gives_the_same_rows(
    open_kind: Any, tmp_path: Path, kind: StoreKind, described: dict[str, Any], calls: list[tuple[Any, ...]], batch_size: int
) -> None:
    original = open_kind(kind, **described)
    for name, *arguments in calls:
        getattr(original.store, name)(*arguments)
        original.store.flush()
    original.environment.commit({}, 0)
    restored = LmdbEnvironment(tmp_path / "restored", map_bytes=64 << 20)
    reader = open_kind(kind, inside=restored, **described)  # open before the restore: it must see what comes
    restorer = Restorer(original.builder, restored, "app-st-changelog-0")
    for start in range(0, len(original.sent), batch_size):
        restorer.apply(batch_of(original.sent[start : start + batch_size], start))
    restorer.finish(len(original.sent) + 3)
    for suffix in ("", HISTORY_SUFFIX) if kind is StoreKind.VERSIONED else ("",):
        assert list(restored.engine("st" + suffix).range()) == list(original.environment.engine("st" + suffix).range())
    for attribute in ("st/observed-time", "st/sequence"):
        assert restored.attribute(attribute) == original.environment.attribute(attribute)
    assert restored.positions["app-st-changelog-0"] == len(original.sent) + 3
    if hasattr(reader.store, "all") and kind is not StoreKind.LRU:
        assert list(reader.store.all()) == list(original.store.all())
    if kind is StoreKind.SUPPRESS_BUFFER:
        assert reader.store.record_count() == original.store.record_count() == 1
    restored.close()


def test_expired_windows_are_left_out() -> None:
    environment = MemoryEnvironment()
    builder = StoreBuilder("st", StoreKind.WINDOW, retention_ms=60_000, window_size_ms=10)
    keys = [b"a" + start.to_bytes(8, "big") + bytes(4) for start in (0, 1_000_000)]
    Restorer(builder, environment, "c-0").apply(RecordBatch(list(keys), [b"1", b"2"], [0, 0], [0, 1]))
    assert [value for _, value in environment.engine("st").range()] == [b"2"]


def test_records_without_a_key_are_skipped_and_the_position_moves_on() -> None:
    environment = MemoryEnvironment()
    builder = StoreBuilder("st", StoreKind.TIMESTAMPED_KEY_VALUE)
    Restorer(builder, environment, "in-0").apply(RecordBatch([b"a", None], [b"1", b"2"], [3, 4], [7, 9]))
    assert list(environment.engine("st").range()) == [(b"a", (3).to_bytes(8, "big") + b"1")]
    assert environment.positions["in-0"] == 10


def test_a_buffer_of_an_old_format_is_refused() -> None:
    builder = StoreBuilder("st", StoreKind.SUPPRESS_BUFFER)
    with pytest.raises(TaskCorruptedError, match="expected buffer format 3"):
        Restorer(builder, MemoryEnvironment(), "c-0").apply(RecordBatch([b"a"], [b"x" * 60], [0], [0], [[("v", b"\x01")]]))


def test_stores_that_are_not_persistent_are_restored_into_memory(tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path, map_bytes=64 << 20)
    builder = StoreBuilder("st", StoreKind.KEY_VALUE, value_serde=serdes.long, persistent=False)
    Restorer(builder, environment, "c-0").apply(RecordBatch([b"a"], [b"1"], [0], [0]))
    assert environment.engine("st", persistent=False).get(b"a") == b"1" and "c-0" not in environment.positions
    environment.close()


@pytest.mark.parametrize("suppress", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [1, 100])
def test_a_restored_lru_store_drops_what_was_not_written_for_longest(
    open_kind: Any, tmp_path: Path, suppress: bool, persistent: bool, batch_size: int
) -> None:
    original = open_kind(StoreKind.LRU, max_entries=3, persistent=persistent, suppress=suppress)
    for key in ("x", "z", "y", "b", "a", "z"):
        original.store.put(key, 1)
    original.store.flush()
    restored = LmdbEnvironment(tmp_path / "restored", map_bytes=64 << 20)
    restorer = Restorer(original.builder, restored, "app-st-changelog-0")
    for start in range(0, len(original.sent), batch_size):
        restorer.apply(batch_of(original.sent[start : start + batch_size], start))
    restorer.finish(len(original.sent))
    reader = open_kind(StoreKind.LRU, max_entries=3, persistent=persistent, inside=restored).store
    reader.put("c", 1)
    assert [key for key, _ in reader.all()] == ["a", "c", "z"]
    restored.commit({}, 1)
    reader.put("d", 1)
    assert [key for key, _ in reader.all()] == ["c", "d", "z"]
    restored.close()


def test_of_a_large_lru_store_no_order_is_saved(open_kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be written anew with every commit."""
    monkeypatch.setattr(lru, "MOST_SAVED", 2)
    environment = LmdbEnvironment(tmp_path / "large", map_bytes=64 << 20)
    store = open_kind(StoreKind.LRU, max_entries=3, inside=environment).store
    for number, key in enumerate(("z", "y", "a")):
        store.put(key, 1)
        environment.commit({}, number)
        assert (environment.attribute("st" + lru.ORDER) is None) == (number == 2)
    environment.close()


def test_an_lru_store_on_the_disk_has_its_order_again_after_a_restart_and_a_rollback(open_kind: Any, tmp_path: Path) -> None:
    environment = LmdbEnvironment(tmp_path / "here", map_bytes=64 << 20)
    store = open_kind(StoreKind.LRU, max_entries=3, inside=environment).store
    for key in ("z", "y", "a"):
        store.put(key, 1)
    assert store.get("z") == 1
    environment.commit({}, 1)
    store.put("q", 1)
    environment.rollback()
    assert list(store._order) == [b"y", b"a", b"z"]
    environment.close()
    environment = LmdbEnvironment(tmp_path / "here", map_bytes=64 << 20)
    store = open_kind(StoreKind.LRU, max_entries=3, inside=environment).store
    store.put("b", 1)
    assert [key for key, _ in store.all()] == ["a", "b", "z"]
    environment.close()


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW, StoreKind.SESSION])
@pytest.mark.parametrize("persistent", [True, False])
def test_a_copy_that_follows_its_log_keeps_no_more_windows_than_the_store(
    open_kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: StoreKind, persistent: bool
) -> None:
    """A standby copy kept every window there ever was, until its disk was full."""
    monkeypatch.setattr(lmdb_engine, "DELETIONS_PER_COMMIT", 3)
    described = {"retention_ms": 600_000, **({} if kind is StoreKind.SESSION else {"window_size_ms": 10})}
    original = open_kind(kind, **described)
    copied = LmdbEnvironment(tmp_path / "copy", map_bytes=64 << 20)
    restorer = Restorer(replace(original.builder, persistent=persistent), copied, "app-st-changelog-0")
    for number in range(60):
        at = number * 100_000
        for key in "ab":
            if kind is StoreKind.SESSION:
                original.store.put(Windowed(key, at, at), 1)
            else:
                original.store.put(key, 1 if kind is StoreKind.WINDOW else (1, at), at)
        original.store.flush()
        original.environment.commit({}, number)
        restorer.apply(batch_of(original.sent[2 * number :], 2 * number))
    engine = copied.engine("st", persistent=persistent)
    assert list(engine.range()) == list(original.environment.engine("st").range())
    assert engine.approximate_count() == original.environment.engine("st").approximate_count() < 30
    copied.close()


@pytest.mark.parametrize(("kind", "described", "calls"), CASES, ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)])
def test_what_anybody_may_have_written_into_a_changelog_is_restored_or_refused_with_its_offset(
    open_kind: Any, kind: StoreKind, described: dict[str, Any], calls: list[tuple[Any, ...]]
) -> None:
    """A short key was a bare struct.error, and of 8 bytes in a session store a wrong time; a cut list lost bytes without a word."""
    original = open_kind(kind, **described)
    for name, *arguments in calls:
        getattr(original.store, name)(*arguments)
        original.store.flush()
    key, value, timestamp, headers = next(record for record in original.sent if record[1] is not None)[:4]

    def restore(bad_key: bytes, bad_value: bytes) -> TaskCorruptedError | None:
        sent = [(key, value, timestamp, headers), (bad_key, bad_value, timestamp, headers)]
        try:
            Restorer(original.builder, MemoryEnvironment(), "app-st-changelog-3").apply(batch_of(sent, 40))
        except TaskCorruptedError as error:
            assert (error.topic, error.partition, error.offset) == ("app-st-changelog", 3, 41) and error.hint
            return error
        return None

    for size in range(len(value)):
        restore(key, value[:size])
    for size in range(len(key)):
        found = restore(key[:size], value)
        if kind in _TIMES_IN_KEYS and size < _TIMES_IN_KEYS[kind]:
            assert found is not None
    if kind in (StoreKind.SUPPRESS_BUFFER, StoreKind.JOIN_GRACE_BUFFER, StoreKind.OUTER_JOIN):
        assert all(restore(key, value[:size]) for size in range(5, len(value) - 9))

    @settings(max_examples=60, deadline=None)
    @given(st.binary(max_size=40), st.binary(max_size=80))
    def any_bytes(bad_key: bytes, bad_value: bytes) -> None:
        restore(bad_key, bad_value)

    any_bytes()


_TIMES_IN_KEYS = {
    StoreKind.WINDOW: 12, StoreKind.TIMESTAMPED_WINDOW: 12, StoreKind.TIME_ORDERED_WINDOW: 12, StoreKind.SESSION: 16,
    StoreKind.OUTER_JOIN: 9, StoreKind.JOIN_GRACE_BUFFER: 13,
}  # fmt: skip


@given(st.binary(max_size=120), st.integers(0, 200))
def test_a_pending_record_is_read_or_refused(data: bytes, cut: int) -> None:
    row = PendingRow(b"k", b"v", 5, [("h", None)], CONTEXT, b"raw", None, 1, 2, 3, "cause", "trace").encode()
    for damaged in (data, row[:cut], row[:cut] + data):
        try:
            PendingRow.decode(damaged)
        except SerializationError as error:
            assert error.hint


@pytest.mark.parametrize(
    ("kind", "described", "calls"),
    [case for case in CASES if case[0] is not StoreKind.VERSIONED],
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES) if case[0] is not StoreKind.VERSIONED],
)
@pytest.mark.parametrize("headers", [False, True])
def test_a_row_says_which_record_gave_it(
    open_kind: Any, kind: StoreKind, described: dict[str, Any], calls: list[tuple[Any, ...]], headers: bool
) -> None:
    """What a fork writes to the changelog of its parent for a row that only the parent has changed."""
    original = open_kind(kind, **described)
    for name, *arguments in calls:
        getattr(original.store, name)(*arguments)
        original.store.flush()
    builder = replace(original.builder, headers=headers and kind in KINDS_WITH_HEADERS)
    environment, again = MemoryEnvironment(), MemoryEnvironment()
    restorer = Restorer(builder, environment, "c-0")
    restorer.apply(batch_of(original.sent))
    restorer.finish(len(original.sent))
    last = {record[0]: record for record in original.sent}
    rows, records = environment.engine("st"), []
    for key, record in last.items():
        row = rows.get(row_key(builder, key))
        assert (row is None) == (record[1] is None)
        if row is not None:
            records.append((key, *logged_row(builder, row)))
            assert records[-1][1] == record[1]
    restorer = Restorer(builder, again, "c-0")
    restorer.apply(batch_of(records))
    assert list(again.engine("st").range()) == list(rows.range())
