"""The logical topology: immutable nodes in a mutable builder, and what can be read from it."""

from __future__ import annotations

from kstreams_repl.engine.topology.description.describe import TopologyDescription
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.engine.topology.nodes import Node, Origin, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.engine.topology.partitions import (
    DefaultPartitionGrouper,
    PartitionGrouper,
    ResolvedTopology,
    resolve_partitions,
)
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.engine.topology.subtopologies import Subtopology
from kstreams_repl.engine.topology.topology import Topology

__all__ = [
    "DefaultPartitionGrouper",
    "Node",
    "Origin",
    "PartitionGrouper",
    "ProcessorNode",
    "ResolvedTopology",
    "SinkNode",
    "SourceNode",
    "StoreBuilder",
    "StoreKind",
    "Subtopology",
    "Topology",
    "TopologyDescription",
    "TopologyGraph",
    "resolve_partitions",
]
