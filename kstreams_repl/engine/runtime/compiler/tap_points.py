"""Taps on a running task: observe the records between nodes, at no cost while nothing is observed.

Actors: an *edge* is the function object through which one node's records reach its children; every node calls its own edge (a copy that
shares code and closure with the child's entry, so that it costs as much as calling the child). A `TapPoint` changes an edge's code in
place to "observe, then continue" and changes it back; nothing is recompiled, so processors, stores, caches and schedules stay as they
are. `TapPoints` has the edges of every node. Invariants: code changes only between two records, on the task's own thread; an observer
that raises is detached and has no other effect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, Protocol

from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode
from kstreams_repl.system.types import Headers


class Observer(Protocol):
    """Sees what one node puts out (a sink: what it takes in). Must copy what it keeps: nodes downstream may modify values in place."""

    def record(self, key: object, value: object, timestamp: int, headers: object) -> None:
        """Observe one record before the children get it."""

    def rows(
        self, keys: Sequence[object], values: Sequence[object], timestamps: Sequence[int], headers: Sequence[object] | None
    ) -> None:
        """Observe serialized rows of a cached store on their way to a topic, in columns; headers None when no row has any."""


class TapPoint:
    """One edge that can be observed."""

    def __init__(self, edge: Any, *, rows: bool = False) -> None:
        self._edge: Any = edge.__func__ if isinstance(edge, MethodType) else edge
        self._bound = isinstance(edge, MethodType)
        self._rows = rows
        self._code, self._defaults = self._edge.__code__, self._edge.__defaults__
        self._observers: tuple[Observer, ...] = ()

    @property
    def observed(self) -> bool:
        return bool(self._observers)

    def attach(self, observer: Observer) -> None:
        self._put((*self._observers, observer))

    def detach(self, observer: Observer) -> None:
        self._put(tuple(other for other in self._observers if other is not observer))

    def _put(self, observers: tuple[Observer, ...]) -> None:
        self._observers = observers
        edge = self._edge
        if not observers:
            edge.__code__, edge.__defaults__ = self._code, self._defaults
            return
        onward = FunctionType(self._code, edge.__globals__, edge.__name__, self._defaults, edge.__closure__)
        onward.__kwdefaults__ = edge.__kwdefaults__
        calls = tuple((observer, observer.rows if self._rows else observer.record) for observer in observers)

        def observe(*record: Any) -> None:
            for observer, call in calls:
                try:
                    call(*record)
                except Exception:  # an observer must never fail the task
                    self.detach(observer)

        edge.__defaults__ = (observe, onward)
        edge.__code__ = _observing(len(self._code.co_freevars), bound=self._bound)


class TapPoints:
    """The edges of one task by node, collected while its nodes are built."""

    def __init__(self) -> None:
        self._outputs: dict[str, list[TapPoint]] = {}
        self._points: list[TapPoint] = []

    def edge(self, entry: Process, *nodes: str) -> Process:
        """Return a copy of the function `entry`; tapping any of the nodes taps it."""
        copied = _copy(entry)
        self._note(TapPoint(copied), nodes)
        return copied

    def watched(self) -> bool:
        """Return whether any edge is observed now."""
        return any(point.observed for point in self._points)

    def rows(self, outlet: object, nodes: Sequence[str]) -> None:
        """Register the outlet by which rows of a cached store pass these nodes in columns."""
        self._note(TapPoint(outlet, rows=True), nodes)

    def of(self, node: str) -> Sequence[TapPoint]:
        return self._outputs.get(node, ())

    def same(self, node: str, parents: Sequence[str], sinks: Sequence[str]) -> None:
        """Register a node that forwards its parents' output unchanged: it, and a sink that is its only child, share the parents' edges."""
        points = [point for parent in parents for point in self._outputs.get(parent, ())]
        self._outputs[node] = points
        for sink in sinks:
            own = self._outputs.setdefault(sink, [])
            own += [point for point in points if point not in own]

    def _note(self, point: TapPoint, nodes: Sequence[str]) -> None:
        self._points.append(point)
        for node in nodes:
            self._outputs.setdefault(node, []).append(point)


def sends_changes(node: Node) -> bool:
    """Return whether a node's output values are a table's ``(new, old, is_latest)``."""
    if not isinstance(node, ProcessorNode):
        return False
    module = type(node.operator).__module__.rpartition(".")[2]
    return module != "table_to_stream" and (module.startswith("table_") or module.endswith("_aggregate"))


def _copy(entry: Process) -> Process:
    """Return another function object with the same code and the same closure."""
    if isinstance(entry, MethodType):
        return MethodType(_copy_function(entry.__func__), entry.__self__)
    if isinstance(entry, FunctionType):
        return _copy_function(entry)

    def call(key: object, value: object, timestamp: int, headers: Headers) -> None:
        entry(key, value, timestamp, headers)

    return call


def _copy_function(entry: Callable[..., object]) -> FunctionType:
    copied = FunctionType(entry.__code__, entry.__globals__, entry.__name__, entry.__defaults__, entry.__closure__)
    copied.__kwdefaults__ = entry.__kwdefaults__
    copied.__dict__.update(entry.__dict__)
    return copied


_codes: dict[tuple[int, bool], CodeType] = {}


def _observing(free: int, *, bound: bool) -> CodeType:
    """Return the code of "observe, then continue" for a function with `free` closure variables: Python lets a function change its code only
    to one with the same number. Observer and original are its defaults.
    """
    made = _codes.get((free, bound))
    if made is not None:
        return made
    names = [f"closed_{number}" for number in range(free)]
    arguments = "key, value, timestamp, headers"
    first = "self, " if bound else ""
    lines = [
        "def make():",
        *(f"    {name} = None" for name in names),
        f"    def observed({first}{arguments}, observe=None, onward=None):",
        *(f"        if False: {name}" for name in names),
        f"        observe({arguments})",
        f"        onward({first}{arguments})",
        "    return observed",
    ]
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines), "<tap>", "exec"), space)
    make: Callable[[], FunctionType] = space["make"]
    code = make().__code__
    assert len(code.co_freevars) == free
    _codes[(free, bound)] = code
    return code

