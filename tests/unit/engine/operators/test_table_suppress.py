"""Suppress: time limits, window closes, bounds."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.engine.operators.operator import NodeContext, Operator, Process
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.topology.store_builder import StoreKind
from kstreams_repl.system.errors import KStreamsError
from tests.unit.engine.operators.harness import Bench


def suppress(wait: int, **options: Any) -> Bench:
    """Table T suppressed."""
    settings: dict[str, Any] = dict.fromkeys(("window_end_time", "shut_down_when_full", "drop_tombstones"), False)
    settings |= dict.fromkeys(("max_records", "max_bytes"))
    bench = Bench()
    bench.store("t")
    bench.store("buffer", StoreKind.SUPPRESS_BUFFER)
    bench.node("table", TableSource("t", send_old_values=True), bench.source("T"), stores=["t"])
    operator = TableSuppress("buffer", wait, **(settings | options))
    return bench.probe(bench.node("suppress", operator, "table", stores=["buffer"]))


def test_an_update_keeps_the_slot_of_the_first_and_the_value_and_time_of_the_last() -> None:
    bench = suppress(10)
    for key, value, timestamp in (("b", 1, 1), ("a", 2, 2), ("b", 3, 5)):
        assert bench.pipe("T", key, value, timestamp) == []
    assert [(key, change[0], at) for key, change, at in bench.pipe("T", "z", 0, 12)] == [("b", 3, 5), ("a", 2, 2)]


def test_a_limit_of_zero_passes_everything() -> None:
    bench = suppress(0)
    assert bench.pipe("T", "a", 1, 5) == [("a", (1, None, True), 5)]
    assert bench.pipe("T", "a", 2, 6) == [("a", (2, 1, True), 6)]


def test_time_moves_only_forward() -> None:
    bench = suppress(10)
    bench.pipe("T", "a", 1, 100)
    assert [key for key, _, _ in bench.pipe("T", "b", 1, 3)] == ["b"]


def test_tombstones_are_emitted_unless_they_are_safe_to_drop() -> None:
    keeps, drops = suppress(0), suppress(0, drop_tombstones=True)
    for bench in (keeps, drops):
        bench.pipe("T", "a", 1, 1)
    assert keeps.pipe("T", "a", None, 2) == [("a", (None, 1, True), 2)]
    assert drops.pipe("T", "a", None, 2) == []


def test_the_oldest_leaves_early_when_the_buffer_is_full() -> None:
    bench = suppress(1000, max_records=2)
    assert bench.pipe("T", "a", 1, 1) == bench.pipe("T", "b", 1, 0) == []
    assert bench.pipe("T", "c", 1, 2) == [("b", (1, None, True), 0)]


def test_a_strict_buffer_that_is_full_stops_the_application() -> None:
    bench = suppress(1000, max_records=1, shut_down_when_full=True)
    bench.pipe("T", "a", 1, 1)
    with pytest.raises(KStreamsError, match="exceeds its bounds: 2 records"):
        bench.pipe("T", "b", 1, 1)


def test_a_buffer_can_be_bounded_by_bytes() -> None:
    bench = suppress(1000, max_bytes=1)
    assert [key for key, _, _ in bench.pipe("T", "a", 1, 1)] == ["a"]


class _Offsets(Operator):
    """Keeps the offset in the record context of what it is given."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def build(self, node: NodeContext, forward: Process) -> Process:
        return lambda key, value, timestamp, headers: self.seen.append((key, node.record.offset, headers))


def test_an_entry_is_emitted_under_its_own_context_and_headers() -> None:
    bench, seen = suppress(10), []
    bench.topology.add_processor("offsets", _Offsets(seen), "suppress")
    bench.pipe("T", "a", 1, 1, [("h", b"1")])
    bench.pipe("T", "b", 1, 20, [("h", b"2")])
    assert seen == [("a", 0, [("h", b"1")])]
