"""`default.dsl.store`: what is kept in memory, what a Materialized says instead, and what the default does not speak of."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import JoinWindows, Materialized, SessionWindows, SlidingWindows, StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.dsl import EmitStrategy
from kstreams_repl.engine.topology import StoreBuilder, StoreKind
from kstreams_repl.testing import TopologyTestDriver

SETTINGS: dict[str, Any] = {"default.key.serde": serdes.string, "default.value.serde": serdes.json}


def every_kind() -> StreamsBuilder:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    grouped = stream.group_by_key()
    table = builder.table("left", store="table")
    right = builder.table("right", store="right")
    grouped.count(store="count")
    grouped.windowed_by(TimeWindows.of_size(10)).count(store="tumbling")
    grouped.windowed_by(TimeWindows.of_size(10)).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(store="final")
    grouped.windowed_by(SlidingWindows.of_time_difference(10)).count(store="sliding")
    grouped.windowed_by(SessionWindows.of_inactivity_gap(10)).count(store="session")
    stream.left_join(builder.stream("other"), lambda a, b: [a, b], JoinWindows.of_time_difference(10), store="joined")
    table.join(right, lambda a, b: [a, b], foreign_key=lambda value: value, store="foreign")
    grouped.count(store="on-disk", persistent=True)
    grouped.reduce(max, store=Materialized(name="in-memory", persistent=False))
    builder.table("history", store="versioned", history=1_000)
    builder.add_state_store(StoreBuilder("own", StoreKind.KEY_VALUE, serdes.string, serdes.json))
    return builder


def kept_on_disk(default: str) -> dict[str, bool]:
    with TopologyTestDriver(every_kind().build(), SETTINGS | {"default.dsl.store": default}) as driver:
        return {name: store.persistent for name, store in driver.all_state_stores().items()}


ALWAYS = {"on-disk": True, "in-memory": False, "versioned": True, "own": True}


def test_in_memory_keeps_every_dsl_store_in_memory_that_says_nothing_of_it() -> None:
    kept = kept_on_disk("in_memory")
    assert {name: kept[name] for name in ALWAYS if name in kept} == {name: ALWAYS[name] for name in ALWAYS if name in kept}
    assert {name for name, persistent in kept.items() if persistent} <= {"on-disk", "versioned", "own"}
    assert {"count", "tumbling", "final", "sliding", "session", "foreign", "table", "right"} <= set(kept)
    assert any("shared-join" in name for name in kept)


@pytest.mark.parametrize("default", ["rocksDB", "lmdb"])
def test_other_defaults_keep_them_on_disk(default: str) -> None:
    kept = kept_on_disk(default)
    assert [name for name, persistent in kept.items() if not persistent] == ["in-memory"]


def test_a_topology_keeps_its_stores_differently_in_two_applications() -> None:
    topology = every_kind().build()
    for default, persistent in (("in_memory", False), ("rocksDB", True), ("in_memory", False)):
        with TopologyTestDriver(topology, SETTINGS | {"default.dsl.store": default}) as driver:
            assert driver.all_state_stores()["count"].persistent is persistent
