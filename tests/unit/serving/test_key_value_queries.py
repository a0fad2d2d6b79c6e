"""Key-value stores of all tasks of a host, read while nobody runs them and while their owner commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.system.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    NullKeyError,
    StreamsNotStartedError,
    UnknownStateStoreError,
)

COUNTS = ks.StoreBuilder("counts", ks.StoreKind.TIMESTAMPED_KEY_VALUE)
PLAIN = ks.StoreBuilder("plain", ks.StoreKind.KEY_VALUE)
KEY_VALUE, STAMPED = ks.queries.QueryableStoreTypes.key_value_store(), ks.queries.QueryableStoreTypes.timestamped_key_value_store()


def put(**rows: int) -> Callable[[Any], None]:
    def fill(stores: Any) -> None:
        for key, value in rows.items():
            stores["counts"].put(key, (value, value * 10))
            stores["plain"].put(key, value)

    return fill


def test_a_composite_reads_all_partitions(state: Callable[..., Any]) -> None:
    made = state(COUNTS, PLAIN)
    made.write(0, put(b=2, d=4), offset=5)
    made.write(1, put(a=1, c=3), offset=9)
    counts = made.queries.store("counts", KEY_VALUE)
    assert [counts.get(key) for key in "abcdx"] == [1, 2, 3, 4, None]
    assert list(counts.all()) == [("b", 2), ("d", 4), ("a", 1), ("c", 3)]
    assert list(counts.range("b", "c")) == [("b", 2), ("c", 3)]
    assert list(counts.reverse_range(None, "c")) == [("b", 2), ("c", 3), ("a", 1)]
    assert list(counts.reverse_all()) == [("d", 4), ("b", 2), ("c", 3), ("a", 1)]
    assert list(counts.prefix_scan("d")) == [("d", 4)]
    assert counts.approximate_num_entries() == 4
    assert counts.get_many(["a", "d", "x"]) == {"a": 1, "d": 4}
    stamped = made.queries.store("counts", STAMPED)
    assert stamped.get("c") == ks.ValueAndTimestamp(3, 30)
    assert next(stamped.all()) == ("b", ks.ValueAndTimestamp(2, 20))
    one = made.queries.store(ks.queries.StoreQueryParameters("counts", KEY_VALUE, partition=1))
    assert [one.get("a"), one.get("b")] == [1, None]
    assert list(made.queries.store("plain", KEY_VALUE).all()) == list(counts.all())


def test_many_keys_are_what_each_of_them_is(state: Callable[..., Any]) -> None:
    made = state(COUNTS, PLAIN)
    long = "k" * 3000
    made.write(0, put(**{"b": 2, "": 0, long: 7, long + "x": 8}))
    made.write(1, put(a=1))
    wanted = ["a", "b", "", long, "b", "absent", long + "absent", long + "x"]
    for store, kind in (("plain", KEY_VALUE), ("counts", KEY_VALUE), ("counts", STAMPED)):
        handle = made.queries.store(store, kind)
        assert handle.get_many(wanted) == {key: value for key in wanted if (value := handle.get(key)) is not None}
        assert handle.get_many([]) == {}
        with pytest.raises(NullKeyError):
            handle.get_many(["a", None])
    assert handle.get_many(["b"]) == {"b": ks.ValueAndTimestamp(2, 20)}


def test_a_read_sees_commits_only_and_a_handle_follows_them(state: Callable[..., Any]) -> None:
    made = state(COUNTS, PLAIN)
    owner = made.write(0, put(a=1), closes=False)
    counts = made.queries.store("counts", KEY_VALUE)
    owner.engine("plain").put(b"b", b"\0" * 8)
    plain = made.queries.store("plain", KEY_VALUE)
    assert plain.get("b") is None
    owner.commit({}, 2)
    assert plain.get("b") == 0
    open_iterator = plain.all()
    assert next(open_iterator) == ("a", 1)
    owner.engine("plain").put(b"c", b"\0" * 8)
    owner.commit({}, 3)
    assert list(open_iterator) == [("b", 0)]  # as of the commit at which it was opened
    owner.close()
    made.write(0, put(a=7))
    made.local._found = (-1.0, {})
    for reader in made.local._readers.values():
        reader._checked = 0.0
    assert counts.get("a") == 7  # the same handle, over files that were closed and opened again


def test_wrong_stores_types_keys_and_partitions_are_refused(state: Callable[..., Any]) -> None:
    made = state(COUNTS, PLAIN)
    with pytest.raises(StreamsNotStartedError, match="never started here") as not_started:
        made.queries.store("counts", KEY_VALUE)
    assert not_started.value.retriable
    made.write(0, put(a=1))
    made.local._found = (-1.0, {})
    with pytest.raises(UnknownStateStoreError, match="did you mean 'counts'") as unknown:
        made.queries.store("count", KEY_VALUE)
    assert not unknown.value.retriable
    with pytest.raises(InvalidStateStoreError, match="does not accept"):
        made.queries.store("plain", STAMPED)
    with pytest.raises(InvalidStateStoreError, match="does not accept"):
        made.queries.store("plain", ks.queries.QueryableStoreTypes.session_store())
    counts = made.queries.store("counts", KEY_VALUE)
    with pytest.raises(NullKeyError):
        counts.get(None)
    elsewhere = made.queries.store(ks.queries.StoreQueryParameters("counts", KEY_VALUE).with_partition(3))
    with pytest.raises(InvalidStateStorePartitionError, match="not on this host"):
        elsewhere.get("a")


def test_iterators_close_themselves_and_leave_no_reader_slot(state: Callable[..., Any]) -> None:
    made = state(COUNTS, PLAIN)
    made.write(0, put(**{f"k{i}": i for i in range(100)}))
    counts = made.queries.store("counts", KEY_VALUE)
    for _ in range(2000):
        next(counts.all())  # dropped
    for _ in range(2000):
        with counts.all() as rows:
            next(rows)
    with pytest.raises(InvalidStateStoreError, match="closed"):
        next(rows)
    rows = counts.all()
    assert rows.peek_next_key() == "k0" and next(rows) == ("k0", 0)
    assert len(list(rows)) == 99 and list(rows) == []
    assert all(view.transaction is None for reader in made.local._readers.values() for view in reader._idle)
    environment = next(iter(made.local._readers.values())).snapshot._env
    assert environment.info()["num_readers"] < 10
