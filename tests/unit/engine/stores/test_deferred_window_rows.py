"""Window rows that stay objects until the flush while time goes on."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind


@pytest.mark.parametrize("kind", [StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW])
def test_a_row_whose_segment_dies_before_the_flush_is_not_counted_as_dropped(kind: StoreKind) -> None:
    dropped: list[str] = []
    sent: list[Any] = []
    builder = StoreBuilder("w", kind, key_serde=serdes.string, value_serde=serdes.long, retention_ms=10, window_size_ms=10)
    store: Any = open_store(
        builder,
        MemoryEnvironment(),
        record_context=RecordContext(),
        send=lambda *record: sent.append(record),
        on_dropped=dropped.append,
        suppress_changelog=True,
    )
    store.put("a", (1, 0), 0)
    store.put("a", (2, 10_000_000), 10_000_000)
    store.flush()
    assert dropped == []
    assert [(key.start, value) for key, value in store.all()] == [(10_000_000, (2, 10_000_000))]
    assert len(sent) == 2
    store.put("a", (3, 5), 0)
    assert dropped == ["expired"]


def test_rows_of_one_window_are_found_again_whatever_window_came_in_between() -> None:
    builder = StoreBuilder(
        "w", StoreKind.TIMESTAMPED_WINDOW, key_serde=serdes.string, value_serde=serdes.long, retention_ms=500_000, window_size_ms=10
    )
    store: Any = open_store(builder, MemoryEnvironment(), record_context=RecordContext(), suppress_changelog=True)
    for start in (0, 100_000, 0, 300_000, 100_000):
        cell = store.fetch_raw(b"a", start)
        store.put_raw(b"a", (1 if cell is None else cell[0] + 1, start), start)
    assert [(key.start, value[0]) for key, value in store.all()] == [(0, 2), (100_000, 2), (300_000, 1)]
