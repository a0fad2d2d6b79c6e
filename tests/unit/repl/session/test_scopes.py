"""Which of the module's names a statement reads, binds and changes, by Python's scopes; and what of a program is left out."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

from kstreams_repl.repl.session.source.scopes import names_of
from tests.unit.repl.session.test_source_slice import Recorder, deployed, gives


@pytest.fixture(autouse=True)
def session_with_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("produce", "topics"):
        monkeypatch.setattr(Recorder, name, lambda self, *given: None, raising=False)
    monkeypatch.setattr(Recorder, "note", staticmethod(os.strerror), raising=False)


@pytest.mark.parametrize(
    ("text", "reads", "binds"),
    [
        ("x = [j for j in y]", "y", "x"),
        ("x = [(n := j) for j in y]", "y", "n x"),
        ("x = {j: k for j in y for k in j if k}", "y", "x"),
        ("f = lambda j, k=z: j + k + n", "n z", "f"),
        ("def f(a, b=c):\n    d = a + e\n    return [d for d in a]", "c e", "f"),
        ("def f():\n    global n\n    n = 1", "n", "f"),
        ("def f():\n    x = 1\n    def g():\n        nonlocal x\n        x = y\n    return g", "y", "f"),
        ("class A(B):\n    a = c\n    b = a\n    def f(self):\n        return a", "B a c", "A"),
        ("try:\n    x = a\nexcept E as e:\n    x = e", "E a", "x"),
        ("with a as (b, c):\n    d = b", "a", "b c d"),
        ("match a:\n    case {'k': b, **c}:\n        d = b\n    case [*f] | (f as g):\n        pass", "a", "b c d f g"),
        ("for j in r:\n    q = q.map(j)", "q r", "j q"),
        ("x += y", "x y", "x"),
        ("del x", "x", ""),
        ("import a.b, c as d", "", "a d"),
    ],
)
def test_names_are_those_of_the_module(text: str, reads: str, binds: str) -> None:
    names = names_of(ast.parse(text).body[0])
    assert (" ".join(sorted(names.reads)), " ".join(sorted(names.binds))) == (reads, binds)


W12 = """
import kstreams_repl as ks
session.produce("qq", [(f"k{j}", j) for j in range(3)])
builder = ks.StreamsBuilder()
q = builder.stream("in", value_serde="string")
for j in range(2):
    session.note(j)
    q = q.map_values(lambda v, j=j: f"{v}{j}")
q.to("out", value_serde="json")
session.deploy(builder, "app")
"""


def test_a_comprehension_of_a_cell_that_produces_shares_no_name_with_a_loop(tmp_path: Path) -> None:
    """The slice took the comprehension's `j` for the loop's: the program connected and produced."""
    program = deployed(W12.replace("    session.note(j)\n", ""), tmp_path).program
    assert program.missing == () and "session" not in program.text
    assert gives(program) == "x01"


@pytest.mark.parametrize("effect", ["eval('1')", "session.topics()", "(lambda: open('/dev/null').close())()", "__import__('os').getcwd()"])
def test_what_the_topology_needs_and_may_have_effects_is_named(effect: str, tmp_path: Path) -> None:
    limit = f"LIMIT = [lambda: 1, {effect}][0]\nbuilder = ks"
    script = W12.replace("session.note(j)", "pass").replace("builder = ks", limit)
    program = deployed(script.replace('{v}{j}"', '{v}{LIMIT}"'), tmp_path).program
    assert len(program.missing) == 1 and program.missing[0].startswith("LIMIT (line 4 of ") and "LIMIT =" not in program.text


def test_a_call_in_a_block_that_is_not_needed_is_left_out_and_said(tmp_path: Path) -> None:
    program = deployed(W12, tmp_path).program
    assert program.missing == () and "# left out, because it has effects: session.note" in program.text
    assert "session.produce" not in program.text
    assert gives(program) == "x01"
