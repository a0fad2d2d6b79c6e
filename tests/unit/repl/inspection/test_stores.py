from __future__ import annotations

import struct

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.repl.inspection.stores import StoreRows, store_table
from kstreams_repl.system.types import ValueAndTimestamp, Windowed

Q = struct.Struct(">q")


def rows_of(builder: StoreBuilder, write) -> StoreRows:  # type: ignore[no-untyped-def]
    """The raw rows that the real store leaves in its engine."""
    environment = MemoryEnvironment()
    store = open_store(builder, environment, record_context=RecordContext())
    write(store)
    store.flush()
    environment.commit({}, 1)
    rows = list(environment.engine(builder.name).range())
    observed = environment.attribute(f"{builder.name}/observed-time")
    return StoreRows(3, [key for key, _ in rows], [value for _, value in rows], -1 if observed is None else Q.unpack(observed)[0])


def table(builder: StoreBuilder, write):  # type: ignore[no-untyped-def]
    made = store_table(builder, [rows_of(builder, write)], key_serde=serdes.string, value_serde=serdes.long)
    return {
        name: [str(v) if "time" in name or "window" in name else v for v in column.to_pylist()]
        for name, column in made.columns.items()
    }


def builder(kind: StoreKind, **more: object) -> StoreBuilder:
    return StoreBuilder("s", kind, serdes.string, serdes.long, **more)  # type: ignore[arg-type]


def test_key_value() -> None:
    assert table(builder(StoreKind.KEY_VALUE), lambda s: s.put("a", 5)) == {"key": ["a"], "value": [5], "partition": [3]}


def test_timestamped_key_value_has_the_time_of_its_values() -> None:
    found = table(builder(StoreKind.TIMESTAMPED_KEY_VALUE), lambda s: s.put("a", ValueAndTimestamp(5, 1000)))
    assert found == {"key": ["a"], "value": [5], "timestamp": ["1970-01-01 00:00:01"], "partition": [3]}


def test_windows_have_bounds() -> None:
    made = builder(StoreKind.TIMESTAMPED_WINDOW, retention_ms=3_600_000, window_size_ms=60_000)
    found = table(made, lambda s: s.put("a", ValueAndTimestamp(5, 61_000), 60_000))
    assert found["window_start"] == ["1970-01-01 00:01:00"]
    assert found["window_end"] == ["1970-01-01 00:02:00"]
    assert (found["key"], found["value"]) == (["a"], [5])


def test_windows_that_a_reader_would_not_see_are_left_out() -> None:
    made = builder(StoreKind.WINDOW, retention_ms=600_000, window_size_ms=60_000)

    def write(store) -> None:  # type: ignore[no-untyped-def]
        store.put("old", 1, 60_000)
        store.put("new", 2, 700_000)

    assert table(made, write)["key"] == ["new"]
    notes = store_table(made, [rows_of(made, write)], key_serde=serdes.string, value_serde=serdes.long).notes
    assert notes == ("store s keeps 10 min of stream time: 1 older row not shown; retention= keeps more",)


def test_sessions_have_bounds() -> None:
    made = builder(StoreKind.SESSION, retention_ms=3_600_000)
    found = table(made, lambda s: s.put(Windowed("a", 1000, 5000), 7))
    assert (found["key"], found["window_start"], found["window_end"], found["value"]) == (
        ["a"], ["1970-01-01 00:00:01"], ["1970-01-01 00:00:05"], [7],
    )  # fmt: skip


def test_versioned_stores_show_the_version_that_is_current() -> None:
    made = builder(StoreKind.VERSIONED, retention_ms=3_600_000)

    def write(store) -> None:  # type: ignore[no-untyped-def]
        store.put("a", 1, 1000)
        store.put("a", 2, 2000)

    found = table(made, write)
    assert (found["key"], found["value"], found["timestamp"]) == (["a"], [2], ["1970-01-01 00:00:02"])


def test_emit_final_windows_have_bounds() -> None:
    made = builder(StoreKind.TIME_ORDERED_WINDOW, retention_ms=3_600_000, window_size_ms=60_000)
    found = table(made, lambda s: s.put("a", ValueAndTimestamp(5, 61_000), 60_000))
    assert (found["key"], found["window_start"], found["value"]) == (["a"], ["1970-01-01 00:01:00"], [5])


@pytest.mark.parametrize("kind", [StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW])
def test_a_window_without_an_end_keeps_its_start(kind: StoreKind) -> None:
    made = builder(kind, retention_ms=3_600_000, window_size_ms=2**63 - 1)
    found = table(made, lambda s: s.put("a", ValueAndTimestamp(5, 61_000), 60_000))
    assert found["window_start"] == ["1970-01-01 00:01:00"]
    assert found["window_end"] == ["None"]
