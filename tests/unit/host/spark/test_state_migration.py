"""Rows through a user's function: what is written to the changelog, and what is refused, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.host.spark.fencing.state_migration import Migration, key_reader
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import TopicPartition, Windowed

KEY_VALUE = StoreBuilder("rows", StoreKind.TIMESTAMPED_KEY_VALUE)


def migration(function: Callable[[Any, Any], Any], *, new_key: Serde | None = None, store: StoreBuilder = KEY_VALUE) -> Migration:
    read_key = key_reader(store, serdes.string)
    return Migration("rows", "log", read_key, serdes.long, serdes.json, function, new_key)


def rows(**numbers: int) -> dict[tuple[int, bytes], tuple[bytes, int]]:
    """Rows of one partition, each with the time 1000 + its number."""
    return {(0, key.encode()): (n.to_bytes(8, "big"), 1000 + n) for key, n in numbers.items()}


def as_produced(partitions: int, *keys: str) -> dict[tuple[int, bytes], tuple[bytes, int]]:
    """Rows where a producer puts their keys."""
    return {(partition_for_key(key.encode(), partitions), key.encode()): (bytes(8), 1000) for key in keys}


def test_values_are_written_anew_and_none_deletes() -> None:
    found = list(migration(lambda key, value: {"n": value} if key != "b" else None).converted(rows(a=1, b=2), 1))
    assert found == [("log", 0, b"a", b'{"n":1}', 1001), ("log", 0, b"b", None, 1002)]


def test_a_new_key_takes_the_old_one_s_place() -> None:
    found = list(migration(lambda key, value: ([key], value), new_key=serdes.json).converted(rows(a=1), 1))
    assert found == [("log", 0, b"a", None, 1001), ("log", 0, b'["a"]', b"1", 1001)]


def test_headers_that_a_store_keeps_stay_with_their_row() -> None:
    own = [("trace", b"4f")]
    last = {(0, b"a"): ((1).to_bytes(8, "big"), 1001, own), (0, b"b"): ((2).to_bytes(8, "big"), 1002)}
    assert list(migration(lambda key, value: value).converted(last, 1)) == [("log", 0, b"a", b"1", 1001, own), ("log", 0, b"b", b"2", 1002)]
    renamed = list(migration(lambda key, value: (key + "-new", value), new_key=serdes.string).converted(last, 1))
    assert renamed[2:] == [("log", 0, b"a-new", b"1", 1001, own), ("log", 0, b"b-new", b"2", 1002)]


def test_rows_may_swap_their_keys_and_a_row_may_be_deleted() -> None:
    swapped = {"a": ("b", 1), "b": ("a", 2), "c": None, "d": ("d", None)}
    found = list(migration(lambda key, value: swapped[key], new_key=serdes.string).converted(rows(a=1, b=2, c=3, d=4), 1))
    assert {(key, value) for _, _, key, value, _ in found} == {(b"b", b"1"), (b"a", b"2"), (b"c", None), (b"d", None)}
    assert len(found) == 4, "one record for each key: their order says nothing"


def test_two_rows_cannot_get_one_key() -> None:
    with pytest.raises(TopologyError, match="key 'b' and the row of key 'a' both got the key 'x'") as refused:
        list(migration(lambda key, value: ("x", value), new_key=serdes.string).converted(rows(a=1, b=2), 1))
    assert "a key of its own" in str(refused.value.hint)


def test_a_row_whose_partition_would_change_is_refused_with_the_ways_out() -> None:
    last = as_produced(4, "a", "b", "c", "d", "e")
    assert len(list(migration(lambda key, value: (key, value), new_key=serdes.string).converted(last, 4))) == 5
    with pytest.raises(TopologyError, match=r"would move from partition \d to \d with the key") as refused:
        list(migration(lambda key, value: (key + "-new", value), new_key=serdes.string).converted(last, 4))
    assert "reset_state=['rows']" in str(refused.value.hint) and "give it a new name" in str(refused.value.hint)
    assert refused.value.fields["store"] == "rows"


def test_rows_that_another_partitioner_placed_get_no_new_keys() -> None:
    (_, key), content = next(iter(as_produced(4, "a").items()))
    elsewhere = {((partition_for_key(key, 4) + 1) % 4, key): content}
    with pytest.raises(TopologyError, match="not where its bytes lead"):
        list(migration(lambda key, value: (key, value), new_key=serdes.string).converted(elsewhere, 4))


@pytest.mark.parametrize(
    ("given", "said"), [("a", "gave str 'a', not a"), ((None, 1), "got the key None"), ((1, 1), "raised SerializationError")]
)
def test_what_is_no_row_is_refused(given: Any, said: str) -> None:
    with pytest.raises(TopologyError, match=said) as refused:
        list(migration(lambda key, value: given, new_key=serdes.string).converted(rows(a=1), 1))
    assert "nothing was changed" in str(refused.value.hint)


def test_the_function_of_a_window_s_value_gets_the_window() -> None:
    seen: list[Any] = []

    def eight(key: Any, value: Any) -> int:
        seen.append((key, value))
        return 8

    long = (7).to_bytes(8, "big")
    for kind, key, window in (
        (StoreKind.TIMESTAMPED_WINDOW, b"k" + (500).to_bytes(8, "big") + bytes(4), Windowed("k", 500, 1500)),
        (StoreKind.TIME_ORDERED_WINDOW, b"k" + (500).to_bytes(8, "big") + bytes(4), Windowed("k", 500, 1500)),
        (StoreKind.SESSION, b"k" + (900).to_bytes(8, "big") + (500).to_bytes(8, "big"), Windowed("k", 500, 900)),
    ):
        store = StoreBuilder("rows", kind, window_size_ms=1000)
        found = list(migration(eight, store=store).converted({(1, key): (long, 5)}, 2))
        assert found == [("log", 1, key, b"8", 5)] and seen.pop() == (window, 7)


def test_a_changelog_of_which_the_broker_has_deleted_records_is_refused() -> None:
    whole, cut = OffsetRange(TopicPartition("log", 0), 0, 9), OffsetRange(TopicPartition("log", 1), 3, 9)
    migration(lambda key, value: value).check_whole([whole])
    with pytest.raises(TopologyError, match="the records before offset 3 of log-1 by their age") as refused:
        migration(lambda key, value: value).check_whole([whole, cut])
    assert "reset_state=['rows']" in str(refused.value.hint)


def test_an_error_of_the_function_names_the_row() -> None:
    with pytest.raises(TopologyError, match="the row of key 'a' raised ZeroDivisionError"):
        list(migration(lambda key, value: 1 / 0).converted(rows(a=1), 1))
