"""Instrumentation compiled into a task at the recording levels DEBUG and TRACE: counting entries, timed stores, counting senders.

Counts are exact. Each is a cell (a list of one number) that the closure on the record path increments, so any thread may read it
at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from kstreams_repl.engine.metrics.counters import Counter
from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.operators.tables.table_suppress import TableSuppress
from kstreams_repl.engine.runtime.nodes.collector import RecordCollector, Send, Site
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.engine.topology.nodes import Node, SinkNode, SourceNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.types import Headers

Cell = list[int]

CALLS = {
    "put": "put", "put_raw": "put", "put_item": "put", "put_if_absent": "put-if-absent", "put_all": "put-all",
    "get": "get", "get_raw": "get",
    "fetch": "fetch", "fetch_raw": "fetch", "backward_fetch": "fetch", "fetch_range": "fetch", "backward_fetch_range": "fetch",
    "fetch_all": "fetch", "backward_fetch_all": "fetch", "fetch_session": "fetch", "find_sessions": "fetch",
    "backward_find_sessions": "fetch", "find_sessions_range": "fetch",
    "all": "all", "reverse_all": "all", "backward_all": "all",
    "range": "range", "reverse_range": "range", "prefix_scan": "prefix-scan",
    "flush": "flush", "delete": "delete", "delete_raw": "delete", "remove": "remove",
}  # fmt: skip
"""Store method -> Kafka Streams' name of the operation."""

_AT_ONCE = frozenset({"put", "put_raw", "put_item", "get", "get_raw", "fetch_raw"})
"""Methods that are called for each record and return no iterator."""


def task_meter(spec: TaskSpec) -> TaskMeter | None:
    """Return the meter of a task; None at INFO, where the task is compiled without one."""
    level = spec.config["metrics.recording.level"]
    if level == "INFO":
        return None
    meter = TaskMeter(level)
    meter.sinks(
        spec.subtopology.nodes, lambda topic: f"{spec.application_id}-{topic}" if topic in spec.internal_topics else topic
    )
    return meter


class TaskMeter:
    """`engine.runtime.compiler.metering.Meter` of one task.

    Attributes:
        entered: records that entered a node. emitted: records that a suppression or a closing window emitted.
        lateness: against stream time, ms. ages: at terminal nodes, ms. calls: of a store, ns each, by (store, call).
        stored_ages: when put into a store, ms (TRACE). consumed, produced: (records, bytes) cells by (node, topic).
    """

    def __init__(self, level: str) -> None:
        self._trace = level == "TRACE"
        self._services: Any = None
        self.entered: dict[str, Cell] = {}
        self.emitted: dict[tuple[str, str], Cell] = {}
        self.lateness = Counter()
        self.ages: dict[str, Counter] = {}
        self.calls: dict[tuple[str, str], Counter] = {}
        self.stored_ages: dict[str, Counter] = {}
        self.consumed: dict[tuple[str, str], tuple[Cell, Cell]] = {}
        self.produced: dict[tuple[str, str], tuple[Cell, Cell]] = {}
        self._sinks: dict[str, str] = {}
        self._chooser: str | None = None

    def bind(self, services: object) -> None:
        """Set the task's services, for clock and current record."""
        self._services = services

    def sinks(self, nodes: tuple[Node, ...], real_topic: Callable[[str], str]) -> None:
        """Learn which node writes which topic; a topic chosen per record counts for the first sink that chooses its topic."""
        for node in nodes:
            if isinstance(node, SinkNode):
                if node.topic is not None:
                    self._sinks.setdefault(real_topic(node.topic), node.name)
                elif self._chooser is None:
                    self._chooser = node.name

    # ---- runtime.metering.Meter

    def entry(self, node: Node, entry: Process, *, terminal: bool) -> Process:
        cell = self.entered.setdefault(node.name, [0])
        if isinstance(node, SourceNode):
            return self._source(node.name, cell, entry)
        if terminal:
            return self._terminal(cell, self.ages.setdefault(node.name, Counter()), entry)

        def counted(key: object, value: object, timestamp: int, headers: Headers) -> None:
            cell[0] += 1
            entry(key, value, timestamp, headers)

        return counted

    def output(self, node: Node, forward: Process) -> Process:
        operator = getattr(node, "operator", None)
        if isinstance(operator, TableSuppress):
            kind = "suppression-emit"
        elif getattr(operator, "emit_on_close", False):
            kind = "window-aggregate-final-emit"
        else:
            return forward
        cell = self.emitted.setdefault((node.name, kind), [0])

        def counted(key: object, value: object, timestamp: int, headers: Headers) -> None:
            cell[0] += 1
            forward(key, value, timestamp, headers)

        return counted

    def store(self, builder: StoreBuilder, store: Any) -> None:
        if builder.headers and hasattr(store, "plain"):
            self.store(builder, store.plain)
        inner = [False]
        if getattr(store, "cached", None) is not None:
            store.cached = None  # operators would use its cache entries directly and bypass these calls
        for method, call in CALLS.items():
            inside = getattr(store, method, None)
            if inside is not None:
                counter = self.calls.setdefault((builder.name, call), Counter())
                timed = (_timed_at_once if method in _AT_ONCE else _timed)(inside, counter.add, inner)
                if self._trace and call == "put":
                    timed = self._aged(timed, self.stored_ages.setdefault(builder.name, Counter()))
                setattr(store, method, timed)

    def collector(self, collector: RecordCollector) -> RecordCollector:
        return _CountingCollector(collector, self._counters_of)

    # ---- internals

    def _source(self, name: str, cell: Cell, entry: Process) -> Process:
        record, clock, late = self._services.record, self._services.clock, self.lateness.add
        cells: dict[str, tuple[Cell, Cell]] = {}

        def source(key: object, value: object, timestamp: int, headers: Headers) -> None:
            cell[0] += 1
            topic = record.topic
            found = cells.get(topic)
            if found is None:
                found = cells[topic] = self.consumed.setdefault((name, topic), ([0], [0]))
            found[0][0] += 1
            found[1][0] += len(record.raw_key or b"") + len(record.raw_value or b"")
            behind = clock.now - timestamp
            late(behind if behind > 0 else 0)
            entry(key, value, timestamp, headers)

        return source

    def _terminal(self, cell: Cell, ages: Counter, entry: Process) -> Process:
        add, wall_clock = ages.add, self._services.wall_clock

        def terminal(key: object, value: object, timestamp: int, headers: Headers) -> None:
            cell[0] += 1
            entry(key, value, timestamp, headers)
            add(wall_clock() - timestamp)

        return terminal

    def _aged(self, put: Callable[..., object], ages: Counter) -> Callable[..., object]:
        record, wall_clock, add = self._services.record, self._services.wall_clock, ages.add

        def aged(*args: object, **named: object) -> object:
            add(wall_clock() - record.timestamp)
            return put(*args, **named)

        return aged

    def _counters_of(self, topic: str) -> tuple[Cell, Cell] | None:
        """Return the topic's counters; None for topics that no sink writes: changelogs and dead letters."""
        node = self._sinks.get(topic) or (None if topic.endswith("-changelog") else self._chooser)
        return None if node is None else self.produced.setdefault((node, topic), ([0], [0]))


def _timed(inside: Callable[..., Any], add: Callable[[float], None], inner: list[bool]) -> Callable[..., object]:
    """Return a store's call, timed, except when the store itself makes the call, which `inner` marks."""
    clock = time.perf_counter_ns

    def timed(*args: object, **named: object) -> object:
        if inner[0]:
            return inside(*args, **named)
        inner[0] = True
        began = clock()
        lasts = False
        try:
            found = inside(*args, **named)
            lasts = isinstance(found, Iterator)
        finally:
            inner[0] = False
            if not lasts:
                add(clock() - began)
        return _Rows(found, began, add) if lasts else found

    return timed


def _timed_at_once(inside: Callable[..., object], add: Callable[[float], None], inner: list[bool]) -> Callable[..., object]:
    """Return a store's call timed as by `_timed`, for calls that are complete when they return."""
    clock = time.perf_counter_ns

    def timed(*args: object, **named: object) -> object:
        if inner[0]:
            return inside(*args, **named)
        inner[0] = True
        began = clock()
        try:
            return inside(*args, **named)
        finally:
            add(clock() - began)
            inner[0] = False

    return timed


class _Rows:
    """An iterator of a store: its call lasts until it is exhausted or closed, as in Kafka Streams."""

    __slots__ = ("_rows", "_began", "_add")

    def __init__(self, rows: Iterator[object], began: int, add: Callable[[float], None]) -> None:
        self._rows = rows
        self._began = began
        self._add: Callable[[float], None] | None = add

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> object:
        try:
            return next(self._rows)
        except StopIteration:
            self._end()
            raise

    def close(self) -> None:
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
        self._end()

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        add, self._add = self._add, None
        if add is not None:
            add(time.perf_counter_ns() - self._began)


class _CountingCollector:
    """A record collector that counts records and bytes by topic."""

    def __init__(self, inner: RecordCollector, counters_of: Callable[[str], tuple[Cell, Cell] | None]) -> None:
        self._inner = inner
        self._counters_of = counters_of
        self.partitions = inner.partitions
        self.partition_of = inner.partition_of
        self.rows = getattr(inner, "rows", None)

    def sender(self, topic: str, site: Site | None = None) -> Send:
        send, cells = self._inner.sender(topic, site), self._counters_of(topic)
        if cells is None:
            return send
        records, size = cells

        def counting(key: bytes | None, value: bytes | None, timestamp: int, headers: Headers, partition: int | None = None) -> None:
            send(key, value, timestamp, headers, partition)
            records[0] += 1
            size[0] += len(key or b"") + len(value or b"")

        return counting
