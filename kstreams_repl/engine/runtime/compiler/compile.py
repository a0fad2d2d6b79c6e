"""Compiles one sub-topology into callables for one task.

Actors: the nodes of a sub-topology, a `TaskNode` per node (the task's interface for an operator), and the resulting `Process`
entries. Nodes are built children first, so that every `forward` is already the fused entry of the children; then the `on_init`
callbacks run in topology order, as Kafka Streams initialises processors. Invariant: each entry's code object carries its node's
name, so a traceback identifies the node without any per-record work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from itertools import repeat
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from kstreams_repl.engine.operators.batches.partial_columns import Merging, PartialColumns, merging_of
from kstreams_repl.engine.operators.operator import Operator, Process
from kstreams_repl.engine.operators.processor_api import ProcessorOperator
from kstreams_repl.engine.processor.processors import Cancellable
from kstreams_repl.engine.processor.punctuation import PunctuationType
from kstreams_repl.engine.runtime.calls.task_threads import PARALLEL
from kstreams_repl.engine.runtime.compiler.loop_codegen import fuse_rows, node_in_loop
from kstreams_repl.engine.runtime.nodes.sinks import build_outlet, build_sink
from kstreams_repl.engine.runtime.task_context import TaskServices
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.system.errors import InvalidStateStoreError, TopologyError, did_you_mean
from kstreams_repl.system.types import Headers, Outlet, RowLoop

if TYPE_CHECKING:
    from kstreams_repl.engine.stores.cache.cache_entry import CacheEntry

Guard = Callable[[str, Process], Process]
"""Wraps a node's entry (for processing exception handlers other than "fail")."""

F = TypeVar("F", bound=Callable[..., object])
Tap = Callable[[str], Process]
"""Returns the observer of a node's output (a sink's input) by the node's name; it sees each record before the children do."""


class TaskNode:
    """One node of one task, as operators see it (`engine.operators.operator.NodeContext`)."""

    def __init__(
        self,
        name: str,
        services: TaskServices,
        stores: Sequence[str],
        children: Sequence[str],
        entries: Mapping[str, Process],
        sinks: Container[str] = (),
        shared: Container[str] = (),
    ) -> None:
        self.name = name
        self.task = services
        self.record = services.record
        self.metadata = services.metadata
        self.children = tuple(children)
        self._stores = tuple(stores)
        self._entries = entries
        self._clock = services.clock
        self.drop = services.dropper(name)
        self.wall_clock = services.wall_clock
        self.request_commit = services.request_commit
        self.sink: SinkNode | None = None
        self.below: Mapping[str, Sequence[str]] | None = None
        """The children of every node, if rows may pass this node's children together."""
        self.own_headers = False
        """What the node forwards gets a copy of the headers."""
        self.rows_pass: Sequence[str] = ()
        """The nodes that rows pass on their way into `sink`, this node first."""
        self._alone: dict[str, Process] = {}
        self._sinks = sinks
        self._shared = shared

    def store(self, name: str, *, headers: bool = False) -> Any:
        task = self.task
        if name in self._stores or name in task.global_stores:
            store = task.stores.get(name)
            if store is None:
                store = task.global_stores[name]
            return store if headers else getattr(store, "plain", store)
        raise InvalidStateStoreError(
            f"node {self.name} has no access to store {name!r}",
            hint=did_you_mean(name, self._stores)
            or "connect it: stores=[...] on the processor, or connect_processor_and_state_stores",
            node=self.name,
            store=name,
        )

    def owns(self, store: str) -> bool:
        return store in self._stores and store not in self._shared

    def child(self, name: str) -> Process:
        if name in self.children:
            entry, tap = self._entries[name], self.task.tap
            if name not in self._alone:
                if tap is not None:
                    edge = fuse([tap(self.name), entry])
                else:
                    edge = self.task.points.edge(entry, self.name, *(() if name not in self._sinks else (name,)))
                self._alone[name] = self.task.counts.to_child(self.name, name, edge)
            return self._alone[name]
        raise TopologyError(
            f"node {self.name} has no child {name!r}",
            hint=did_you_mean(name, self.children) or f"its children are: {', '.join(self.children) or 'none'}",
            node=self.name,
        )

    def outlet(self, key_serde: Serde, value_serde: Serde) -> Outlet | None:
        if self.sink is None:
            return None
        outlet = build_outlet(self.sink, self.task, key_serde, value_serde)
        if outlet is not None:
            self.task.points.rows(outlet, self.rows_pass)
            self.task.row_serdes |= dict.fromkeys(self.rows_pass, (key_serde, value_serde))
            outlet = self.task.counts.rows(self.name, outlet)
        return outlet

    def row_loop(self) -> RowLoop | None:
        run = None if self.below is None else fuse_rows(self.children, self.below, self._entries, self.task)
        if run is None:
            return None
        counter, watched = self.task.counts.counter(self.name), self.task.points.watched
        assert counter is not None, f"{self.name} forwards rows of a store"

        def forward_rows(
            keys: Sequence[object],
            values: Sequence[object],
            timestamps: Sequence[int],
            headers: Sequence[Headers],
            entries: Sequence[CacheEntry],
        ) -> bool:
            if watched():
                return False
            changes = list(zip(values, repeat(None), repeat(True)))  # noqa: B905
            run(keys, changes, (), timestamps, [entry.offset for entry in entries], headers, entries, ())
            counter[0] += len(keys)
            return True

        return forward_rows

    @property
    def by_columns(self) -> bool:
        return self.below is not None

    def merging(self) -> Merging | None:
        merging = merging_of(self._entries[self.children[0]]) if self.by_columns and len(self.children) == 1 else None
        if merging is None:
            return None
        counter, merge, own_headers = self.task.counts.counter(self.name), merging.run, self.own_headers
        assert counter is not None, f"{self.name} forwards partials"

        def counted(partials: PartialColumns) -> None:
            counter[0] += len(partials.keys)
            if own_headers and partials.headers is not None:
                partials = partials._replace(headers=list(map(list, partials.headers)))
            merge(partials)

        return merging._replace(run=counted, watched=self.task.points.watched)

    def stream_time(self) -> int:
        return self._clock.now

    def schedule(
        self, interval_ms: int, punctuation: PunctuationType, callback: Callable[[int], None], start_ms: int | None = None
    ) -> Cancellable:
        return self.task.schedule(self.name, interval_ms, punctuation, callback, start_ms)

    def remember(self, name: str, read: Callable[[], int], restore: Callable[[int], None]) -> None:
        self.task.remembered.add(name, read, restore)

    def on_close(self, callback: Callable[[], None]) -> None:
        self.task.on_close(self.name, callback)

    def on_window_close(self, callback: Callable[[], None]) -> None:
        self.task.window_callbacks.append((self.name, callback))

    def on_init(self, callback: Callable[[], None]) -> None:
        self.task.on_init(self.name, callback)


def children_of(nodes: Sequence[Node]) -> dict[str, list[str]]:
    """Return the children of each node, in the order in which they were added."""
    children: dict[str, list[str]] = {node.name: [] for node in nodes}
    for node in nodes:
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                children[parent].append(node.name)
    return children


def fuse(entries: Sequence[Process]) -> Process:
    """Return one entry for all children: the child's own entry when there is only one."""
    if not entries:
        return _nowhere
    if len(entries) == 1:
        return entries[0]
    if len(entries) == 2:
        first, second = entries

        def both(key: object, value: object, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both
    every = tuple(entries)

    def all_children(key: object, value: object, timestamp: int, headers: Headers) -> None:
        for entry in every:
            entry(key, value, timestamp, headers)

    return all_children


def _nowhere(key: object, value: object, timestamp: int, headers: object) -> None:
    """Ignore a record: the `forward` of a node without children."""


def named(entry: F, node: str, codes: dict[CodeType, str]) -> F:
    """Set the name of the entry's code object to the node's and record it in `codes`; only plain functions change."""
    if isinstance(entry, FunctionType) and entry.__code__ not in codes:
        entry.__code__ = entry.__code__.replace(co_name=node, co_qualname=node)
        codes[entry.__code__] = node
    return entry


def compile_nodes(
    nodes: Sequence[Node], services: TaskServices, guard: Guard | None
) -> tuple[dict[str, Process], dict[CodeType, str]]:
    """Build every node; return the entries by node name and the map from code objects to node names."""
    children = children_of(nodes)
    by_name = {node.name: node for node in nodes}
    sinks = {node.name for node in nodes if isinstance(node, SinkNode)}
    entries: dict[str, Process] = {}
    codes: dict[CodeType, str] = {}
    handing_on: list[Node] = []
    touched = _above_what_touches_headers(by_name, children)
    uses = Counter(store for node in nodes if isinstance(node, ProcessorNode) for store in node.stores)
    shared = {store for store, users in uses.items() if users > 1}
    for node in _children_first(nodes, children):
        forward = services.counts.forwarding(node.name, _forward(node.name, children[node.name], entries, sinks, services))
        meter = services.meter
        if meter is not None:
            forward = meter.output(node, forward)
        if isinstance(node, SourceNode):
            entries[node.name] = forward if meter is None else meter.entry(node, forward, terminal=False)
            continue
        stores = node.stores if isinstance(node, ProcessorNode) else ()
        context = TaskNode(node.name, services, stores, children[node.name], entries, sinks, shared)
        if services.tap is None and meter is None and guard is None and not services.by_record:
            context.rows_pass, context.sink = sink_of_rows(node.name, by_name, children)
            context.below = children
        if isinstance(node, SinkNode):
            entry = build_sink(node, context, services)
            if services.tap is not None:
                entry = fuse([services.tap(node.name), entry])
        else:
            operator = node.operator if hasattr(node.operator, "build") else ProcessorOperator(node.operator)
            if node.name in touched and not operator.hands_on:
                forward, context.own_headers = _with_own_headers(forward), True
            if services.threads is not None and isinstance(operator, PARALLEL):
                build = partial(_named_build, operator, context, codes)
                entries[node.name] = services.threads.add(context, forward, services.clock, build)
                continue
            entry = operator.build(context, forward)
            if node.name in services.batches:
                named(services.batches[node.name].run, node.name, codes)
            if (merging := merging_of(entry)) is not None:
                named(merging.run, node.name, codes)
            if entry is forward and guard is None and meter is None:
                handing_on.append(node)
        entry = named(entry, node.name, codes)
        if meter is not None:
            entry = meter.entry(node, entry, terminal=not children[node.name])
        entries[node.name] = entry if guard is None else guard(node.name, entry)
    for node in reversed(handing_on):  # parents first, because these nodes share the edges of their parents
        only = children[node.name] if len(children[node.name]) == 1 else ()
        services.points.same(node.name, getattr(node, "parents", ()), [name for name in only if name in sinks])
    return entries, codes


def _named_build(operator: Operator, node: TaskNode, codes: dict[CodeType, str], forward: Process) -> Process:
    return named(operator.build(node, forward), node.name, codes)


def may_touch_headers(node: Node) -> bool:
    """Return whether a node passes the record's list of headers to user code, which might modify it."""
    return isinstance(node, ProcessorNode) and getattr(node.operator, "shows_headers", True)


def _above_what_touches_headers(nodes: Mapping[str, Node], children: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the nodes from which a record reaches user code that may modify its headers in place."""
    parents: dict[str, list[str]] = {}
    for name, below in children.items():
        for child in below:
            parents.setdefault(child, []).append(name)
    waiting = [name for name, node in nodes.items() if may_touch_headers(node)]
    above: set[str] = set()
    while waiting:
        for parent in parents.get(waiting.pop(), ()):
            if parent not in above:
                above.add(parent)
                waiting.append(parent)
    return frozenset(above)


def _with_own_headers(forward: Process) -> Process:
    """Return `forward` with a copy of the headers: headers added downstream must not appear in the record of the node that made it."""

    def forward_with_own_headers(key: object, value: object, timestamp: int, headers: Headers) -> None:
        forward(key, value, timestamp, list(headers))

    return forward_with_own_headers


def _forward(node: str, children: Sequence[str], entries: Mapping[str, Process], sinks: Container[str], services: TaskServices) -> Process:
    """Return the function with which a node forwards a record: a function of its own, so that it can be tapped at run time."""
    if services.tap is not None:
        return fuse([services.tap(node), fuse([entries[name] for name in children])])
    edge = services.points.edge
    if len(children) == 1:
        (child,) = children
        return edge(entries[child], node, *((child,) if child in sinks else ()))
    return edge(fuse([edge(entries[name], name) if name in sinks else entries[name] for name in children]), node)


def sink_of_rows(
    name: str, nodes: Mapping[str, Node], children: Mapping[str, Sequence[str]]
) -> tuple[Sequence[str], SinkNode | None]:
    """Return the sink that receives a node's rows and nothing else, if every node in between only forwards rows, and those nodes."""
    way = [name]
    while len(children[name]) == 1:
        (name,) = children[name]
        node = nodes[name]
        way.append(name)
        if isinstance(node, SinkNode):
            return way, node
        if isinstance(node, SourceNode) or not getattr(node.operator, "carries_rows", False):
            break
    return (), None


def _children_first(nodes: Sequence[Node], children: Mapping[str, Sequence[str]]) -> list[Node]:
    by_name = {node.name: node for node in nodes}
    order: list[Node] = []
    seen: set[str] = set()
    for root in nodes:
        stack: list[tuple[str, bool]] = [(root.name, False)]
        while stack:
            name, expanded = stack.pop()
            if expanded:
                order.append(by_name[name])
            elif name not in seen:
                seen.add(name)
                stack.append((name, True))
                stack.extend((child, False) for child in children[name])
    return order


def node_of_traceback(error: BaseException, codes: Mapping[CodeType, str]) -> str | None:
    """Return the innermost node whose entry is on the error's traceback."""
    node, trace = None, error.__traceback__
    while trace is not None:
        node = node_of_line(trace.tb_frame.f_code, trace.tb_lineno, codes) or node
        trace = trace.tb_next
    return node


def node_of_line(code: CodeType, line: int, codes: Mapping[CodeType, str]) -> str | None:
    """Return the node that a line of code belongs to: its entry, or its part of a generated loop."""
    return codes.get(code) or node_in_loop(code.co_filename, line)
