"""What streams, tables and groupings have in common: a name, serdes, the sources they come from, a graph node."""

from __future__ import annotations

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


def check_callable(function: Any, what: str, operator: str) -> None:
    """Refuse what cannot be called.

    Raises:
        TopologyError: with the operator's name.
    """
    if not callable(function):
        raise TopologyError(
            f"{operator}() needs a function as {what}, not {function!r}", hint=f"pass a function or lambda as {what}"
        )


def check_kind(other: Any, kinds: type | tuple[type, ...], operator: str) -> None:
    """Refuse an argument of another kind.

    Raises:
        TopologyError: telling which kinds are wanted.
    """
    if not isinstance(other, kinds):
        wanted = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        raise TopologyError(f"{operator}() takes a {wanted}, not {other!r}", hint=f"pass the {wanted} that another call returned")
