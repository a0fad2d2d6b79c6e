"""The metrics of the client: what only the driver knows of an application."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kstreams_repl.metrics.catalogue import CLIENT, CLIENT_ID
from kstreams_repl.metrics.snapshot import Snapshot

if TYPE_CHECKING:
    from kstreams_repl.spark.deployment import Deployment

_ALIVE = frozenset({"restoring", "running", "recovering"})


def client_metrics(deployment: Deployment) -> Snapshot:
    """State, threads and topology of a deployment, as of now."""
    states = [instance.state for instance in deployment.reports.instances.values()]
    plan = deployment.plan
    topology = deployment.topology.build() if hasattr(deployment.topology, "build") else deployment.topology
    return Snapshot(
        time.time_ns() // 1_000_000,
        [
            (
                CLIENT,
                {CLIENT_ID: deployment.application_id},
                {
                    "version": sys.modules["kstreams_repl"].__version__,
                    "application-id": deployment.application_id,
                    "topology-description": str(topology.describe()),
                    "state": str(deployment.status),
                    "alive-stream-threads": sum(state in _ALIVE for state in states) if deployment.status == "running" else 0,
                    "failed-stream-threads": states.count("failed"),
                    "repl-generation": 0 if plan is None else plan.generation,
                },
            )
        ],
    )
