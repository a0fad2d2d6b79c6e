"""Versioned stores against a list of versions, and the corners in which Kafka Streams forgets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl import serdes
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.kinds.version_row import VersionRow
from kstreams_repl.engine.stores.kinds.versioned import VersionedRows, history_segment_interval_ms
from kstreams_repl.engine.stores.state_store import NOT_PUT
from kstreams_repl.engine.topology.store_builder import HISTORY_SUFFIX, StoreKind
from kstreams_repl.system.types import VersionedRecord


def rows(retention: int) -> VersionedRows:
    environment = MemoryEnvironment()
    return VersionedRows(environment, "v", environment.engine("v"), environment.engine("v" + HISTORY_SUFFIX), retention_ms=retention)


def test_puts_say_when_their_version_ends(open_kind: Any) -> None:
    store = open_kind(StoreKind.VERSIONED, retention_ms=1000).store
    assert store.put("a", 1, 10) is None
    assert store.put("a", 2, 5) == 10
    assert store.put("a", 3, 20) is None
    assert store.put("a", None, 15) == 20
    assert store.get("a") == VersionedRecord(3, 20)
    assert [store.get("a", at) for at in (4, 5, 9, 10, 14)] == [None, *[VersionedRecord(2, 5, 10)] * 2, *[VersionedRecord(1, 10, 15)] * 2]
    assert store.get("a", 15) is None and store.get("a", 99) == VersionedRecord(3, 20)
    assert store.delete("a", 30) == VersionedRecord(3, 20) and store.get("a") is None
    assert store.get("a", 25) == VersionedRecord(3, 20, 30)


def test_a_version_older_than_the_retention_is_refused_but_logged(open_kind: Any) -> None:
    opened = open_kind(StoreKind.VERSIONED, retention_ms=100)
    opened.store.put("a", 1, 500)
    assert opened.store.put("a", 2, 399) == NOT_PUT and opened.store.put("a", 3, 400) == 500
    assert opened.dropped == ["expired"] and [record[2] for record in opened.sent] == [500, 399, 400]
    opened.store.put("b", 1, 1000)
    assert opened.store.get("a", 450) is None and opened.store.get("a", 600) == VersionedRecord(1, 500)


def test_old_segments_leave_the_engine(open_kind: Any) -> None:
    opened = open_kind(StoreKind.VERSIONED, retention_ms=6_000)
    for timestamp in range(0, 60_000, 1_000):
        opened.store.put("a", timestamp, timestamp)
    opened.environment.commit({}, 0)
    history = opened.environment.engine("st" + HISTORY_SUFFIX)
    assert 0 < len(list(history.range())) <= 6_000 // history_segment_interval_ms(6_000) + 2


def test_a_row_keeps_deletions_and_empty_values_apart() -> None:
    row = VersionRow(30, [(20, b""), (10, None), (5, b"xyz")])
    again = VersionRow.decode(row.encode())
    assert (again.next, again.versions) == (30, row.versions)
    assert again.find(19) == (1, 10, 20, None) and again.find(7) == (2, 5, 10, b"xyz")


def test_a_deletion_of_the_only_version_at_its_own_time_leaves_no_trace(open_kind: Any) -> None:
    store = open_kind(StoreKind.VERSIONED, retention_ms=1000).store
    store.put("a", 1, 10)
    store.put("a", None, 10)
    assert store.put("a", 2, 5) is None and store.get("a") == VersionedRecord(2, 5)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40_000), st.one_of(st.none(), st.integers(0, 9))), max_size=30, unique_by=lambda put: put[0]))
def test_any_order_of_puts_within_the_retention_gives_the_same_history(puts: list[tuple[int, int | None]]) -> None:
    store = rows(40_000)
    for timestamp, value in puts:
        following = min((other for other, _ in puts[: puts.index((timestamp, value))] if other > timestamp), default=None)
        assert store.put(b"k", None if value is None else serdes.long.serialize(value), timestamp) == following
    versions = sorted(puts)
    for as_of in {0, *(at + shift for at, _ in puts for shift in (-1, 0, 1))}:
        current = max((version for version in versions if version[0] <= as_of), default=(0, None))
        found = store.get_as_of(b"k", as_of) if as_of >= 0 else None
        assert (None if found is None else (found[1], serdes.long.deserialize(found[0]))) == (None if current[1] is None else current)


@pytest.mark.parametrize(
    ("retention", "interval"), [(3_000, 2_000), (60_000, 20_000), (300_000, 60_000), (3_600_000, 300_000), (86_400_000, 3_600_000)]
)
def test_history_segments_have_kafka_s_sizes(retention: int, interval: int) -> None:
    assert history_segment_interval_ms(retention) == interval
