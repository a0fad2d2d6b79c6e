"""Joins of a stream: with a stream in a window, with a table, with a global table.

Sources: Kafka Streams' `KStreamImpl.doJoin`, `KStreamImplJoin`, `doStreamTableJoin`, `globalTableJoin`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kstreams_repl.engine.dsl.graph.graph_nodes import (
    JoinSide,
    OperatorGraphNode,
    StateStoreGraphNode,
    StreamStreamJoinGraphNode,
    WindowedGraphNode,
)
from kstreams_repl.engine.dsl.graph.store_plans import join_store, outer_join_store
from kstreams_repl.engine.dsl.groupings.windows import JoinWindows
from kstreams_repl.engine.dsl.options import Materialized
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_callable, check_kind, first_known, serde_or_none
from kstreams_repl.engine.dsl.tables.global_ktable import GlobalKTable
from kstreams_repl.engine.dsl.tables.table_operators import TableOperators
from kstreams_repl.engine.dsl.tables.table_sources import stores_read
from kstreams_repl.engine.operators.joins.stream_global_table_join import StreamGlobalTableJoin
from kstreams_repl.engine.operators.joins.stream_join_window import StreamJoinWindow
from kstreams_repl.engine.operators.joins.stream_stream_join import StreamStreamJoin, StreamStreamSelfJoin
from kstreams_repl.engine.operators.joins.stream_table_join import StreamTableJoin
from kstreams_repl.engine.operators.streams.pass_through import PassThrough
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.durations import as_millis
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import Joiner

StreamT = TypeVar("StreamT", bound=AbstractStream)


def join(
    left: StreamT, other: object, joiner: Joiner, windows: JoinWindows | None, how: str, *, with_key: bool = False, **given: Any
) -> StreamT:
    """Choose the join by the type of the other side; see `KStream.join`. In `given`, None means an omitted argument."""
    options = {name: value for name, value in given.items() if value is not None}
    takes = "key, value, other" if with_key else "value, other"
    check_callable(joiner, "joiner", "join", "key, mapped key, value, other" if options.get("with_mapped_key") else takes)
    if isinstance(other, type(left)):
        check_kind(windows, JoinWindows, f"{how} join of streams")
        assert windows is not None
        _refuse_others(options, _STREAM_OPTIONS, "join of streams")
        return join_streams(left, other, StreamJoinPlan(joiner, with_key, windows, how, **options))
    if how == "outer":
        raise TopologyError(
            f"outer_join() expected a KStream, got {other!r}", hint="a table's own rows need a record to join with: use left_join()"
        )
    if windows is not None:
        raise TopologyError(f"a join with a table takes no windows, got {windows}", hint="leave windows out")
    if isinstance(other, TableOperators):
        _refuse_others(options, ("grace", "key_serde", "value_serde", "name"), "join with a table")
        return join_table(left, other, joiner, how == "left", with_key, options)
    if isinstance(other, GlobalKTable):
        _refuse_others(options, ("key", "with_mapped_key", "name"), "join with a global table")
        return join_global_table(left, other, joiner, how == "left", with_key, options)
    raise TopologyError(
        f"join() expected a KStream, KTable or GlobalKTable, got {other!r}",
        hint="pass what stream(), table() or global_table() returned",
    )


_STREAM_OPTIONS = ("store", "key_serde", "value_serde", "other_value_serde", "logging", "persistent", "name", "prior")


def _refuse_others(options: dict[str, Any], allowed: tuple[str, ...], what: str) -> None:
    for option in options:
        if option not in allowed:
            raise TopologyError(
                f"a {what} has no argument {option!r}", hint=f"it has: {', '.join(name for name in allowed if name != 'prior')}"
            )


@dataclass(slots=True)
class StreamJoinPlan:
    """The arguments of a stream-stream join.

    Attributes:
        store: prefix of the stores' names.
        prior: whether each record joins only earlier records of the other stream (KIP-28's `join_prior`).
    """

    joiner: Joiner
    with_key: bool
    windows: JoinWindows
    how: str
    store: str | None = None
    key_serde: object = None
    value_serde: object = None
    other_value_serde: object = None
    logging: bool = True
    persistent: bool | None = None
    name: str | None = None
    prior: bool = False

    @property
    def left_outer(self) -> bool:
        return self.how in ("left", "outer")

    @property
    def right_outer(self) -> bool:
        return self.how == "outer"

    @property
    def store_options(self) -> Materialized:
        return Materialized(logging=self.logging, persistent=self.persistent)


def join_streams(left: StreamT, right: StreamT, plan: StreamJoinPlan) -> StreamT:
    """Repartition the sides whose keys may have changed, and join them."""
    if plan.name is not None:
        validate_name(plan.name, "node")
    if plan.store is not None:
        validate_name(plan.store, "store")
    key = first_known(serde_or_none(plan.key_serde), left.key_serde, right.key_serde)
    plan.key_serde = key
    plan.value_serde = first_known(serde_or_none(plan.value_serde), left.value_serde)
    plan.other_value_serde = first_known(serde_or_none(plan.other_value_serde), right.value_serde)
    if left._repartition_required:
        left = repartition_for_join(left, left.name if plan.name is None else f"{plan.name}-left", key, plan.value_serde)
    if right._repartition_required:
        right = repartition_for_join(
            right, right.name if plan.name is None else f"{plan.name}-right", key, plan.other_value_serde
        )
    left._copartition_with(right)
    return _windowed_join(left, right, plan)


def _windowed_join(left: StreamT, right: StreamT, plan: StreamJoinPlan) -> StreamT:
    graph, origin, windows = left._graph, left._graph.here(), plan.windows
    left_suffix = "-outer-this-join" if plan.right_outer else "-this-join"
    right_suffix = "-outer-other-join" if plan.left_outer else "-other-join"
    left_windowed = graph.suffix_or_generate(plan.name, "-this-windowed", "KSTREAM-WINDOWED-")
    right_windowed = graph.suffix_or_generate(plan.name, "-other-windowed", "KSTREAM-WINDOWED-")
    left_prefix = "KSTREAM-OUTERTHIS-" if plan.right_outer else "KSTREAM-JOINTHIS-"
    left_generated = graph.new_processor_name(left_prefix)
    right_generated = graph.new_processor_name("KSTREAM-OUTEROTHER-" if plan.left_outer else "KSTREAM-JOINOTHER-")
    left_name = left_generated if plan.name is None else validate_name(plan.name + left_suffix, "node")
    right_name = right_generated if plan.name is None else validate_name(plan.name + right_suffix, "node")
    merge_name = graph.suffix_or_generate(plan.name, "-merge", "KSTREAM-MERGE-")

    retention = windows.size_ms + windows.grace_ms
    left_prefixed = left_generated if plan.store is None else plan.store + left_suffix
    right_prefixed = right_generated if plan.store is None else plan.store + right_suffix
    options, size = plan.store_options, windows.size_ms
    left_store = join_store(options, f"{left_prefixed}-store", plan.key_serde, plan.value_serde, size, retention)
    right_store = join_store(options, f"{right_prefixed}-store", plan.key_serde, plan.other_value_serde, size, retention)
    graph.add(left._node, WindowedGraphNode(left_windowed, origin, StreamJoinWindow(left_store.name)))
    graph.add(right._node, WindowedGraphNode(right_windowed, origin, StreamJoinWindow(right_store.name)))
    outer_store = _outer_store(plan, left_generated[len(left_prefix) :], retention)
    outer_name = None if outer_store is None else outer_store.name

    def side(left_side: bool) -> StreamStreamJoin:
        before, after = (windows.before_ms, windows.after_ms) if left_side else (windows.after_ms, windows.before_ms)
        if plan.prior:
            after = -1
        return StreamStreamJoin(
            left_side,
            right_store.name if left_side else left_store.name,
            before,
            after,
            windows.grace_ms,
            windows.before_ms,
            windows.after_ms,
            plan.joiner,
            plan.left_outer if left_side else plan.right_outer,
            outer_name,
            merge_name,
            plan.with_key,
            plan.prior,
        )

    node = StreamStreamJoinGraphNode(
        merge_name,
        origin,
        left=JoinSide(left_name, side(True), left_windowed, left_store),
        right=JoinSide(right_name, side(False), right_windowed, right_store),
        merge=PassThrough(),
        outer_store=outer_store,
        self_join_operator=None
        if plan.prior
        else StreamStreamSelfJoin(left_store.name, windows.before_ms, windows.after_ms, windows.grace_ms, plan.joiner, plan.with_key),
    )
    node.relaxed_null_key = plan.left_outer or plan.right_outer
    graph.add((left._node, right._node), node)
    return type(left)(left._log, merge_name, plan.key_serde, None, left._sources | right._sources, node)


def _outer_store(plan: StreamJoinPlan, number: str, retention: int) -> StoreBuilder | None:
    if not plan.left_outer:
        return None
    if plan.store is None:
        name = f"KSTREAM-OUTERSHARED-{number}-store"
    else:
        name = plan.store + ("-outer-shared-join" if plan.right_outer else "-left-shared-join") + "-store"
    return outer_join_store(plan.store_options, name, plan.key_serde, plan.value_serde, plan.other_value_serde, retention)


def repartition_for_join(stream: StreamT, topic_name: str, key_serde: object, value_serde: object) -> StreamT:
    """Return the stream after a repartition topic; a second join of the same stream shares the topic unless it names its own."""
    graph = stream._graph
    node = graph.new_repartition(
        topic_name, key_serde=first_known(key_serde, stream.key_serde), value_serde=first_known(value_serde, stream.value_serde)
    )
    if stream._repartition_node is None or stream.name != topic_name:
        stream._repartition_node = node
        graph.add(stream._node, node)
    shared = stream._repartition_node
    return type(stream)(stream._log, shared.name, node.key_serde, node.value_serde, frozenset((shared.name,)), shared)


def join_table(left: StreamT, table: TableOperators, joiner: Joiner, left_join: bool, with_key: bool, options: dict[str, Any]) -> StreamT:
    """Look up the current row of each record's key or, with grace, the row as of the record's time."""
    graph, name = left._graph, options.get("name")
    key, value = serde_or_none(options.get("key_serde")), serde_or_none(options.get("value_serde"))
    if name is not None:
        validate_name(name, "node")
    if left._repartition_required:
        left = repartition_for_join(
            left, left.name if name is None else name, first_known(key, left.key_serde, table.key_serde), value
        )
    sources = left._copartition_with(table)
    node_name = graph.name_or_generate(name, "KSTREAM-LEFTJOIN-" if left_join else "KSTREAM-JOIN-")
    buffer, grace = None, None
    if options.get("grace") is not None:
        grace = as_millis(options["grace"], "grace")
        if table._node.output_versioned is False:
            raise _not_versioned(node_name, table.name)
        buffer = f"{node_name}-Buffer"
        builder = StoreBuilder(
            buffer,
            StoreKind.JOIN_GRACE_BUFFER,
            first_known(key, left.key_serde),
            first_known(value, left.value_serde),
            retention_ms=grace,
            options={"grace_ms": grace},
        )
        graph.add(graph.root, StateStoreGraphNode(builder, graph.here()))
    getter = table._state.getter()
    operator = StreamTableJoin(getter, joiner, left_join, with_key, grace, buffer, getter.versioned)
    read = stores_read(getter)
    used = read if buffer is None else (buffer, *read)
    node = OperatorGraphNode(node_name, graph.here(), operator, used_stores=used)
    if grace is not None:
        node.checks.append(_history_check(node_name, table.name, read, grace))
    node.relaxed_null_key = left_join
    graph.add(left._node, node)
    return type(left)(left._log, node_name, first_known(key, left.key_serde), None, sources, node)


def _history_check(node: str, table: str, stores: tuple[str, ...], grace: int) -> Callable[[Topology], None]:
    def check(topology: Topology) -> None:
        for name in stores:
            store = topology.store(name)
            if store.kind is not StoreKind.VERSIONED:
                raise _not_versioned(node, table)
            if grace > (store.retention_ms or 0):
                raise TopologyError(
                    f"grace of join {node} must be at most the history of store {name!r} ({store.retention_ms} ms), got {grace} ms",
                    hint=f"use history={grace} or more for the table, or a smaller grace",
                    node=node,
                    store=name,
                )

    return check


def _not_versioned(node: str, table: str) -> TopologyError:
    return TopologyError(
        f"join {node} has a grace period and expected a versioned table, got {table}",
        hint='give the table a history: table(topic, store="name", history=...)',
        node=node,
    )


def join_global_table(
    left: StreamT, table: GlobalKTable, joiner: Joiner, left_join: bool, with_key: bool, options: dict[str, Any]
) -> StreamT:
    """Look up the row of `key(key, value)`; needs no repartitioning."""
    selector = options.get("key")
    if selector is None:
        raise TopologyError(
            "a join with a global table needs key=", hint="key=lambda key, value: ... gives the global table's key"
        )
    check_callable(selector, "key", "join")
    with_mapped_key = options.get("with_mapped_key", False)
    if with_key and with_mapped_key:
        raise TopologyError("join() expected with_key= or with_mapped_key=, got both", hint="with_mapped_key=True passes both keys")
    graph = left._graph
    node_name = graph.name_or_generate(options.get("name"), "KSTREAM-LEFTJOIN-")
    node = OperatorGraphNode(
        node_name,
        graph.here(),
        StreamGlobalTableJoin(table._getter(), selector, joiner, left_join, with_key, with_mapped_key),
    )
    node.relaxed_null_key = left_join
    graph.add(left._node, node)
    return left._after(node, left.key_serde, None)
