from __future__ import annotations

import re
from datetime import datetime
from xml.etree import ElementTree

import pytest

from kstreams_repl.pictures.chart import WIDTH, Chart, ChartKind
from tests.unit.pictures.test_markup import XSS

POINTS = (("UA", 30), ("AA", 10), ("DL", None), ("B6", -5))


def drawn(kind: ChartKind, points: tuple[tuple[object, object], ...], tag: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(str(Chart(kind, points, "x", "y").svg()))
    return root.findall(f"{{http://www.w3.org/2000/svg}}{tag}")


def test_bars_are_as_high_as_their_values_from_a_common_foot() -> None:
    up, small, down = drawn(ChartKind.BAR, POINTS, "rect")
    assert float(up.get("height", 0)) == pytest.approx(3 * float(small.get("height", 0)), rel=0.01)
    foot = float(up.get("y", 0)) + float(up.get("height", 0))
    assert float(down.get("y", 0)) == pytest.approx(foot, abs=0.2)


def test_a_line_goes_in_the_order_of_its_times_whatever_that_of_the_rows() -> None:
    moments = ((datetime(2013, 1, day), day) for day in (3, 1, 2))
    (line,) = drawn(ChartKind.LINE, tuple(moments), "polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points", "").split()]
    assert points == sorted(points) and [y for _, y in points] == sorted((y for _, y in points), reverse=True)


def test_the_label_of_the_last_hour_is_within_the_image() -> None:
    points = ((datetime(2026, 3, 2, 6), 1), (datetime(2026, 3, 3, 19), 2))
    last = drawn(ChartKind.LINE, points, "text")[-1]
    digit = 6.1  # of the notebook's 11 px
    assert last.text == "03-03 19:00" and float(last.get("x", 0)) + len(last.text) * digit / 2 <= WIDTH


def test_a_histogram_counts_every_value_once() -> None:
    bars = drawn(ChartKind.HISTOGRAM, tuple((None, value) for value in (0, 0, 0, 5, 10)), "rect")
    heights = [float(bar.get("height", 0)) for bar in bars]
    assert len(bars) == 20 and [index for index, height in enumerate(heights) if height] == [0, 10, 19]
    assert heights[0] == pytest.approx(3 * heights[10], rel=0.01)


@pytest.mark.parametrize("kind", ChartKind)
@pytest.mark.parametrize(
    "points", [(), (("a", None),), ((1, 5), (2, 5)), ((1, float("nan")), (2, float("inf"))), ((1, 0), (2, 0)), ((1, 10**400), (2, 1))]
)
def test_any_values_make_an_image(kind: ChartKind, points: tuple[tuple[object, object], ...]) -> None:
    ElementTree.fromstring(str(Chart(kind, points, "x", "y").svg()))


@pytest.mark.parametrize("hostile", XSS)
def test_hostile_labels_are_inert(hostile: str) -> None:
    chart = Chart(ChartKind.BAR, ((hostile, 1), ("b", 2)), hostile, hostile, hostile)
    assert set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", chart.svg())) <= {"svg", "title", "text", "rect", "line"}
    assert set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", chart._repr_mimebundle_()["text/html"])) == {"img"}
