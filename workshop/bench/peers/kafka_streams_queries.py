"""Kafka Streams' own queries behind HTTP: `QueriesPeer.java`, a count whose store the JDK's HTTP server answers from."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import GRACE_SECONDS, LOG, JavaPeer, last_words, line_of
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.testbed import Testbed


class QueriesPeer(JavaPeer):
    """The compiled peer, as `JavaPeer`."""

    sources = ("QueriesPeer.java",)

    @contextmanager
    def serving(self, testbed: Testbed, topic: str, records: int, settings: Settings, name: str) -> Iterator[tuple[int, int]]:
        """Yield (port, process id) of a peer that has processed every record of a topic.

        Raises:
            KStreamsError: it failed, or did not process them in time.
        """
        state = Path(tempfile.mkdtemp(prefix="kstreams-peer-state-", dir=self._scratch))
        options = {
            "application": name,
            "bootstrap": testbed.session.bootstrap_servers,
            "guarantee": settings.guarantee,
            "records": records,
            "input": topic,
            "threads": settings.instances,
            "commit-ms": settings.commit_ms,
            "state-dir": state,
            "max-seconds": settings.max_seconds,
        }
        command = self.command(options, "-Dsun.net.httpserver.nodelay=true")  # without it each answer waits for Nagle's algorithm
        try:
            with self._started(command, state) as process:
                output = line_of(process, settings.max_seconds + GRACE_SECONDS)
                if not output:
                    raise KStreamsError(f"the Kafka Streams peer does not serve: {last_words(state / LOG)}")
                yield json.loads(output)["port"], process.pid
        finally:
            shutil.rmtree(state, ignore_errors=True)
            testbed.forget(name)
