"""Spans of sampled records: what a task did with one record, which nodes it passed, and which records wrote the rows that it read.

Actors: a `Tracer` (the host's) chooses records of each batch and starts a `Span` for one. `RecordSpans`, one per task, puts the span around
the record: its headers name the span while the record is processed, so everything that is sent for it carries on the trace; the nodes'
edges are tapped for that one record; rows that it changed are remembered with its span, so that the span of a later record that finds the
same row can refer to it. The other records of the batch are processed as without tracing.

A node is taken to read the rows of its record's key in its key-value stores, as joins and aggregates do. Windows, sessions and what a
processor looks up by other keys have no reference. What a row remembers is lost when the task moves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.runtime.compiler.tap_points import TapPoints
from kstreams_repl.engine.stores.kinds.key_value import KeyValue
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode
from kstreams_repl.system.types import Headers, RecordBatch

ROWS_REMEMBERED = 10_000
"""Rows of one task whose writer is known."""


class Span(Protocol):
    """The span of one record in one task."""

    headers: Headers
    """The record's headers, with the span as parent of what follows from it."""
    context: Any
    """What refers to it; kept as long as a row does."""

    def passed(self, node: str) -> None:
        """Note that the node has put out a record."""

    def read(self, store: str, writer: Any) -> None:
        """Refer to the span of the record that wrote a row of the store."""

    def end(self, error: BaseException | None) -> None:
        """The record is processed, or has failed."""


class Tracer(Protocol):
    """Chooses records, and makes their spans."""

    def choose(self, batch: RecordBatch, *, internal: bool) -> Sequence[int]:
        """Return the indices of the records to trace. An internal topic's traces all began before."""

    def start(self, task: str, record: RecordContext) -> Span: ...


class RecordSpans:
    """The spans of one task."""

    def __init__(self, tracer: Tracer, task: str, nodes: Sequence[Node], points: TapPoints, stores: Mapping[str, object]) -> None:
        self._tracer, self._task, self._points = tracer, task, points
        self._read_after: dict[str, list[tuple[str, KeyValue]]] = {}
        """Node -> the stores of its children."""
        for node in nodes:
            for parent in node.parents if isinstance(node, ProcessorNode) else ():
                opened = ((name, getattr(stores.get(name), "plain", stores.get(name))) for name in node.stores)  # type: ignore[union-attr]
                self._read_after.setdefault(parent, []).extend((name, store) for name, store in opened if isinstance(store, KeyValue))
        self._writers: OrderedDict[tuple[str, bytes], tuple[object, object]] = OrderedDict()
        self._touched: dict[tuple[str, bytes], tuple[KeyValue, object]] = {}
        self._span: Span | None = None
        self._taps = [_NodeTap(self, node.name) for node in nodes]

    def choose(self, batch: RecordBatch, *, internal: bool) -> Sequence[int]:
        return self._tracer.choose(batch, internal=internal)

    def begin(self, record: RecordContext) -> Headers:
        """Start the span of the task's current record; return its headers."""
        self._span = self._tracer.start(self._task, record)
        self._tap("attach")
        return self._span.headers

    def end(self, error: BaseException | None) -> None:
        self._tap("detach")
        span, self._span = self._span, None
        assert span is not None
        for (name, data), (store, before) in self._touched.items():
            with suppress(Exception):  # a store that failed with the record
                after = store.get_raw(data)
                if after is not None and after != before:
                    self._writers[(name, data)] = (span.context, after)
        self._touched.clear()
        while len(self._writers) > ROWS_REMEMBERED:
            self._writers.popitem(last=False)
        span.end(error)

    def passed(self, node: str, key: object) -> None:
        """A node puts out a record; its children have not got it yet."""
        assert self._span is not None
        self._span.passed(node)
        for name, store in self._read_after.get(node, ()):
            data = None if key is None else store.serialize_key(key)
            if data is None or (name, data) in self._touched:
                continue
            row = store.get_raw(data)
            self._touched[(name, data)] = (store, row)
            writer = self._writers.get((name, data))
            if writer is not None and writer[1] == row:
                self._span.read(name, writer[0])

    def _tap(self, change: str) -> None:
        for tap in self._taps:
            for point in self._points.of(tap.node):
                getattr(point, change)(tap)


class _NodeTap:
    """`tap_points.Observer` of one node."""

    def __init__(self, spans: RecordSpans, node: str) -> None:
        self.node, self._passed = node, spans.passed

    def record(self, key: object, value: object, timestamp: int, headers: object) -> None:
        self._passed(self.node, key)

    def rows(self, keys: Sequence[object], values: object, timestamps: object, headers: object) -> None:
        """Rows leave with a commit, not with a record."""
