"""Signatures of the public API say what a call takes: completion and a type checker know every argument by its name."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from kstreams_repl.engine import dsl
from tests.unit.public_api import functions

OPEN = {
    "StreamsConfig.__init__": "settings, by key",
    "StreamsConfig.with_": "settings, by key",
    "Session.deploy": "settings, by key",
    "Session.run_batch": "settings, by key",
    "Session.sql": "dataframes, by the name that the query has for them",
    "Look.sql": "dataframes, by the name that the query has for them",
    "Application.sql": "dataframes, by the name that the query has for them",
    "KStreamsError.__init__": "what an error says of where it happened",
}
"""Functions whose keyword arguments are an open set of values of any type, and what they are."""


def starred(function: Any) -> str | None:
    """The annotation of a function's `**` argument; None when it has none."""
    kinds = inspect.signature(function).parameters.values()
    return next((str(each.annotation) for each in kinds if each.kind is inspect.Parameter.VAR_KEYWORD), None)


def test_no_public_function_takes_any_keyword_argument() -> None:
    taken = {name: annotation for name, function in functions().items() if (annotation := starred(function)) is not None}
    assert "Any" not in taken.values()
    assert {name for name, annotation in taken.items() if annotation == "object"} == set(OPEN)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("KGroupedStream.count", {"store", "name", "caching", "logging", "history", "persistent", "topic_config"}),
        ("TimeWindowedKStream.count", {"store", "name", "caching", "logging", "retention", "persistent", "topic_config"}),
        ("KStream.join", {"windows", "with_key", "name", "key", "grace", "store", "key_serde", "value_serde", "other_value_serde"}),
        ("KTable.join", {"foreign_key", "foreign_key_with_key", "partitioner", "other_partitioner", "with_key", "store", "history"}),
        ("KTable.to", {"name", "key_serde", "value_serde", "partitioner"}),
    ],
)
def test_arguments_are_spelled_out(method: str, arguments: set[str]) -> None:
    kind, name = method.split(".")
    assert arguments <= set(inspect.signature(getattr(getattr(dsl, kind), name)).parameters)


def test_a_dry_run_is_asked_for_everywhere_by_the_same_argument() -> None:
    """Never the default; `session.plan` is that of `deploy`, whose answer is a running application (docs/tasks/building.md)."""
    asked = {name: function for name, function in functions().items() if "dry_run" in inspect.signature(function).parameters}
    assert set(asked) == {"Application.edit", "Application.fork", "Session.cleanup", "Session.reset"}
    for function in asked.values():
        assert inspect.signature(function).parameters["dry_run"].default is False


OTHER_MEANINGS = {
    "Application.wait": "until= is a condition there",
    "Admin.__init__": "of every call, set once",
    "BatchReport.__init__": "seconds is a duration that was measured",
    "StoreBuilder.__init__": "a description with the figures that the engine reads; `Stores` makes one of durations",
}


def test_one_name_for_one_meaning() -> None:
    """`timeout`, `start`, `end`, `dry_run`, `retention` and `history` have no second name (docs/tasks/building.md)."""
    others = {"seconds", "since", "until", "confirm", "retention_ms", "history_ms"}
    own = [name for name, function in functions().items() if others & set(inspect.signature(function).parameters)]
    assert [name for name in own if name not in OTHER_MEANINGS] == []
