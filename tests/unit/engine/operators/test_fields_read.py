"""Which fields a function reads of an object: what is not plainly a read of a field may be anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kstreams_repl.engine.operators.fields_read import fields_read


def two_ways(key: Any, value: Any) -> Any:
    try:
        return value["a"]["inner"] if value is not None and "b" in value else value.get("c", 0)
    except KeyError:
        return value.get("d")


def formatted(key: Any, value: Any) -> str:
    if value is None:
        return ""
    return f"{value['a']}-{value['b']}"


def replaced(key: Any, value: Any) -> Any:
    value = value["a"]
    return value


def written(key: Any, value: Any) -> Any:
    value["a"] += 1
    return value["a"]


def deleted(key: Any, value: Any) -> None:
    del value["a"]


def captured(key: Any, value: Any) -> Any:
    return [lambda: value["a"], value["a"]]


def of_the_frame(key: Any, value: Any) -> Any:
    return value["a"], locals()


def looped(key: Any, value: Any) -> Any:
    return [value["a"] for value in [value]]


def generated(key: Any, value: Any) -> Any:
    yield value["a"]


def with_a_default(key: Any, value: Any) -> Any:
    return value.get("a", key)


READS: list[tuple[Callable[..., Any], set[str]]] = [
    (lambda key, value: value["price"] * 2 + value["count"], {"price", "count"}),
    (lambda key, value: key, set()),
    (lambda key, value: value is None, set()),
    (lambda key, value: "a" not in value, {"a"}),
    (two_ways, {"a", "b", "c", "d"}),
    (formatted, {"a", "b"}),
]
OTHERS: list[Any] = [
    lambda key, value: value,
    lambda key, value: value[key],
    lambda key, value: value[0],
    lambda key, value: value["a" if key else "b"],
    lambda key, value: value.get(key),
    lambda key, value: value.get("a" + key),
    lambda key, value: value.items(),
    lambda key, value: len(value),
    lambda key, value: value == {},
    lambda key, value: {**value, "a": 1},
    lambda key, value: value or 1,
    lambda key, value: key in value,
    lambda *both: both[1]["a"],
    lambda key, *, value=None: value["a"],
    partial(lambda more, key, value: value["a"], 1),
    replaced, written, deleted, captured, of_the_frame, looped, generated, with_a_default, len,
]  # fmt: skip


@pytest.mark.parametrize(("function", "fields"), READS)
def test_fields_that_are_read_are_found(function: Callable[..., Any], fields: set[str]) -> None:
    assert fields_read(function, 1) == fields


@pytest.mark.parametrize("function", OTHERS)
def test_any_other_use_may_read_every_field(function: Callable[..., Any]) -> None:
    assert fields_read(function, 1) is None
