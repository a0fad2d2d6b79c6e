"""confluent's parallel-consumer on the JVM: `ParallelConsumerPeer.java`, with the jars pinned in `parallel-consumer.lock`. It has no state
and writes no output: its clock runs from the first call to the end of the last one.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import JavaPeer
from workshop.bench.rig.testbed import Testbed

PARALLEL_CONSUMER = "parallel-consumer"
"""The peer's name in options and lines."""


class ParallelConsumerPeer(JavaPeer):
    """The compiled peer."""

    title = PARALLEL_CONSUMER
    sources = ("ParallelConsumerPeer.java",)
    lock = "parallel-consumer.lock"

    def run(self, testbed: Testbed, topic: str, records: int, in_flight: int, name: str, *, max_seconds: int = 120) -> float:
        """Call for every record of a topic, in key order; return the seconds.

        Raises:
            KStreamsError: it failed, or did not finish in time.
        """
        state = Path(tempfile.mkdtemp(prefix="parallel-consumer-", dir=self._scratch))
        options = {
            "application": name,
            "bootstrap": testbed.session.bootstrap_servers,
            "input": topic,
            "records": records,
            "in-flight": in_flight,
            "max-seconds": max_seconds,
        }
        try:
            result, _ = self._run_java(options, max_seconds, state)
        finally:
            shutil.rmtree(state, ignore_errors=True)
            testbed.forget(name)
        if result["records"] != records:
            raise KStreamsError(f"{self.title} made {result['records']:,} of {records:,} calls", hint="use a larger --max-seconds")
        seconds: float = result["seconds"]
        return seconds
