"""Resolve a builder, stream, table, topology or application to a topology."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstreams_repl.dsl.builder import StreamsBuilder
from kstreams_repl.dsl.call_log import Handle
from kstreams_repl.errors import TopologyError
from kstreams_repl.topology.topology import Topology


def topology_of(thing: Any, config: Mapping[str, Any] | None = None) -> Topology:
    """Return the finished topology of a builder, stream, table, topology or application.

    Raises:
        TopologyError: it cannot be built in its present state, or the object has no topology.
    """
    if isinstance(thing, Topology):
        return thing
    if isinstance(thing, StreamsBuilder):
        return thing.build(config)
    if isinstance(thing, Handle):
        return builder_of(thing).build(config)
    inner = getattr(thing, "topology", None)
    if isinstance(inner, Topology):
        return inner
    raise TopologyError(
        f"{type(thing).__name__} has no topology",
        hint="pass a StreamsBuilder, a stream or table of one, a Topology or an Application",
    )


def builder_of(handle: Handle) -> StreamsBuilder:
    """Return the builder of a stream or table."""
    builder = StreamsBuilder()
    builder._log = handle._log
    return builder
