"""Values that stay objects and are long: what they weigh in the cache's budget, and that they are not kept for reading."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.stores.layers.codec import SMALL
from kstreams_repl.engine.topology.store_builder import StoreKind
from tests.unit.engine.runtime.rig import Rig

LONG = 20_000
SERDES = {"string": (serdes.string, "x"), "bytes": (serdes.bytes, b"x"), "json": (serdes.json, "x")}


@pytest.fixture(params=sorted(SERDES))
def text(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return SERDES[request.param]


def held(store: Any) -> int:
    """Length of all values that the cache has as objects."""
    slots = store.cached._slots.values()
    return sum(len(slot.value) for slot in slots if isinstance(slot.value, str | bytes))


def test_long_values_fill_the_budget_by_their_length(open_kind: Any, text: tuple[Any, Any]) -> None:
    serde, letter = text
    store = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, value_serde=serde, cache_bytes=1_000_000, exact=False).store
    store.set_flush_listener(lambda *_: None, False)
    most = 0
    for number in range(300):
        store.put(f"k{number}", (letter * LONG, number))
        most = max(most, held(store))
    assert 500_000 < most <= 1_100_000
    store.flush()
    assert held(store) == 0


def test_objects_that_are_serialized_at_once_fill_the_budget_before_the_thousandth_write(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, value_serde=serdes.json, cache_bytes=1_000_000, exact=False)
    opened.store.set_flush_listener(lambda *_: None, False)
    for number in range(100):
        opened.store.put(f"k{number}", (["x" * LONG], number))
    assert len(opened.sent) >= 40


def test_one_key_written_again_and_again_is_weighed_once(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, value_serde=serdes.string, cache_bytes=1_000_000, exact=False)
    for number in range(300):
        opened.store.put("k", ("x" * LONG, number))
    assert opened.sent == [] and opened.cache.size < 1_000_000


def test_headers_count_towards_the_budget(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, cache_bytes=1_000_000, exact=False)
    opened.context.headers = [("trace", b"x" * 2_000)]
    for number in range(3_000):
        opened.store.put(f"k{number}", (number, number))
    assert len(opened.sent) >= 1_000


def test_a_fused_reduce_over_long_values_stays_in_the_budget() -> None:
    builder, seen = StreamsBuilder(), []
    grouped = builder.stream("in", key_serde="string", value_serde="string").group_by_key(key_serde="string", value_serde="string")

    def longer(old: str, new: str) -> str:
        seen.append(held(rig.task.stores["last"]))
        return new * LONG

    grouped.reduce(longer, store="last").to_stream().to("out", key_serde="string", value_serde="string")
    rig = Rig(builder.build(), {"statestore.cache.max.bytes": 1_000_000})
    rig.pipe("in", *[(f"k{number % 500}", b"x", number) for number in range(1_000)])
    rig.run()
    assert 500_000 < max(seen) <= 1_100_000
    rig.commit()
    assert held(rig.task.stores["last"]) == 0
    assert len({key for key, value, _ in rig.outbox.to("out") if value and len(value) == LONG}) == 500


@pytest.mark.parametrize("how", [{"cache_bytes": 1_000_000, "exact": False}, {"suppress": True}])
def test_a_long_value_is_not_kept_when_it_was_flushed_or_read(open_kind: Any, text: tuple[Any, Any], how: dict[str, Any]) -> None:
    serde, letter = text
    store = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, value_serde=serde, **how).store
    rows = {"long": (letter * LONG, 1), "short": (letter * SMALL, 1)}
    for key, row in rows.items():
        store.put(key, (letter, 0))
        store.flush()
        store.put(key, row)
    store.flush()
    kept = store._objects._clean if "suppress" in how else store.cached._slots
    assert set(kept) == {b"short"}
    assert {key: store.get(key) for key in rows} == rows
    assert set(kept) == {b"short"}
    list(store.all())
    store.put("long", rows["long"])
    assert dict(store.all()) == rows
    store.flush()
    assert set(kept) == {b"short"}
