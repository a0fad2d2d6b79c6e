"""Every seeded mistake is shown, with the node that has it as the first one."""

from __future__ import annotations

import pytest

from tests.unit.repl.session.compare.mistakes import MISTAKES
from tests.unit.repl.session.compare.shop import compared


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_shown_with_the_node_that_has_it(name: str) -> None:
    build, node = MISTAKES[name]
    found = compared(build(False), build(True))
    assert not found.equal and found.first is not None, found.text
    assert found.first.node == node, found.text
    assert found.first.before != found.first.after
    assert found.noise == ()
