"""Key-value stores: what is read, what is logged, and when, in each mode."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl import serdes
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.stores.cache.record_cache import RecordCache
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.errors import NullKeyError, SerializationError, StateStoreError
from kstreams_repl.system.types import ValueAndTimestamp

ONE, TWO, THREE = (serdes.long.serialize(number) for number in (1, 2, 3))
MODES: list[dict[str, Any]] = [
    {},
    {"suppress": True},
    {"cache_bytes": 10_000},
    {"cache_bytes": 10_000, "suppress": True, "exact": False},
]


@pytest.mark.parametrize("mode", MODES)
def test_reads_see_every_write_made_before_them(open_kind: Any, mode: dict[str, Any]) -> None:
    store = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, **mode).store
    store.put("b", (1, 10))
    store.put("a", ValueAndTimestamp(2, 11))
    store.put("b", (3, 12))
    store.put("c", (4, 13))
    store.put("c", None)
    assert store.get("b") == ValueAndTimestamp(3, 12) and store.get("b").timestamp == 12
    assert store.get("c") is None and store.get("nope") is None
    assert list(store.all()) == [("a", (2, 11)), ("b", (3, 12))]
    assert list(store.reverse_range("a", "b")) == [("b", (3, 12)), ("a", (2, 11))]
    assert list(store.range("b")) == [("b", (3, 12))] and list(store.range("b", "a")) == []
    store.flush()
    assert list(store.all()) == [("a", (2, 11)), ("b", (3, 12))]


@pytest.mark.parametrize("mode", MODES)
def test_a_plain_store_logs_under_the_record_s_timestamp(open_kind: Any, mode: dict[str, Any]) -> None:
    opened = open_kind(StoreKind.KEY_VALUE, **mode)
    opened.context.timestamp = 7
    opened.store.put("a", 1)
    opened.context.timestamp = 8
    opened.store.delete("a")
    opened.store.put("b", 2)
    opened.store.flush()
    assert opened.log()[-1] == (b"b", TWO, 8)
    assert dict((key, value) for key, value, _ in opened.log()).get(b"a") is None


def test_every_update_is_logged_at_once_without_suppression(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE)
    opened.context.timestamp = 99
    opened.store.put("a", (1, 5))
    opened.store.put("a", (2, 6))
    opened.store.put("a", None)
    assert opened.log() == [(b"a", ONE, 5), (b"a", TWO, 6), (b"a", None, 99)]


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
def test_values_of_any_sort_leave_once_per_key_and_flush(open_kind: Any, kind: StoreKind) -> None:
    """Numbers leave in columns; what may change in place, and what its serde writes as nothing, one by one: the log is the same."""
    nothing_for_zero = Serde(lambda value: b"%d" % value if value else None, int, immutable=[int])  # type: ignore[arg-type, return-value]
    for serde, values in ((serdes.json, [1, {"n": 2}, 3]), (nothing_for_zero, [1, 0, 3]), (serdes.long, [1, 2, 3])):
        opened = open_kind(kind, suppress=True, value_serde=serde)
        at = (lambda value, time: (value, time)) if kind is StoreKind.TIMESTAMPED_KEY_VALUE else (lambda value, time: value)
        for offset, value in enumerate(values, 1):
            opened.context.timestamp = offset
            opened.store.put("a", at(value, offset))  # the last one counts, whatever those before it were
            opened.store.put(f"k{offset}", at(value, offset))
        opened.store.flush()
        opened.environment.commit({}, 1)
        data = [serde.serialize(value) for value in values]
        assert sorted(opened.log()) == [(b"a", data[2], 3), *((b"k%d" % n, each, n) for n, each in enumerate(data, 1))]
        assert opened.store.get("a") == at(values[2], 3)
        opened.store.flush()
        assert len(opened.log()) == 4
        for key in ("a", "k1", "k2", "k3"):
            opened.store.delete(key)
        opened.store.flush()
        opened.environment.commit({}, 1)


def test_one_record_per_key_and_flush_with_suppression(open_kind: Any) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, suppress=True)
    for number in range(1, 4):
        opened.store.put("a", (number, number))
    list(opened.store.all())
    opened.store.put("b", (1, 1))
    assert opened.log() == []
    opened.store.flush()
    assert sorted(opened.log()) == [(b"a", THREE, 3), (b"b", ONE, 1)]
    opened.store.flush()
    assert len(opened.log()) == 2


def test_put_if_absent_put_all_delete_and_prefix_scan(open_kind: Any) -> None:
    store = open_kind(StoreKind.KEY_VALUE).store
    assert store.put_if_absent("aa", 1) is None and store.put_if_absent("aa", 2) == 1
    store.put_all([("ab", 3), ("b", 4)])
    assert list(store.prefix_scan("a", str.encode)) == [("aa", 1), ("ab", 3)]
    assert store.delete("aa") == 1 and store.delete("aa") is None
    assert list(store.all()) == [("ab", 3), ("b", 4)]


@pytest.mark.parametrize("mode", MODES)
def test_a_value_changed_in_place_after_the_put_does_not_reach_the_store(open_kind: Any, mode: dict[str, Any]) -> None:
    store = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, value_serde=serdes.json, **mode).store
    value = {"n": [1]}
    store.put("a", (value, 1))
    value["n"].append(2)
    read = store.get("a").value
    assert read == {"n": [1]}
    read["n"].append(3)
    assert store.get("a").value == {"n": [1]}


def test_a_null_key_is_refused(open_kind: Any) -> None:
    store = open_kind(StoreKind.KEY_VALUE).store
    for call in (lambda: store.put(None, 1), lambda: store.get(None)):
        with pytest.raises(StateStoreError, match="must not be null"):
            call()


@pytest.mark.parametrize("mode", MODES[:2])
def test_a_value_of_the_wrong_type_fails_at_the_put(open_kind: Any, mode: dict[str, Any]) -> None:
    store = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, **mode).store
    with pytest.raises(SerializationError, match="long serde"):
        store.put("a", ("text", 1))


@pytest.mark.parametrize("mode", MODES)
def test_rollback_goes_back_to_the_commit(open_kind: Any, mode: dict[str, Any]) -> None:
    opened = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, **mode)
    store = opened.store
    store.put("a", (1, 1))
    store.flush()
    opened.environment.commit({}, 0)
    store.put("a", (2, 2))
    store.put("b", (3, 3))
    list(store.all())
    opened.environment.rollback()
    assert list(store.all()) == [("a", (1, 1))] and store.get("a") == (1, 1) and store.get("b") is None


def test_raw_access_takes_serialized_keys(open_kind: Any) -> None:
    store = open_kind(StoreKind.TIMESTAMPED_KEY_VALUE, suppress=True).store
    assert store.get_raw(b"a") is None
    store.put_raw(b"a", 1, 5)
    assert store.get_raw(b"a") == (1, 5) and store.get("a") == ValueAndTimestamp(1, 5)
    assert [key for key, _ in store.prefix_scan_raw(b"")] == [b"a"]
    store.delete_raw(b"a")
    assert store.get_raw(b"a") is None


def test_an_lru_store_keeps_the_most_recently_used(open_kind: Any) -> None:
    opened = open_kind(StoreKind.LRU, max_entries=2)
    store = opened.store
    store.put("a", 1)
    store.put("b", 2)
    assert store.get("a") == 1
    store.put("c", 3)
    assert (store.get("a"), store.get("b"), store.get("c")) == (1, None, 3)
    assert opened.log() == [(b"a", ONE, 0), (b"b", TWO, 0), (b"b", None, 0), (b"c", THREE, 0)]


def test_an_lru_store_is_read_in_the_order_of_its_keys_and_reading_ranges_is_no_use(open_kind: Any) -> None:
    store = open_kind(StoreKind.LRU, max_entries=3).store
    for key, value in (("c", 3), ("a", 1), ("ab", 2)):
        store.put(key, value)
    assert list(store.all()) == [("a", 1), ("ab", 2), ("c", 3)]
    assert list(store.reverse_all()) == [("c", 3), ("ab", 2), ("a", 1)]
    assert list(store.range("ab", None)) == list(store.range("ab", "c")) == [("ab", 2), ("c", 3)]
    assert list(store.reverse_range(None, "b")) == [("ab", 2), ("a", 1)]
    assert list(store.prefix_scan("a", str.encode)) == [("a", 1), ("ab", 2)]
    store.put("d", 4)
    assert [key for key, _ in store.all()] == ["a", "ab", "d"]


def test_an_lru_store_takes_prefixes_and_rows_as_other_key_value_stores_do(open_kind: Any) -> None:
    for kind, described in ((StoreKind.LRU, {"max_entries": 3}), (StoreKind.KEY_VALUE, {})):
        store = open_kind(kind, **described).store
        store.put_all({"a": 1, "ab": 2, "b": 3})
        assert list(store.prefix_scan("a")) == list(store.prefix_scan("a", "string")) == [("a", 1), ("ab", 2)]
        with pytest.raises(NullKeyError):
            store.prefix_scan(None)


def test_put_all_of_an_lru_store_logs_what_had_to_leave_before_what_came(open_kind: Any) -> None:
    opened = open_kind(StoreKind.LRU, max_entries=1)
    opened.store.put_all([("a", 1), ("b", 2)])
    assert opened.log() == [(b"a", None, 0), (b"a", ONE, 0), (b"b", TWO, 0)]
    assert list(opened.store.all()) == [("b", 2)]


commands = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 5))),
    st.tuples(st.just("get"), st.sampled_from("abc")),
    st.tuples(st.just("all")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("commit")),
)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(MODES), st.sampled_from([40, 10_000]), st.lists(commands, max_size=25))
def test_every_mode_holds_and_logs_the_same_table(mode: dict[str, Any], cache_bytes: int, program: list[tuple[Any, ...]]) -> None:
    environment, context, sent = MemoryEnvironment(), RecordContext(), []  # type: ignore[var-annotated]
    cache = RecordCache(cache_bytes, exact=mode.get("exact", True)) if "cache_bytes" in mode else None
    store = open_store(
        StoreBuilder("st", StoreKind.TIMESTAMPED_KEY_VALUE, key_serde="string", value_serde="long", caching=True),
        environment,
        record_context=context,
        send=lambda *record: sent.append(record),
        cache=cache,
        suppress_changelog=mode.get("suppress", False),
    )
    model: dict[str, tuple[int, int]] = {}
    for number, (command, *arguments) in enumerate(program):
        context.timestamp = number
        if command == "put":
            key, value = arguments
            store.put(key, None if value is None else (value, number))  # type: ignore[attr-defined]
            if value is None:
                model.pop(key, None)
            else:
                model[key] = (value, number)
        elif command == "get":
            assert store.get(arguments[0]) == model.get(arguments[0])  # type: ignore[attr-defined]
        elif command == "all":
            assert list(store.all()) == sorted(model.items())  # type: ignore[attr-defined]
        else:
            store.flush()
            if command == "commit":
                environment.commit({}, number)
    store.flush()
    replayed: dict[str, tuple[int, int]] = {}
    for key, value, timestamp, _, _ in sent:
        if value is None:
            replayed.pop(key.decode(), None)
        else:
            replayed[key.decode()] = (serdes.long.deserialize(value), timestamp)
    assert replayed == model
