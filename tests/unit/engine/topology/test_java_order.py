"""Java's iteration orders, against the JVM's own answers and against first principles."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl.engine.topology.description.java_order import TreeSet, hash_set_order, string_hash

GOLDEN = json.loads((Path(__file__).parents[3] / "data" / "golden.json").read_text(encoding="utf-8"))


def test_string_hashes_equal_the_jvm_s() -> None:
    for text, expected in GOLDEN["java_string_hash"].items():
        assert string_hash(text) == expected & 0xFFFFFFFF, text


def test_names_in_one_bucket_keep_their_insertion_order() -> None:
    # "Aa" and "BB" have the same hash in Java
    assert hash_set_order(["BB", "Aa"]) == ["BB", "Aa"]
    assert hash_set_order(["Aa", "BB"]) == ["Aa", "BB"]


def test_a_set_that_has_grown_orders_by_more_bits() -> None:
    names = [f"n{i}" for i in range(13)]
    spread = {name: (string_hash(name) ^ string_hash(name) >> 16) & 31 for name in names}
    assert hash_set_order(names) == sorted(names, key=lambda name: spread[name])


@given(st.lists(st.integers()))
def test_a_tree_set_with_a_steady_comparator_is_sorted(values: list[int]) -> None:
    tree: TreeSet[int] = TreeSet(lambda a, b: (a > b) - (a < b))
    for value in values:
        tree.add(value)
    assert list(tree) == sorted(set(values))


@given(st.lists(st.integers(0, 50), min_size=1))
def test_a_tree_set_does_not_ask_again_when_the_order_changes(values: list[int]) -> None:
    sign = [1]
    tree: TreeSet[int] = TreeSet(lambda a, b: sign[0] * ((a > b) - (a < b)))
    for value in values:
        tree.add(value)
    sign[0] = -1
    assert list(tree) == sorted(set(values))
