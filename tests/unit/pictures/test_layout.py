from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kstreams_repl.pictures.graph.layout import Box, lay_out, lay_out_parts


def boxes(count: int) -> list[Box]:
    return [Box(f"n{index}", 60 + 7 * (index % 5), 30 + 5 * (index % 3)) for index in range(count)]


def overlapping(items: list[Box], at: dict[str, tuple[float, float]]) -> list[tuple[str, str]]:
    found = []
    for i, a in enumerate(items):
        for b in items[i + 1 :]:
            dx, dy = abs(at[a.id][0] - at[b.id][0]), abs(at[a.id][1] - at[b.id][1])
            if dx < (a.width + b.width) / 2 - 1e-6 and dy < (a.height + b.height) / 2 - 1e-6:
                found.append((a.id, b.id))
    return found


def test_nothing_is_laid_out_for_nothing() -> None:
    assert lay_out([], []).width == 0


def test_edges_of_a_chain_point_down_in_one_column() -> None:
    laid = lay_out([Box(name, 80, 30) for name in "abc"], [("a", "b"), ("b", "c")])
    assert laid.centres["a"][1] < laid.centres["b"][1] < laid.centres["c"][1]
    assert len({round(x) for x, _ in laid.centres.values()}) == 1


def test_a_box_with_two_children_stands_between_them() -> None:
    laid = lay_out([Box(name, 80, 30) for name in "abc"], [("a", "b"), ("a", "c")])
    assert laid.centres["b"][0] < laid.centres["a"][0] < laid.centres["c"][0]


@settings(max_examples=60)
@given(st.integers(1, 25), st.data())
def test_boxes_never_overlap_and_lie_inside(count: int, data: st.DataObject) -> None:
    items = boxes(count)
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = [(f"n{a}", f"n{b}") for a, b in data.draw(st.lists(pairs, max_size=40))]
    laid = lay_out(items, edges)
    assert overlapping(items, dict(laid.centres)) == []
    for box in items:
        x, y = laid.centres[box.id]
        assert box.width / 2 - 1e-6 <= x <= laid.width - box.width / 2 + 1e-6
        assert box.height / 2 - 1e-6 <= y <= laid.height - box.height / 2 + 1e-6
    assert len(laid.routes) == len(edges)


def test_a_cycle_is_drawn_with_one_edge_upwards() -> None:
    laid = lay_out([Box(name, 80, 30) for name in "abc"], [("a", "b"), ("b", "c"), ("c", "a")])
    up = [route for route in laid.routes if route[0][1] > route[-1][1]]
    assert len(up) == 1


def test_crossings_that_can_be_avoided_are() -> None:
    names = ["a1", "a2", "a3", "b1", "b2", "b3"]
    laid = lay_out([Box(name, 80, 30) for name in names], [("a1", "b3"), ("a2", "b2"), ("a3", "b1")])
    ordered = sorted(("a1", "a2", "a3"), key=lambda name: laid.centres[name][0])
    partners = {"a1": "b3", "a2": "b2", "a3": "b1"}
    assert [laid.centres[partners[name]][0] for name in ordered] == sorted(laid.centres[partners[name]][0] for name in ordered)


def test_a_source_stands_above_its_child_and_not_at_the_top() -> None:
    chain = [("a", "b"), ("b", "c"), ("c", "d"), ("late", "d")]
    laid = lay_out([Box(name, 80, 30) for name in ("a", "b", "c", "d", "late")], chain)
    assert laid.centres["late"][1] == laid.centres["c"][1]


@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_boxes_are_placed_without_overlap(seed: int) -> None:
    rng = random.Random(seed)
    items = boxes(200)
    edges = [(f"n{rng.randrange(max(0, i - 12), i)}", f"n{i}") for i in range(1, 200)]
    laid = lay_out(items, edges)
    assert overlapping(items, dict(laid.centres)) == []


def test_parts_that_nothing_joins_stand_in_rows() -> None:
    items = [Box(f"{part}{step}", 200, 40) for part in "abcdefgh" for step in range(2)]
    edges = [(f"{part}0", f"{part}1") for part in "abcdefgh"]
    laid = lay_out_parts(items, edges, gap_x=20, gap_y=30, width=700)
    assert overlapping(items, dict(laid.centres)) == []
    assert laid.width <= 700 and len({y for _, y in laid.centres.values()}) == 6, "three rows of parts with two boxes each"
    for (upper, lower), way in zip(edges, laid.routes, strict=True):
        (x, y), (end_x, end_y) = laid.centres[upper], laid.centres[lower]
        assert way[0] == (x, y + 20) and way[-1] == (end_x, end_y - 20)
