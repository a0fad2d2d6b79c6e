"""What changes nothing shows no difference."""

from __future__ import annotations

import pytest

from tests.unit.repl.session.compare.refactorings import REFACTORINGS
from tests.unit.repl.session.compare.shop import compared


@pytest.mark.parametrize("name", REFACTORINGS)
def test_a_refactoring_shows_no_difference(name: str) -> None:
    build = REFACTORINGS[name]
    found = compared(build(False), build(True))
    assert found.equal and found.first is None, found.text
    assert found.noise == () and found.notes == ()
    assert sum(each.equal for each in found.rows) > 20, found.text
