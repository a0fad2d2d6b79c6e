"""The stores that only operators use: their order, their bytes in the changelog, and that they survive a restart."""

from __future__ import annotations

from typing import Any

from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.engine.stores.kinds.buffer_value import BufferValue
from kstreams_repl.engine.stores.kinds.suppress_buffer import java_hash_order
from kstreams_repl.engine.topology.store_builder import StoreKind

EMPTY = 2**63 - 1


def at(timestamp: int, offset: int = 0) -> ContextSnapshot:
    return ContextSnapshot("in", 0, offset, timestamp, [])


def test_parked_records_come_by_time_right_before_left_then_key(open_kind: Any) -> None:
    opened = open_kind(StoreKind.OUTER_JOIN)
    store = opened.store
    for timestamp, left, key, value in ((10, True, "b", 1), (10, False, "z", 2), (9, True, "c", 3), (10, True, "b", 4)):
        store.put(timestamp, left, key, value)
    assert list(store.all()) == [(9, True, "c", 3), (10, False, "z", 2), (10, True, "b", 1), (10, True, "b", 4)]
    store.remove(10, True, "b")
    store.remove(10, True, "nope")
    assert [key for _, _, key, _ in store.all()] == ["c", "z"]
    assert [record[1] is None for record in opened.sent] == [False, False, False, False, True]


def test_parked_records_have_kafka_s_bytes(open_kind: Any) -> None:
    opened = open_kind(StoreKind.OUTER_JOIN, value_serde=serdes.json)
    opened.store.put(10, True, "b", 1)
    opened.store.put(27, False, "z", 2)
    assert [(key.hex(), value.hex()) for key, value, _ in opened.log()] == [
        ("000000000000000a0162", "0100000001000000020131"),
        ("000000000000001b007a", "0100000001000000020032"),
    ]


def test_many_parked_records_may_be_removed_while_they_are_read(open_kind: Any) -> None:
    store = open_kind(StoreKind.OUTER_JOIN).store
    for number in range(100):
        store.put(number, True, "k", number)
    seen = []
    for timestamp, left, key, _ in store.all():
        seen.append(timestamp)
        store.remove(timestamp, left, key)
    assert seen == list(range(100)) and list(store.all()) == []


def test_a_suppressed_update_keeps_its_slot_and_prior_value(open_kind: Any) -> None:
    store = open_kind(StoreKind.SUPPRESS_BUFFER, value_serde=serdes.json).store
    assert store.min_time == EMPTY
    store.put(10, "b", 1, None, at(10))
    store.put(11, "a", 2, 9, at(11))
    store.put(5, "a", 3, 2, at(5, 2))
    store.put(10, "a0", 7, None, at(10))
    assert (store.min_time, store.record_count()) == (10, 3)
    assert [store.prior_value(key) for key in ("a", "b", "x")] == [(9,), (None,), None]
    left: list[Any] = []
    inside: list[Any] = []

    def emit(*entry: Any) -> None:
        left.append(entry)
        inside.append(store.prior_value(entry[0]))

    for _ in range(3):
        store.evict_first(emit)
    assert left == [("a0", 7, None, at(10)), ("b", 1, None, at(10)), ("a", 3, 2, at(5, 2))]
    assert inside == [(None,), (None,), (9,)] and store.min_time == EMPTY and store.byte_size() == 0


def test_the_suppress_changelog_has_kafka_s_bytes(open_kind: Any) -> None:
    opened = open_kind(StoreKind.SUPPRESS_BUFFER, value_serde=serdes.json)
    updates = [(10, "b", 1, None, 10), (11, "a", 2, None, 11), (5, "a", 3, 2, 5), (13, "c", None, 4, 13)]
    for offset, (time, key, new, old, timestamp) in enumerate(updates):
        opened.store.put(time, key, new, old, at(timestamp, offset))
        opened.store.flush()
    assert [value.hex() for _, value, _ in opened.log()][:3] == [
        "000000000000000a000000000000000000000002696e0000000000000000ffffffffffffffff0000000131000000000000000a",
        "000000000000000b000000000000000100000002696e0000000000000000ffffffffffffffff0000000132000000000000000b",
        "0000000000000005000000000000000200000002696e0000000000000000ffffffff00000001320000000133000000000000000b",
    ]
    assert opened.sent[0][2:4] == (None, [("v", b"\x03")])
    opened.store.evict_first(lambda *_: None)
    opened.store.flush()
    assert opened.sent[-1][:4] == (b"b", None, None, [])


def test_a_suppress_buffer_is_read_back_after_a_restart_and_after_a_rollback(open_kind: Any, environment: Any) -> None:
    first = open_kind(StoreKind.SUPPRESS_BUFFER, value_serde=serdes.json)
    first.store.put(10, "b", 1, 0, at(10))
    first.store.flush()
    environment.commit({}, 0)
    first.store.put(3, "a", 1, 0, at(3))
    environment.rollback()
    assert (first.store.record_count(), first.store.min_time) == (1, 10)
    again = open_kind(StoreKind.SUPPRESS_BUFFER, value_serde=serdes.json).store
    left: list[Any] = []
    assert (again.min_time, again.byte_size()) == (10, first.store.byte_size())
    again.evict_first(lambda *entry: left.append(entry))
    assert left == [("b", 1, 0, at(10))] and type(left[0][3]) is ContextSnapshot


def test_java_s_hash_order_of_bytes() -> None:
    assert java_hash_order([b"c", b"a", b"b"], 16) == [b"a", b"b", b"c"]
    assert java_hash_order([b"E", b"\xff"], 512) == [b"\xff", b"E"]  # bytes are signed


def test_join_records_wait_by_time_key_and_arrival(open_kind: Any, environment: Any) -> None:
    described = {"value_serde": serdes.json}
    opened = open_kind(StoreKind.JOIN_GRACE_BUFFER, **described)
    store = opened.store
    assert (store.observed_time, store.min_time) == (-1, EMPTY)
    for timestamp, key, value in ((20, "a", 1), (10, "b", 2), (10, "a", 3), (10, "a", 4)):
        store.put(timestamp, key, value, at(timestamp))
    assert (store.observed_time, store.min_time) == (20, 10)
    left: list[Any] = []
    store.evict_until(15, lambda *entry: left.append(entry))
    assert left == [("a", 3, at(10)), ("a", 4, at(10)), ("b", 2, at(10))] and store.min_time == 20
    environment.commit({}, 0)
    again = open_kind(StoreKind.JOIN_GRACE_BUFFER, **described).store
    assert (again.observed_time, again.min_time) == (20, 20)
    assert [value is None for _, value, _ in opened.log()] == [False] * 4 + [True] * 3


def test_buffered_contexts_survive_their_bytes() -> None:
    value = BufferValue(b"p", b"p", None, ("topic", 3, 4, 5, [("h", None), ("é", b"x")]))
    again = BufferValue.decode(value.encode(), ContextSnapshot)
    assert again.context == value.context and (again.prior, again.old, again.new) == (b"p", b"p", None)
    assert value.size() == 1 + 8 + 8 + 4 + 5 + 1 + 1 + 1
