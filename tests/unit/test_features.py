"""The table of the thirty features names, for each, a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| (.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def test_each_of_the_thirty_features_has_a_test_that_exists() -> None:
    rows = _ROW.findall((ROOT / "tests" / "features.md").read_text())
    assert [int(number) for number, _, _ in rows] == list(range(1, 31))
    for number, feature, said in rows:
        tests = _TEST.findall(said)
        assert tests, (number, feature)
        for path, name in tests:
            text = (ROOT / path).read_text()
            assert re.search(rf"^def {name}\(", text, re.MULTILINE) if name else "def test_" in text, f"{number} {feature}: {path}::{name}"
