"""What a host calls on a task is `StreamTask`: it reaches nothing behind it (its imports: the contracts in pyproject.toml)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[4] / "kstreams_repl"
BEHIND_A_TASK = {"services", "group", "errors", "entries"}
"""Attributes of `StreamTask` that are its own."""


@pytest.mark.parametrize("floor", ["host", "serving", "test_driver", "repl"])
def test_nothing_reaches_behind_a_task(floor: str) -> None:
    reached = []
    for path in (PACKAGE / floor).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in BEHIND_A_TASK:
                holder = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
                if node.attr == "services" or holder in ("task", "_task", "stream"):
                    reached.append(f"{path.relative_to(PACKAGE)}:{node.lineno} .{node.attr}")
    assert reached == []
