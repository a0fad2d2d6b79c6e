"""How fast records pass the nodes of a running application, for pictures and panels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kstreams_repl.metrics.catalogue import NODE, NODE_ID
from kstreams_repl.metrics.snapshot import Metric
from kstreams_repl.topology.nodes import SourceNode
from kstreams_repl.topology.topology import Topology

if TYPE_CHECKING:
    from kstreams_repl.spark.progress import ApplicationReport


@dataclass(frozen=True, slots=True)
class NodeRate:
    """Records that entered a node.

    Attributes:
        records: since the tasks were taken over. per_second: over the last samples (DEBUG) or half a second (INFO).
        counted: at the node itself; False: it is what its sub-topology took, known at every recording level.
    """

    records: int
    per_second: float
    counted: bool


def node_rates(topology: Topology, metrics: Iterable[Metric], told: ApplicationReport) -> dict[str, NodeRate]:
    """Rates by node name.

    At the recording level DEBUG every node has one, counted at the node. At INFO the sources of a sub-topology have what the sub-topology
    took (all its sources together), and other nodes are missing: nothing is counted per record there.
    """
    records: dict[str, float] = {}
    rates: dict[str, float] = {}
    for metric in metrics:
        if metric.group == NODE and isinstance(metric.value, (int, float)):
            node = metric.tags[NODE_ID]
            if metric.name == "process-total":
                records[node] = records.get(node, 0) + metric.value
            elif metric.name == "process-rate":
                rates[node] = rates.get(node, 0.0) + metric.value
    found = {node: NodeRate(int(count), rates.get(node, 0.0), True) for node, count in records.items()}
    for part in topology.subtopologies():
        tasks = [task for name, task in told.tasks.items() if name.startswith(f"{part.id}_")]
        for node_ in part.nodes:
            if isinstance(node_, SourceNode) and node_.name not in found and tasks:
                found[node_.name] = NodeRate(sum(t.records for t in tasks), sum(t.rate for t in tasks), False)
    return found
