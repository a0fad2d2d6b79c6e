"""Joins of two tables by key: one node per side and a merge node after them. Source: Kafka Streams' `KTableImpl.doJoin`."""

from __future__ import annotations

from kstreams_repl.engine.dsl.graph.graph_nodes import JoinSide, TableTableJoinGraphNode
from kstreams_repl.engine.dsl.graph.store_plans import table_store
from kstreams_repl.engine.dsl.options import Materialized
from kstreams_repl.engine.dsl.streams.stream_base import first_known
from kstreams_repl.engine.dsl.tables.table_operators import TableT
from kstreams_repl.engine.dsl.tables.table_sources import JoinState, stores_read
from kstreams_repl.engine.operators.joins.table_table_join import TableJoinKind, TableTableJoin, TableTableJoinMerger
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.system.types import Joiner

_KINDS = {
    "inner": (TableJoinKind.INNER, TableJoinKind.INNER),
    "left": (TableJoinKind.LEFT, TableJoinKind.RIGHT),
    "outer": (TableJoinKind.OUTER, TableJoinKind.OUTER),
}


def join_tables(
    left: TableT,
    right: TableT,
    joiner: Joiner,
    how: str,
    with_key: bool,
    options: Materialized | None,
    name: str | None,
) -> TableT:
    """Return the joined table; kept in a store if options are given."""
    graph = left._graph
    if name is not None:
        validate_name(name, "node")
    store_name = None
    if options is not None:
        store_name = options.name if options.name is not None else graph.new_store_name("KTABLE-MERGE-")
    merge_name = graph.name_or_generate(name, "KTABLE-MERGE-")
    sources = left._copartition_with(right)
    if how in ("left", "outer"):
        left._state.enable_sending_old_values(force=True)
    if how == "outer":
        right._state.enable_sending_old_values(force=True)
    left_kind, right_kind = _KINDS[how]
    left_getter, right_getter = left._state.getter(), right._state.getter()
    left_side = TableTableJoin(left_kind, right_getter, joiner, with_key=with_key)
    right_side = TableTableJoin(right_kind, left_getter, joiner, this_is_right=True, with_key=with_key)
    left_name = graph.suffix_or_generate(name, "-join-this", "KTABLE-JOINTHIS-")
    right_name = graph.suffix_or_generate(name, "-join-other", "KTABLE-JOINOTHER-")
    versioned = options is not None and options.versioned
    merger = TableTableJoinMerger(store_name, store_versioned=versioned)
    key = left.key_serde if options is None else first_known(options.key_serde, left.key_serde)
    value = None if options is None else options.value_serde

    node = TableTableJoinGraphNode(
        merge_name,
        graph.here(),
        left=JoinSide(left_name, left_side),
        right=JoinSide(right_name, right_side),
        left_parent=left.name,
        right_parent=right.name,
        left_stores=stores_read(left_getter),
        right_stores=stores_read(right_getter),
        merger=merger,
        store=None if options is None or store_name is None else table_store(options, store_name, key, value),
    )
    node.output_versioned = versioned
    graph.add((left._node, right._node), node)
    state = JoinState(how, merger, (left_side, right_side), left._state, right._state)
    return type(left)(left._log, merge_name, key, value, sources, node, state, store_name)
