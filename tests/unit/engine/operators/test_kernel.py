"""A kernel does what its work says, in fewer steps."""

from __future__ import annotations

import gc
import inspect
import linecache
import traceback
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.engine.operators import kernel as kernel_module
from kstreams_repl.engine.operators.kernel import definition, inlined, kernel
from kstreams_repl.engine.operators.loop_lines import inline_of
from kstreams_repl.system.errors import DeployError


class Node:
    """A node that keeps what it forwards and drops."""

    name = "node"

    def __init__(self) -> None:
        self.record = SimpleNamespace(timestamp=-1, headers=[])
        self.dropped: list[str] = []
        self.given: list[tuple[Any, Any, int]] = []

    def drop(self, reason: str) -> None:
        self.dropped.append(reason)

    def forward(self, key: Any, value: Any, timestamp: int, headers: Any) -> None:
        self.given.append((key, value, timestamp))


def names_of(entry: Any) -> set[str]:
    return {*entry.__code__.co_freevars, *entry.__code__.co_names}


@pytest.mark.parametrize("negate", [True, False])
def test_a_test_of_a_constant_is_decided_when_the_node_is_built(negate: bool) -> None:
    node = Node()
    forward = node.forward

    def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        if not value if negate else value:
            forward(key, value, timestamp, headers)

    entry = kernel(node, work)  # type: ignore[arg-type]
    for value in (0, 1):
        entry("k", value, 5, [])
    assert node.given == [("k", 0 if negate else 1, 5)]
    assert "negate" not in names_of(entry)


def test_generated_code_keeps_no_node_alive() -> None:
    """It kept the first node of each shape, with its task's clients: an instance that had stopped stayed connected."""

    def built() -> weakref.ref[Node]:
        node = Node()
        forward = node.forward

        def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
            forward(key, value, timestamp, headers)

        kernel(node, work)  # type: ignore[arg-type]
        return weakref.ref(node)

    gone = built()
    gc.collect()
    assert gone() is None


def test_records_without_a_key_are_dropped_and_counted() -> None:
    node = Node()
    forward = node.forward

    def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        forward(key, value, timestamp, headers)

    entry = kernel(node, work, null="key or value")  # type: ignore[arg-type]
    for key, value in ((None, 1), ("k", None), ("k", 1)):
        entry(key, value, 0, [])
    assert (node.dropped, node.given) == (["null key or value"] * 2, [("k", 1, 0)])


def test_an_inlined_function_is_not_called() -> None:
    node = Node()
    forward, step = node.forward, 10

    @inlined
    def add(key: Any, number: int) -> int:
        return number + step

    @inlined
    def finish(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        if value is None:
            value = -1
        forward(key, value, timestamp, headers)

    def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        finish(key, None if value is None else add(key, value), timestamp, headers)

    entry = kernel(node, work)  # type: ignore[arg-type]
    for value in (1, None):
        entry("k", value, 0, [])
    assert [value for _, value, _ in node.given] == [11, -1]
    assert not names_of(entry) & {"add", "finish"}


@pytest.mark.parametrize("one", [True, False])
def test_a_loop_over_one_value_becomes_its_body(one: bool) -> None:
    node = Node()
    forward = node.forward

    def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        for number in (value,) if one else range(value):
            if number % 2:
                continue
            forward(key, number, timestamp, headers)

    entry = kernel(node, work)  # type: ignore[arg-type]
    for value in (4, 5):
        entry("k", value, 0, [])
    assert [value for _, value, _ in node.given] == ([4] if one else [0, 2, 0, 2, 4])


def test_work_that_forwards_twice_or_at_another_time_has_no_lines() -> None:
    node = Node()
    forward = node.forward

    def twice(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        forward(key, value, timestamp, headers)
        forward(key, value, timestamp, headers)

    def later(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        forward(key, value, timestamp + 1, headers)

    def once(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        if value:
            forward(key, str(value), timestamp, headers)

    assert [inline_of(kernel(node, work)) is None for work in (twice, later, once)] == [True, True, False]  # type: ignore[arg-type]


def test_a_call_that_is_not_declared_gets_the_coordinates_or_no_lines() -> None:
    node = Node()
    forward, read = node.forward, dict(k=1).get

    def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        forward(key, read(key), timestamp, headers)

    assert inline_of(kernel(node, work)) is None  # type: ignore[arg-type]
    found = inline_of(kernel(node, work, quick={"read"}))  # type: ignore[arg-type]
    assert found is not None and found.lines == ("value = its_read(key)",)


def test_an_error_shows_the_line_of_the_work() -> None:
    node = Node()

    def work(key: Any, value: Any, timestamp: int, headers: Any) -> None:
        raise ValueError(value)

    with pytest.raises(ValueError) as raised:
        kernel(node, work)("k", 1, 0, [])  # type: ignore[arg-type]
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (__file__, inspect.getsourcelines(work)[1] + 1)


def test_a_file_that_changed_since_the_import_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None: ...

    monkeypatch.setattr(linecache, "getlines", lambda *arguments: ["pass"])
    monkeypatch.setattr(kernel_module, "_functions", kernel_module._functions.__wrapped__)
    with pytest.raises(DeployError, match="has changed since it was imported"):
        definition(work)
