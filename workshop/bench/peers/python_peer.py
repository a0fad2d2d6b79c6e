"""Quix Streams, Bytewax and Faust on the same topics, each in the user's own environment in which it is installed.

A peer runs as many processes as this package runs instances. Its clock runs from the first record it *processed* to the last one
or to its time limit; records not sent or committed by then count in its favour. Outputs are not compared, because their formats
differ. The guarantees differ too: Bytewax here keeps nothing beyond its process, Faust is at least once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from kstreams_repl.host.kafka.embedded.broker import free_port
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import PeerRun
from workshop.bench.peers.python import counter
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.processes import ProcessSampler, tree
from workshop.bench.rig.testbed import COMPRESSION, LINGER_MS, PARTITIONS, Testbed
from workshop.bench.rig.workloads import Topics

_POLL_SECONDS = 0.02
_START_SECONDS = 90
_SETTLED_SECONDS = 3.0
"""A peer that has counted no new record for this long has processed everything."""


@dataclass(frozen=True, slots=True)
class PythonPeer:
    """One peer: its script, the package that its environment needs, and the guarantees it offers ("none" for Bytewax)."""

    name: str
    script: str
    package: str
    guarantees: tuple[str, ...]

    def run(self, python: Path, testbed: Testbed, workload: str, topics: Topics, records: int, settings: Settings, run: str) -> PeerRun:
        """Process up to `records` or for `settings.max_seconds`, then kill it and delete its internal topics.

        Raises:
            KStreamsError: the peer ended or counted nothing; the message has the last lines of its log.
        """
        scratch = Path(tempfile.mkdtemp(prefix="kstreams-peer-", dir=testbed.scratch))
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(as_file(files("workshop.bench.peers") / "python"))
                ports: list[int] = []
                for _ in range(settings.instances):
                    ports.append(free_port(*ports))
                options = {
                    "name": run,
                    "folder": str(scratch),
                    "bootstrap": testbed.session.bootstrap_servers,
                    "workload": workload,
                    "guarantee": settings.guarantee,
                    "input": topics.input,
                    "table": topics.table,
                    "output": topics.output,
                    "commit_ms": settings.commit_ms,
                    "linger_ms": LINGER_MS,
                    "compression": COMPRESSION,
                    "partitions": PARTITIONS,
                    "addresses": [f"127.0.0.1:{port}" for port in ports],
                }
                log = stack.enter_context((scratch / "peer.log").open("wb"))
                processes = []
                for number in range(settings.instances):
                    command = [str(python), str(folder / self.script), json.dumps(options | {"number": number})]
                    process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=scratch, env=_environment()
                    )
                    stack.enter_context(_ended(process))
                    processes.append(process)
                return self._measure(processes, scratch, records, settings)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            testbed.forget(run)

    def _measure(self, processes: list[subprocess.Popen[bytes]], folder: Path, records: int, settings: Settings) -> PeerRun:
        enough = records - counter.STEP * len(processes)
        with ProcessSampler(lambda: [one for process in processes for one in tree(process.pid)]) as sampler:
            give_up = time.time() + _START_SECONDS
            while not (seen := counter.total(folder)):
                if time.time() > give_up or all(process.poll() is not None for process in processes):
                    raise KStreamsError(f"{self.name} processed nothing: {_last_words(folder / 'peer.log')}")
                time.sleep(_POLL_SECONDS)
            began = changed = time.time()
            while seen < enough and (now := time.time()) - began < settings.max_seconds:
                time.sleep(_POLL_SECONDS)
                before, seen = seen, counter.total(folder)
                if seen != before:
                    changed = time.time()
                elif now - changed > _SETTLED_SECONDS:
                    break
        if changed <= began:
            raise KStreamsError(
                f"{self.name} had counted all its {seen:,} records before its clock could start",
                hint="use more records: --records N",
            )
        return PeerRun(seen, changed - began, sampler.cpu_between(began, changed), sampler.peak_rss_mb, seen >= enough)


PEERS = {
    peer.name: peer
    for peer in (
        PythonPeer("quix-streams", "quix_streams.py", "quixstreams", (EXACTLY_ONCE_V2, AT_LEAST_ONCE)),
        PythonPeer("bytewax", "bytewax_flow.py", "bytewax", ("none",)),
        PythonPeer("faust", "faust_app.py", "faust", (AT_LEAST_ONCE,)),
    )
}


def peers_of(python: Path) -> list[PythonPeer]:
    """Return the peers whose package this interpreter can import."""
    asked = "import importlib.util, sys; print(*(n for n in sys.argv[1:] if importlib.util.find_spec(n)))"
    packages = [peer.package for peer in PEERS.values()]
    try:
        command = [str(python), "-c", asked, *packages]
        output = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True, env=_environment(), cwd="/"
        ).stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise KStreamsError(f"{python} does not run: {error}", hint="give the Python of an environment that contains a peer") from error
    return [peer for peer in PEERS.values() if peer.package in output]


def _environment() -> dict[str, str]:
    """Return this process's variables without those that would make this project's packages importable for the peer."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in reversed(tree(process.pid)):
            one.kill()
        process.wait()


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return (lines or ["(no output)"])[-1][:400]
