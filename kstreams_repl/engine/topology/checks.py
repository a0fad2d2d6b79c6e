"""What `Topology` rejects: duplicate names, unknown parents, topics that two sources would read."""

from __future__ import annotations

import re

from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.names import validate_name
from kstreams_repl.engine.topology.nodes import SinkNode
from kstreams_repl.engine.topology.store_builder import HISTORY_SUFFIX, StoreBuilder, StoreKind
from kstreams_repl.system.errors import TopologyError, did_you_mean
from kstreams_repl.system.types import is_async

_ASYNCHRONOUS = {
    "filter": "filter_async",
    "filter_not": "filter_async",
    "map_values": "map_values_async",
    "flat_map_values": "flat_map_values_async",
    "process_values": "process_values_async",
}
"""The asynchronous operator for the function of a synchronous one; for all others `process_async`."""


def refuse_async(function: object, what: str, operator: str) -> None:
    """Raise if a function, or a processor's method, is an `async def`: its coroutine would be taken for its result.

    Raises:
        TopologyError: it is; names the asynchronous operator.
    """
    methods = [getattr(function, name, None) for name in ("process", "transform")] if isinstance(function, type) else []
    for each in filter(is_async, (function, *methods)):
        raise TopologyError(
            f"{operator}() expected a {what} that returns its result, got the async function {getattr(each, '__qualname__', repr(each))}",
            hint=f"await it in {_ASYNCHRONOUS.get(operator, 'process_async')}(), or write it with def instead of async def",
        )


class TopologyChecks(TopologyGraph):
    """A graph that checks new names, parents and topics against the existing ones."""

    def __init__(self) -> None:
        super().__init__()
        self._store_users: dict[str, list[str]] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._topic_sources: dict[str, str] = {}

    def _store_name(self, builder: object) -> str:
        if not isinstance(builder, StoreBuilder):
            raise TopologyError(
                f"expected a StoreBuilder, got {builder!r}",
                hint='StoreBuilder("name", StoreKind.KEY_VALUE); connect_processor_and_state_stores connects a store by name',
            )
        return validate_name(builder.name, "store")

    def _check_history(self, builder: StoreBuilder) -> None:
        """Raise if the name of a versioned store's history store is taken: it lies next to the other stores of its task."""
        stores = {**self._stores, **self._global_stores, builder.name: builder}
        for store in stores.values():
            other = store.name + HISTORY_SUFFIX
            if store.kind is StoreKind.VERSIONED and other in stores and builder.name in (store.name, other):
                raise TopologyError(
                    f"the store name {other!r} is taken by the history of the versioned store {store.name!r}",
                    hint="choose another name",
                    store=builder.name,
                )

    def _free_node_name(self, name: object) -> None:
        if not isinstance(name, str) or not name:
            raise TopologyError(f"expected the name of a node, got {name!r}", hint="pass its name as non-empty text first")
        if name in self._nodes:
            raise TopologyError(
                f"a node named {name!r} was already added",
                hint=f"node names are unique in a topology: choose another one, or change this one: builder.replace({name!r}, function)",
                node=name,
            )

    def _check_parents(self, name: str, parents: tuple[str, ...], kind: str) -> None:
        if not parents:
            raise TopologyError(
                f"{kind} {name!r} has no parent", hint="name at least one source or processor as its parent", node=name
            )
        for parent in parents:
            if parent == name:
                raise TopologyError(
                    f"{kind} {name!r} cannot be its own parent", hint="name another node as its parent", node=name
                )
            node = self._nodes.get(parent)
            if node is None:
                raise TopologyError(
                    f"{kind} {name!r} names the parent {parent!r}, which was not added",
                    hint=did_you_mean(parent, self._nodes) or "add parents before their children",
                    node=name,
                )
            if isinstance(node, SinkNode):
                raise TopologyError(
                    f"{kind} {name!r} names the sink {parent!r} as parent", hint="a sink has no children", node=name
                )

    def _check_supplier(self, name: str, supplier: object) -> None:
        if not callable(supplier) and not hasattr(supplier, "build"):
            raise TopologyError(
                f"expected a callable as supplier of processor {name!r}, got {supplier!r}",
                hint="pass a class or function that returns a fresh processor for each task, not a processor",
                node=name,
            )
        refuse_async(supplier, "supplier", "add_processor")

    def _split_pattern(self, name: str, topics: tuple[object, ...]) -> tuple[re.Pattern[str] | None, tuple[str, ...]]:
        if isinstance(topics[0], re.Pattern):
            if len(topics) > 1:
                raise TopologyError(
                    f"source {name!r} mixes a pattern with other topics", hint="use one source for each", node=name
                )
            return topics[0], ()
        return None, tuple(validate_name(topic, "topic") for topic in topics)

    def _free_topic(self, name: str, topic: str) -> None:
        taken = self._topic_sources.get(validate_name(topic, "topic"))
        if taken is None:
            taken = next((source for source, pattern in self._patterns.items() if pattern.fullmatch(topic)), None)
        if taken is not None:
            raise TopologyError(
                f"source {name!r} reads topic {topic!r}, which source {taken!r} reads already",
                hint="read it once and let both branches start from that source",
                node=name,
                topic=topic,
            )

    def _free_pattern(self, name: str, pattern: re.Pattern[str]) -> None:
        for topic, source in self._topic_sources.items():
            if pattern.fullmatch(topic):
                raise TopologyError(
                    f"the pattern {pattern.pattern!r} of source {name!r} matches topic {topic!r}, which source {source!r} reads already",
                    hint="make the pattern narrower",
                    node=name,
                    topic=topic,
                )
