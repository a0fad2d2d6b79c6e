"""The metrics of the client: what only the driver knows about an application, and the states of its instances as the driver sees them."""

from __future__ import annotations

import sys
import time

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.catalogue import CLIENT, CLIENT_ID, THREAD, THREAD_ID, level_number
from kstreams_repl.engine.metrics.metrics_snapshot import Snapshot
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.instance.metrics.instance_metrics import thread_id
from kstreams_repl.host.spark.instance_reports import ApplicationReport

_ALIVE = frozenset({"restoring", "running", "recovering"})
_KAFKAS = {"created": 0, "starting": 1, "running": 2, "paused": 2, "stopped": 4, "failed": 6}
"""The ordinals of `KafkaStreams.State`; a paused client is RUNNING there."""


def client_metrics(application_id: str, topology: Topology, config: StreamsConfig, *, status: str, reports: ApplicationReport) -> Snapshot:
    """Return state, threads and topology of an application, and the state of each instance: one that failed cannot report its own."""
    states = {slot: instance.state for slot, instance in reports.instances.items()}
    built = topology.build() if hasattr(topology, "build") else topology
    return Snapshot(
        time.time_ns() // 1_000_000,
        [
            (
                CLIENT,
                {CLIENT_ID: application_id},
                {
                    "version": sys.modules["kstreams_repl"].__version__,
                    "application-id": application_id,
                    "topology-description": str(built.describe()),
                    "state": str(status),
                    "client-state": _KAFKAS.get(str(status)),
                    "recording-level": level_number(config["metrics.recording.level"]),
                    "alive-stream-threads": sum(state in _ALIVE for state in states.values()) if status == "running" else 0,
                    "failed-stream-threads": list(states.values()).count("failed"),
                    "repl-generation": reports.generation,
                },
            ),
            *((THREAD, {THREAD_ID: thread_id(application_id, slot)}, {"state": state}) for slot, state in states.items()),
        ],
    )
