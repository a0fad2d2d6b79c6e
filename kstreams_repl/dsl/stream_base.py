"""What streams, tables and groupings have in common: a name, serdes, the sources they come from, a graph node."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from kstreams_repl import serdes
from kstreams_repl.dsl.build_log import BuildLog, Handle
from kstreams_repl.dsl.graph_nodes import GraphNode
from kstreams_repl.errors import TopologyError

A = TypeVar("A")


class AbstractStream(Handle):
    """A place in the topology that further operators can be put behind.

    Attributes:
        name: of the node this stream comes out of.
        key_serde, value_serde: as far as they are known; None = the application's defaults.
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
        """Demand equal partitions with others; returns the sources of all."""
        sources = self._sources.union(*(other._sources for other in others))
        self._graph.copartition(sources)
        return sources

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def serde_or_none(serde: Any) -> Any:
    """A serde from what the user gave; None stays None (inherit, or the application's default)."""
    return None if serde is None else serdes.resolve(serde)


def first_known(*values: A | None) -> A | None:
    """The first that is not None."""
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
"""What a function is called with, by its part, or by operator and part."""


def check_callable(function: Any, what: str, operator: str, arguments: str | None = None) -> None:
    """Refuse what cannot be called, or not with as many arguments as it will get.

    Args:
        arguments: names of what it will be called with; None: as its part in the operator has it.

    Raises:
        TopologyError: with the operator's name.
    """
    if not callable(function):
        raise TopologyError(
            f"{operator}() needs a function as {what}, not {function!r}", hint=f"pass a function or lambda as {what}"
        )
    if arguments is None:
        arguments = _ARGUMENTS.get(f"{operator} {what}", _ARGUMENTS.get(what))
    if arguments is None:
        return
    names = [name for name in arguments.split(", ") if name]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built-in functions do not all tell
        return
    try:
        signature.bind(*names)
    except TypeError as cause:
        wanted = f"lambda {arguments}: ..." if names else "lambda: ..."
        raise TopologyError(
            f"the {what} of {operator}() is called with {len(names)} arguments ({arguments}), and {function!r} does not take them: {cause}",
            hint=f"write it as {wanted}",
        ) from cause


def check_kind(other: Any, kinds: type | tuple[type, ...], operator: str) -> None:
    """Refuse an argument of another kind.

    Raises:
        TopologyError: telling which kinds are wanted.
    """
    if not isinstance(other, kinds):
        wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise TopologyError(f"{operator}() takes a {wanted}, not {other!r}", hint=f"pass the {wanted} that another call returned")
