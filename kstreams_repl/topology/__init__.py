"""The logical topology: immutable nodes in a mutable builder, and what can be read from it."""

from __future__ import annotations

from kstreams_repl.topology.describe import TopologyDescription
from kstreams_repl.topology.graph import TopologyGraph
from kstreams_repl.topology.nodes import Node, Origin, ProcessorNode, SinkNode, SourceNode
from kstreams_repl.topology.partitions import DefaultPartitionGrouper, PartitionGrouper, ResolvedTopology, resolve_partitions
from kstreams_repl.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.topology.subtopologies import Subtopology
from kstreams_repl.topology.topology import Topology

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
