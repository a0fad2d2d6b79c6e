"""Resolve a builder, stream, table, topology or application to a topology."""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.engine.dsl.builder import StreamsBuilder, builder_of
from kstreams_repl.engine.dsl.graph.call_log import Handle
from kstreams_repl.engine.dsl.kip28 import TopologyBuilder
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import TopologyError


def topology_of(thing: object, config: Mapping[str, object] | None = None) -> Topology:
    """Return the finished topology of a builder, stream, table, topology or application.

    Raises:
        TopologyError: it cannot be built in its present state, or the object has no topology.
    """
    if isinstance(thing, Topology):
        return thing
    if isinstance(thing, StreamsBuilder | TopologyBuilder):
        return thing.build(config)
    if isinstance(thing, Handle):
        return builder_of(thing).build(config)
    inner = getattr(thing, "topology", None)
    if isinstance(inner, Topology):
        return inner
    raise TopologyError(
        f"expected a builder, stream, table, topology or application, got a {type(thing).__name__}",
        hint="pass the StreamsBuilder: session.deploy(builder, name)",
    )
