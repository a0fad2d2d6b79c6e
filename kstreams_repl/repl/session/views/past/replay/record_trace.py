"""`RecordTrace`: the way of one record through the nodes of its task, in the order of execution.

Actors: a `TraceMeter`, with which a task is compiled (`engine.runtime.compiler.metering`, as for metrics at DEBUG): it sees each node's
entry and output, each call of a store and each drop. Invariants: a task without one pays nothing; what is kept are copies, because nodes
may change values in place; what runs runs on the caller's thread and as deployed, one record at a time.

A cached store forwards at the commit that follows the record, as in a test driver; such an output is a visit of its node without input.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.processor.punctuation import PunctuationType
from kstreams_repl.engine.processor.record_context import ContextSnapshot
from kstreams_repl.engine.runtime.nodes.collector import RecordCollector
from kstreams_repl.engine.topology.nodes import Node, SinkNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.instance.tasks.task_instrumentation import CALLS
from kstreams_repl.pictures.frames import Frames
from kstreams_repl.pictures.table import Table
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import Headers, RecordPosition, Windowed
from kstreams_repl.test_driver.host import DriverCollector


class TracedRecord(NamedTuple):
    """One record between two nodes; of a table, the value is ``(new, old, is_latest)``."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers


class SentRecord(NamedTuple):
    """One record as it would have been sent: to an output, a repartition topic or a changelog."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int


class StoreAccess(NamedTuple):
    """One call of a store.

    Attributes:
        call: Kafka Streams' name of the operation, such as ``get`` or ``put``.
        key: the row's key; with its time in a window or session store, and the range's bounds if the call reads a range.
        before, after: the row before and after the call; the same for a read, whose rows are a list if it reads several. None for a
            buffer of an operator, whose key is then all that was put.
        one_row: whether `key` is the key of one row: neither a range nor a row as of a time, nor what a buffer was given.
    """

    store: str
    call: str
    key: Any
    before: Any
    after: Any
    one_row: bool = False


@dataclass(slots=True, repr=False)
class NodeVisit(Frames):
    """One visit of a node; complete when its record is.

    Attributes:
        depth: how many nodes called each other to get here; 0 for a source.
        input: None: the node was not called with a record (a cached row leaves at the commit, a punctuation).
        outputs: what it forwarded, once for each call.
        sent: what a sink sent.
        drops: reasons why it dropped a record.
        error: what was raised in it, not in a node that it called.
    """

    node: str
    depth: int
    input: TracedRecord | None
    outputs: list[TracedRecord] = field(default_factory=list)
    sent: list[SentRecord] = field(default_factory=list)
    stores: list[StoreAccess] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    error: BaseException | None = None

    def table(self) -> Table:
        """Return what it got, did and gave, a row for each.

        Example:
            >>> debugger.step().table()                    # doctest: +SKIP
        """
        rows: list[tuple[object, ...]] = [] if self.input is None else [("input", *self.input[:3])]
        rows += [("output", *output[:3]) for output in self.outputs]
        rows += [(f"{access.call} {access.store}", access.key, _change_text(access), "") for access in self.stores]
        rows += [(f"sent to {sent.topic}-{sent.partition}", sent.key, sent.value, sent.timestamp) for sent in self.sent]
        rows += [("dropped", "", reason, "") for reason in self.drops]
        return Table.of(
            ("", "key", "value", "timestamp"), rows, title=self.node, warning="" if self.error is None else repr(self.error)
        )

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_(include, exclude)


@dataclass(frozen=True, slots=True, repr=False)
class RecordTrace(Frames):
    """What happened to one record; shows itself as a table with a row for each visit.

    Attributes:
        position: where the record is in Kafka.
        visits: the nodes in the order in which they were entered.
        sent: all that the record sent, changelogs included.
        error: what ended the task, with its coordinates; its cause is what was raised. None: nothing was, or a handler went on.
    """

    position: RecordPosition
    visits: tuple[NodeVisit, ...]
    sent: tuple[SentRecord, ...]
    error: KStreamsError | None = None

    @property
    def raised(self) -> BaseException | None:
        """What was raised first, whether or not a handler went on; None: nothing was."""
        return next((visit.error for visit in self.visits if visit.error is not None), self.error)

    def table(self, current: int | None = None) -> Table:
        """Return a row for each visit: node, input, outputs, accesses of stores, drops and errors.

        Args:
            current: index of the visit that is marked; None: no one.

        Example:
            >>> debugger.again().table()                   # doctest: +SKIP
        """
        rows = [
            (
                "▶" if index == current else "",
                "  " * visit.depth + visit.node,
                *(("", "", "") if visit.input is None else visit.input[:3]),
                ", ".join(f"{output.key!r}: {output.value!r}" for output in visit.outputs)
                or ", ".join(f"{sent.topic}-{sent.partition}" for sent in visit.sent),
                "; ".join(f"{access.call} {access.store}[{access.key!r}]: {_change_text(access)}" for access in visit.stores),
                "; ".join([*(f"dropped: {reason}" for reason in visit.drops), *([repr(visit.error)] if visit.error else [])]),
            )
            for index, visit in enumerate(self.visits)
        ]
        columns = ("", "node", "key", "value", "timestamp", "output", "stores", "dropped or raised")
        return Table.of(columns, rows, title=f"{self.position}", warning="" if self.error is None else self.error.message)

    def __repr__(self) -> str:
        end = "" if self.error is None else f", {type(self.error.__cause__ or self.error).__name__}"
        return f"RecordTrace({self.position}, {len(self.visits)} visits, {len(self.sent)} records sent{end})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self.table()._repr_mimebundle_(include, exclude)


def _change_text(access: StoreAccess) -> str:
    return f"{access.before!r}" if access.before is access.after else f"{access.before!r} → {access.after!r}"


_CALLS = CALLS | {
    "find_raw": "fetch", "fetch_key_raw": "fetch", "range_raw": "range", "prefix_scan_raw": "prefix-scan", "find_closed": "fetch",
    "prior_value": "get", "versions": "fetch",
}  # fmt: skip
del _CALLS["flush"]
WRITES = frozenset({"put", "put-if-absent", "put-all", "delete", "remove"})


class TraceMeter:
    """`engine.runtime.compiler.metering.Meter` that notes what passes nodes and stores.

    Attributes:
        visits: since the last `take`.
    """

    def __init__(self) -> None:
        self.visits: list[NodeVisit] = []
        self._open: list[NodeVisit] = []
        self._emitting: list[NodeVisit] = []
        self._raised: BaseException | None = None
        self._collector: DriverCollector | None = None

    def take(self) -> tuple[NodeVisit, ...]:
        """Return the visits since the last call."""
        visits, self.visits = tuple(self.visits), []
        self._open.clear()
        self._emitting.clear()
        return visits

    def _enter(self, node: str, record: TracedRecord | None) -> NodeVisit:
        caller = self._open[-1] if self._open else None
        if caller is not None and record is not None and (not self._emitting or self._emitting[-1] is not caller):
            caller.outputs.append(record)  # forwarded to one child
        visit = NodeVisit(node, len(self._open), record)
        self.visits.append(visit)
        self._open.append(visit)
        return visit

    def _failed(self, visit: NodeVisit, error: BaseException) -> None:
        if self._raised is not error:
            self._raised = visit.error = error

    # ---- Meter

    def bind(self, services: Any) -> None:
        """Note drops and punctuations, too."""
        drop = services.drop

        def noted(reason: str, node: str, needed_grace_ms: int = 0) -> None:
            drop(reason, node, needed_grace_ms)
            failed = (each for each in reversed(self.visits) if each.node == node and each.error is not None)  # a handler skips it
            visit = next((each for each in reversed(self._open) if each.node == node), None) or next(failed, None)
            if visit is None:
                visit = NodeVisit(node, len(self._open), None)
                self.visits.append(visit)
            visit.drops.append(reason)

        services.drop = noted
        schedule = services.schedule

        def scheduled(node: str, interval: int, kind: PunctuationType, callback: Callable[[int], None], start: int | None = None) -> Any:
            def punctuated(now: int) -> None:
                visit = self._enter(node, None)
                try:
                    callback(now)
                except BaseException as error:
                    self._failed(visit, error)
                    raise
                finally:
                    self._open.pop()

            return schedule(node, interval, kind, punctuated, start)

        services.schedule = scheduled

    def entry(self, node: Node, entry: Process, *, terminal: bool) -> Process:
        name, sends = node.name, isinstance(node, SinkNode)

        def visited(key: object, value: object, timestamp: int, headers: Headers) -> None:
            visit = self._enter(name, _copied(key, value, timestamp, headers))
            sent = [] if self._collector is None else self._collector.sent
            before = len(sent)
            try:
                entry(key, value, timestamp, headers)
            except BaseException as error:
                self._failed(visit, error)
                raise
            finally:
                self._open.pop()
                if sends:
                    visit.sent += (SentRecord(*each) for each in sent[before:])

        return visited

    def output(self, node: Node, forward: Process) -> Process:
        name = node.name

        def emitted(key: object, value: object, timestamp: int, headers: Headers) -> None:
            alone = not self._open or self._open[-1].node != name
            visit = self._enter(name, None) if alone else self._open[-1]
            visit.outputs.append(_copied(key, value, timestamp, headers))
            self._emitting.append(visit)
            try:
                forward(key, value, timestamp, headers)
            finally:
                self._emitting.pop()
                if alone:
                    self._open.pop()

        return emitted

    def store(self, builder: StoreBuilder, store: Any) -> None:
        self._watch(builder.name, store)

    def global_store(self, name: str, store: Any) -> Any:
        """Return a global store whose reads are noted; the store itself is shared, and stays as it is."""
        watched = copy.copy(store)
        if hasattr(watched, "plain"):
            watched.plain = copy.copy(watched.plain)
        self._watch(name, watched)
        return watched

    def _watch(self, name: str, store: Any) -> None:
        if hasattr(store, "plain"):
            self._watch(name, store.plain)
        if getattr(store, "cached", None) is not None:
            store.cached = None  # operators would use its entries without a call
        if hasattr(store, "indexable"):
            store.indexable = False  # an index reads the whole store
        inner = [False]
        for method, call in _CALLS.items():
            inside = getattr(store, method, None)
            if inside is not None:
                setattr(store, method, self._noted(name, store, method, call, inside, inner))

    def collector(self, collector: RecordCollector) -> RecordCollector:
        assert isinstance(collector, DriverCollector)
        self._collector = collector
        return collector

    def _noted(self, name: str, store: Any, method: str, call: str, inside: Callable[..., Any], inner: list[bool]) -> Callable[..., Any]:
        """Return a store's call that is noted, except when the store itself makes it."""
        row_of = _row_reader(store, method) if call in WRITES else None

        def peek(given: tuple[Any, ...]) -> Any:
            with suppress(Exception):  # the call itself says what is wrong with its arguments
                return None if row_of is None else own_copy(row_of(*given))

        def key_of(given: tuple[Any, ...]) -> tuple[Any, bool]:
            with suppress(Exception):  # likewise
                return _key_of(store, method, given)
            return None, False

        def noted(*given: Any, **named: Any) -> Any:
            if inner[0] or not self._open:
                return inside(*given, **named)
            inner[0] = True
            try:
                before = peek(given)
                found = inside(*given, **named)
                if call in WRITES:
                    key, one_row = key_of(given)
                    self._open[-1].stores.append(StoreAccess(name, call, key, before, peek(given), one_row))
                    return found
            finally:
                inner[0] = False
            rows: Any = [] if isinstance(found, Iterator) else own_copy(found)
            key, one_row = key_of(given)
            self._open[-1].stores.append(StoreAccess(name, call, key, rows, rows, one_row))
            return _seen(found, rows) if isinstance(found, Iterator) else found

        return noted


def _copied(key: object, value: object, timestamp: int, headers: Headers) -> TracedRecord:
    return TracedRecord(own_copy(key), own_copy(value), timestamp, list(headers or ()))


def _seen(rows: Iterator[Any], seen: list[Any]) -> Iterator[Any]:
    for row in rows:
        seen.append(own_copy(row))
        yield row


_RAW = frozenset({
    "put_raw", "put_item", "get_raw", "delete_raw", "fetch_raw", "find_raw", "fetch_key_raw", "prefix_scan_raw",
})  # fmt: skip


def _row_reader(store: Any, method: str) -> Callable[..., Any] | None:
    """Return the read of the row that a write changes, with the write's arguments; None if the store has none."""
    raw, get_raw = method in _RAW, getattr(store, "get_raw", None)
    fetch_raw, fetch_session = getattr(store, "fetch_raw", None), getattr(store, "fetch_session", None)
    if method == "put_all":
        return None
    if fetch_session is not None:
        if raw:
            return lambda key, start, end, *_: fetch_session(store.key_serde.deserialize(key), start, end)
        return lambda session, *_: fetch_session(session.key, session.start, session.end)
    if fetch_raw is not None:
        if getattr(store, "_sequence", None) is not None:
            return None  # several values under one key and time
        return lambda key, _, start: fetch_raw(key if raw else store.serialize_key(key), start)
    if get_raw is not None:
        return lambda key, *_: get_raw(key if raw else store.serialize_key(key))
    get = getattr(store, "get", None)
    return None if get is None else lambda key, *_: get(key)


_BY_KEY = frozenset({"put", "put_raw", "put_item", "put_if_absent", "delete", "delete_raw"})


def _key_of(store: Any, method: str, given: tuple[Any, ...]) -> tuple[Any, bool]:
    """Return the key of a call, with what else says which rows it means, and whether that is one row."""
    if not given:
        return None, False
    key = store.key_serde.deserialize(given[0]) if method in _RAW and isinstance(given[0], bytes) else own_copy(given[0])
    sessions, windows, by_key = (hasattr(store, name) for name in ("fetch_session", "fetch_raw", "get"))
    if isinstance(key, Windowed):
        return key, sessions
    if sessions and method in ("put_raw", "fetch_session"):
        return Windowed(key, given[1], given[2]), True
    if windows and method in ("put", "put_raw"):
        return (key, given[2]), True
    if windows and method in ("fetch", "fetch_raw") and len(given) == 2:
        return (key, given[1]), True
    if by_key and (method in _BY_KEY or (method in ("get", "get_raw") and len(given) == 1)):
        return key, True
    given = tuple(own_copy(each) for each in given[1:] if not callable(each) and not isinstance(each, ContextSnapshot))
    return ((key, *given) if given else key), False
