"""How many classes stand above each other in the DSL: a method is found in one jump."""

from __future__ import annotations

import pytest

from kstreams_repl.engine.dsl import KGroupedStream, KGroupedTable, KStream, KTable


def levels(kind: type) -> int:
    """Return the length of the longest chain of base classes, without those of Python."""
    if not kind.__module__.startswith("kstreams_repl"):
        return 0
    return 1 + max(map(levels, kind.__bases__), default=0)


@pytest.mark.parametrize("kind", [KStream, KTable, KGroupedStream, KGroupedTable])
def test_a_stream_or_table_has_at_most_three_class_levels(kind: type) -> None:
    assert levels(kind) <= 3


@pytest.mark.parametrize("kind", [KStream, KTable])
def test_each_public_method_stands_in_one_class(kind: type) -> None:
    owners: dict[str, str] = {}
    for owner in kind.__mro__[:-1]:
        for name in vars(owner):
            if not name.startswith("_"):
                assert owners.setdefault(name, owner.__name__) == owner.__name__, f"{name} stands in {owners[name]} and {owner.__name__}"
