"""What streams, tables and groupings have in common: a name, serdes, their sources, a graph node, and how an operator is added."""

from __future__ import annotations

import inspect
from typing import Any, Self, TypeVar

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import BuildLog
from kstreams_repl.engine.dsl.graph.graph_builder import GraphBuilder
from kstreams_repl.engine.dsl.graph.graph_nodes import GraphNode, OperatorGraphNode, RepartitionGraphNode
from kstreams_repl.engine.operators.operator import Operator
from kstreams_repl.engine.operators.user_functions import takes_headers
from kstreams_repl.engine.topology.checks import refuse_async
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.system.errors import TopologyError

A = TypeVar("A")


class AbstractStream:
    """The output of a node, to which further operators can be attached.

    The methods of `KStream` and `KTable` stand in groups by theme, each a direct subclass of this class. The classes that unite the groups
    also derive from `Handle`: what the call log needs of an object that the user holds.

    Attributes:
        name: name of the node whose output this is.
        key_serde, value_serde: serdes if known; None = the application's defaults.
    """

    def __init__(
        self,
        log: BuildLog,
        name: str,
        key_serde: Any,
        value_serde: Any,
        sources: frozenset[str],
        node: GraphNode,
        *,
        repartition_required: bool = False,
        topic_name: str | None = None,
    ) -> None:
        self._log = log
        self.name = name
        self.key_serde = key_serde
        self.value_serde = value_serde
        self._sources = sources
        self._node = node
        self._repartition_required = repartition_required
        self._topic_name = topic_name
        self._repartition_node: RepartitionGraphNode | None = None

    @property
    def _graph(self) -> GraphBuilder:
        return self._log.graph

    def _copartition_with(self, *others: AbstractStream) -> frozenset[str]:
        """Require co-partitioning with others; returns the sources of all."""
        sources = self._sources.union(*(other._sources for other in others))
        self._graph.copartition(sources)
        return sources

    def _serdes(self, key_serde: object, value_serde: object) -> tuple[object, object]:
        """Return the serdes for the user's arguments; those of this stream where None is given."""
        return first_known(serde_or_none(key_serde), self.key_serde), first_known(serde_or_none(value_serde), self.value_serde)

    def _put(
        self,
        operator: Operator,
        prefix: str,
        name: str | None,
        *,
        key_serde: object = None,
        value_serde: object = None,
        key_changing: bool = False,
        value_changing: bool = False,
    ) -> Self:
        """Add a stateless operator downstream of this stream."""
        node = OperatorGraphNode(self._graph.name_or_generate(name, prefix), self._graph.here(), operator)
        node.key_changing = key_changing
        node.value_changing = value_changing
        self._graph.add(self._node, node)
        return self._after(node, key_serde, value_serde, key_changing=key_changing)

    def _after(self, node: GraphNode, key_serde: object, value_serde: object, *, key_changing: bool = False) -> Self:
        """Return the output of a node downstream of this stream."""
        required = self._repartition_required or key_changing
        return type(self)(self._log, node.name, key_serde, value_serde, self._sources, node, repartition_required=required)

    def _put_with_store(
        self, operator: Operator, node_name: str, store: StoreBuilder, *, key_serde: object = None, value_serde: object = None
    ) -> tuple[OperatorGraphNode, frozenset[str]]:
        """Add an operator and the store that it owns, downstream of a repartition if the key may have changed.

        Args:
            operator: reads its store by the name in `store`.
            node_name: name of the node, of `name_or_generate`.
            store: the store.
            key_serde, value_serde: serdes of the repartition topic.

        Returns:
            The node, and the names of its sources: what the stream or table downstream of it is made of.
        """
        graph, parent, sources = self._graph, self._node, self._sources
        if self._repartition_required:
            repartition = graph.new_repartition(node_name, key_serde=key_serde, value_serde=value_serde)
            graph.add(parent, repartition)
            parent, sources = repartition, frozenset((repartition.name,))
        node = OperatorGraphNode(node_name, graph.here(), operator, store=store)
        graph.add(parent, node)
        return node, sources

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def serde_or_none(serde: object) -> object:
    """Return a serde for the user's argument; None stays None (inherited, or the application's default)."""
    return None if serde is None else serdes.resolve(serde)


def first_known(*values: A | None) -> A | None:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


_ARGUMENTS = {
    "predicate": "key, value",
    "selector": "key, value",
    "action": "key, value",
    "key": "key, value",
    "reducer": "aggregate, value",
    "initializer": "",
    "aggregator": "key, value, aggregate",
    "merger": "key, aggregate, aggregate",
    "timestamp_extractor": "record, partition_time",
    "partitioner": "topic, key, value, partitions",
    "print mapper": "key, value",
    "to topic": "key, value, metadata",
    "map mapper": "key, value",
    "flat_map mapper": "key, value",
    "reduce adder": "aggregate, value",
    "reduce subtractor": "aggregate, value",
    "aggregate adder": "key, value, aggregate",
    "aggregate subtractor": "key, value, aggregate",
}
"""Argument names of a function, by its parameter, or by operator and parameter."""


def check_callable(function: object, what: str, operator: str, arguments: str | None = None) -> None:
    """Raise if an argument is not callable, or not with the number of arguments that it will get.

    Args:
        arguments: names of the arguments it will get; None: those of its parameter in the operator.

    Raises:
        TopologyError: names the operator; for an `async def`, the asynchronous operator.
    """
    if not callable(function):
        raise TopologyError(
            f"{operator}() expected a function as {what}, got {function!r}", hint=f"pass a function or lambda as {what}"
        )
    if not operator.endswith("_async"):
        refuse_async(function, what, operator)
    if arguments is None:
        arguments = _ARGUMENTS.get(f"{operator} {what}", _ARGUMENTS.get(what))
    if what == "partitioner" and takes_headers(function):
        arguments = "topic, key, value, headers, partitions"
    if arguments is None:
        return
    names = [name for name in arguments.split(", ") if name]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return
    try:
        signature.bind(*names)
    except TypeError as cause:
        example = f"lambda {arguments}: ..." if names else "lambda: ..."
        raise TopologyError(
            f"the {what} of {operator}() must take {len(names)} arguments ({arguments}), got {function!r}: {cause}",
            hint=f"write it as {example}",
        ) from cause


def check_kind(other: object, kinds: type | tuple[type, ...], operator: str) -> None:
    """Raise if an argument has a wrong type.

    Raises:
        TopologyError: names the expected types.
    """
    if not isinstance(other, kinds):
        expected = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise TopologyError(f"{operator}() expected a {expected}, got {other!r}", hint=f"pass the {expected} that another call returned")
