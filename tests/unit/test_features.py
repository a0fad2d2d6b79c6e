"""The tables of features and of incidents name, for each, a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize(("page", "count"), [("features.md", 30), ("incidents.md", 10)])
def test_each_of_the_features_and_incidents_has_a_test_that_exists(page: str, count: int) -> None:
    rows = _ROW.findall((ROOT / "tests" / page).read_text())
    assert [int(number) for number, _, _ in rows] == list(range(1, count + 1))
    for number, feature, said in rows:
        tests = _TEST.findall(said)
        assert tests, (number, feature)
        for path, name in tests:
            text = (ROOT / path).read_text()
            assert re.search(rf"^def {name}\(", text, re.MULTILINE) if name else "def test_" in text, f"{number} {feature}: {path}::{name}"
