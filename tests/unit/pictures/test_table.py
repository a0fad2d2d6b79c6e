from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest

from kstreams_repl.pictures.table import Table
from tests.unit.pictures.test_markup import XSS


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    table = Table.of(("key", "count"), [("a", 5), ("long-key", 1234)], note="2 rows")
    assert table.text().splitlines() == ["key       count", "────────  ─────", "a             5", "long-key   1234", "2 rows"]


@pytest.mark.parametrize("number", [336776.25, 123456789.12, 5e-324, 1 / 3, 0.1 + 0.2, 1e22, -0.0, 2.5, 1.7976931348623157e308])
def test_a_float_is_shown_with_all_digits_that_make_it(number: float) -> None:
    table = Table.of(("total",), [(number,), ({"total": number},)])
    shown, inside = table.text().splitlines()[2:]
    assert repr(float(shown)) == repr(number) and json.loads(inside) == {"total": number}
    assert f">{shown.strip()}<" in table.html()


def test_floats_that_are_whole_and_floats_of_numpy_are_plain_numbers_to_the_right() -> None:
    table = Table.of(("total",), [(336776.25,), (5.0,), (np.float64(0.1),), (math.nan,)])
    assert table.text().splitlines() == ["    total", "─────────", "336776.25", "        5", "      0.1", "      nan"]


def test_rows_beyond_the_cap_are_not_shown_and_it_says_so() -> None:
    table = Table.of(("n",), [(i,) for i in range(250)])
    assert table.html().count("<tr>") == 101
    assert "100 of 250 rows" in table.text()


def test_a_huge_value_is_cut() -> None:
    table = Table.of(("value",), [("x" * 10_000_000,)])
    assert len(table.text()) < 300
    assert len(table.html()) < 3000


@pytest.mark.parametrize("hostile", [*XSS, "\x1b]0;title\x07", "\u202egnp.exe", "a\nb"])
def test_hostile_cells_are_inert(hostile: str) -> None:
    table = Table.of((hostile,), [(hostile,), (hostile.encode(),), ({hostile: [hostile]},)], note=hostile, title=hostile)
    assert set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", table.html())) <= {
        "div",
        "style",
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    assert "\x1b" not in table.text() and "\u202e" not in table.text()


def test_a_value_whose_repr_raises_is_shown_as_such() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no")

    assert "RuntimeError while it was shown" in Table.of(("x",), [(Broken(),)]).text()


def test_an_integer_beyond_printing_is_described() -> None:
    assert "bits" in Table.of(("x",), [(10**6000,)]).text()
