"""What streams, tables and groupings have in common: a name, serdes, their sources, a graph node."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from kstreams_repl.engine import serdes
from kstreams_repl.engine.dsl.graph.call_log import BuildLog, Handle
from kstreams_repl.engine.dsl.graph.graph_nodes import GraphNode
from kstreams_repl.engine.dsl.tables.table_sources import TableState
from kstreams_repl.engine.topology.checks import refuse_async
from kstreams_repl.system.errors import TopologyError

A = TypeVar("A")
TableT = TypeVar("TableT", bound="AbstractTable")


class AbstractStream(Handle):
    """The output of a node, to which further operators can be attached.

    Attributes:
        name: name of the node whose output this is.
        key_serde, value_serde: serdes if known; None = the application's defaults.
    """

    def __init__(
        self, log: BuildLog, name: str, key_serde: Any, value_serde: Any, sources: frozenset[str], node: GraphNode
    ) -> None:
        self._log = log
        self.name = name
        self.key_serde = key_serde
        self.value_serde = value_serde
        self._sources = sources
        self._node = node

    def _copartition_with(self, *others: AbstractStream) -> frozenset[str]:
        """Require co-partitioning with others; returns the sources of all."""
        sources = self._sources.union(*(other._sources for other in others))
        self._graph.copartition(sources)
        return sources

    def _serdes(self, key_serde: Any, value_serde: Any) -> tuple[Any, Any]:
        """Return the serdes for the user's arguments; those of this stream where None is given."""
        return first_known(serde_or_none(key_serde), self.key_serde), first_known(serde_or_none(value_serde), self.value_serde)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class AbstractTable(AbstractStream):
    """The output of a node that is a table."""

    def __init__(
        self,
        log: BuildLog,
        name: str,
        key_serde: Any,
        value_serde: Any,
        sources: frozenset[str],
        node: GraphNode,
        state: TableState,
        queryable: str | None,
    ) -> None:
        super().__init__(log, name, key_serde, value_serde, sources, node)
        self._state = state
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """Return the name of the store to query; None unless the table has a store that was given a name.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> builder.table("rates", store="rates").queryable_store_name
            'rates'
        """
        return self._queryable


def serde_or_none(serde: Any) -> Any:
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


def check_callable(function: Any, what: str, operator: str, arguments: str | None = None) -> None:
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
        wanted = f"lambda {arguments}: ..." if names else "lambda: ..."
        raise TopologyError(
            f"the {what} of {operator}() must take {len(names)} arguments ({arguments}), got {function!r}: {cause}",
            hint=f"write it as {wanted}",
        ) from cause


def check_kind(other: Any, kinds: type | tuple[type, ...], operator: str) -> None:
    """Raise if an argument has a wrong type.

    Raises:
        TopologyError: names the expected types.
    """
    if not isinstance(other, kinds):
        wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise TopologyError(f"{operator}() expected a {wanted}, got {other!r}", hint=f"pass the {wanted} that another call returned")
