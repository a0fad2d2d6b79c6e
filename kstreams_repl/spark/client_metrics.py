"""The metrics of the client: what only the driver knows about an application, and the states of its instances as the driver sees them."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kstreams_repl.instance.metrics.instance_metrics import thread_id
from kstreams_repl.metrics.catalogue import CLIENT, CLIENT_ID, THREAD, THREAD_ID, level_number
from kstreams_repl.metrics.snapshot import Snapshot

if TYPE_CHECKING:
    from kstreams_repl.spark.deployment import Deployment

_ALIVE = frozenset({"restoring", "running", "recovering"})


def client_metrics(deployment: Deployment) -> Snapshot:
    """Return state, threads and topology of a deployment, and the state of each instance: one that failed cannot report its own."""
    states = {slot: instance.state for slot, instance in deployment.reports.instances.items()}
    plan = deployment.plan
    config = deployment.config if plan is None else plan.config
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
                    "recording-level": level_number(config["metrics.recording.level"]),
                    "alive-stream-threads": sum(state in _ALIVE for state in states.values()) if deployment.status == "running" else 0,
                    "failed-stream-threads": list(states.values()).count("failed"),
                    "repl-generation": 0 if plan is None else plan.generation,
                },
            ),
            *((THREAD, {THREAD_ID: thread_id(deployment.application_id, slot)}, {"state": state}) for slot, state in states.items()),
        ],
    )
