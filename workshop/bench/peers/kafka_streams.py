"""Kafka Streams itself on the JVM: `StreamsPeer.java` and the twins of benchmarks' queries, compiled with the JDK that is found, with
the jars pinned in `jars.lock`.

Its clock runs from the first record *processed* to the last one processed: commits and output may still be pending when it stops,
which favours it by up to one commit interval.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Self

import click

from kstreams_repl.host.kafka.embedded.jars import LockedJar, ensure_jars, parse_lock
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.java import MINIMUM_MAJOR, major_version
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.processes import ProcessSampler, megabytes_in, tree
from workshop.bench.rig.testbed import Testbed
from workshop.bench.rig.thread_times import PartTimes
from workshop.bench.rig.workloads import Topics

KAFKA_STREAMS = "kafka-streams"
"""The peer's name in options and lines."""
SOURCES = ("StreamsPeer.java", "NexmarkTwins.java", "TheodoliteTwins.java", "SchemaValues.java")
GRACE_SECONDS = 90
"""Additional time for start and close of the peer."""
LOG = "peer.log"
_ENDLESS, _ENDLESS_SECONDS = 1 << 62, 1 << 30


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One run of the peer: records within its clock; `complete` if it processed every record of the input and closed normally;
    `state_mb` is the size of its state directory after that; `sending`: linger and compression of its producers; `began`: seconds since
    1970; `commit_ms`: of a commit on average."""

    records: int
    seconds: float
    cpu_seconds: float
    rss_mb: int
    complete: bool
    state_mb: float = 0.0
    sending: str = ""
    began: float = 0.0
    commit_ms: float = 0.0
    threads: PartTimes = field(default_factory=dict, repr=False)

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def peer_option(command: Any) -> Any:
    """Add `--peer kafka-streams`."""
    return click.option("--peer", type=click.Choice([KAFKA_STREAMS]), help="Also run this peer; needs a JDK (javac).")(command)


@cache
def peer_jars(lock: str = "jars.lock") -> tuple[LockedJar, ...]:
    """Return a peer's pinned class path."""
    return parse_lock(files(__package__).joinpath(lock).read_text(encoding="utf-8"))


def find_jdk(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the home of a JDK (a Java with a compiler) of at least version 17: JAVA_HOME's, else the one on PATH; None if there
    is none."""
    candidates = []
    if environment.get("JAVA_HOME"):
        candidates.append(Path(environment["JAVA_HOME"]) / "bin" / "javac")
    on_path = shutil.which("javac", path=environment.get("PATH", ""))
    if on_path:
        candidates.append(Path(on_path).resolve())
    for compiler in candidates:
        home = compiler.parent.parent
        if os.access(compiler, os.X_OK) and os.access(home / "bin" / "java", os.X_OK) and _major(compiler) >= MINIMUM_MAJOR:
            return home
    return None


def chosen_jdk(peer: str | None) -> Path | None:
    """Return the JDK to run a requested peer with; None, with a message, if there is no JDK."""
    if peer is None:
        return None
    jdk = find_jdk()
    if jdk is None:
        click.echo("no JDK (javac 17 or newer) on JAVA_HOME or PATH: the Kafka Streams peer is skipped", err=True)
    return jdk


def _major(compiler: Path) -> int:
    output = subprocess.run([compiler, "-version"], capture_output=True, text=True, timeout=30, check=False)
    return major_version((output.stdout + output.stderr).strip().removeprefix("javac "))


class JavaPeer:
    """A compiled peer; a context manager, because its compiled files are temporary.

    Args:
        jdk: home of the JDK to compile and run with.
        jars: its class path; None: the pinned one, downloaded if it is not in the cache.
        scratch: directory for its files; the testbed's own directory is removed even if this process is killed.

    Attributes:
        title: its name in messages. sources: its files, the main class first. lock: the list of its jars.

    Raises:
        KStreamsError: the jars are not available, or the source does not compile.
    """

    title = "Kafka Streams"
    sources: tuple[str, ...] = SOURCES
    lock = "jars.lock"

    def __init__(self, jdk: Path, jars: tuple[Path, ...] | None = None, *, scratch: Path | None = None) -> None:
        self._jdk = jdk
        self._jars = jars if jars is not None else ensure_jars(jars=peer_jars(self.lock))
        self._scratch = scratch
        self._classes = Path(tempfile.mkdtemp(prefix="kstreams-peer-", dir=scratch))
        try:
            self._compile()
        except BaseException:
            self.close()
            raise

    def _compile(self) -> None:
        with ExitStack() as stack:
            sources = [str(stack.enter_context(as_file(files(__package__).joinpath(name)))) for name in self.sources]
            compiler = str(self._jdk / "bin" / "javac")
            command = [compiler, "-cp", self._class_path(), "-d", str(self._classes), *sources]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise KStreamsError(
                f"the {self.title} peer does not compile: {done.stderr[:400]}", hint=f"the JDK at {self._jdk} may be too old"
            )

    def close(self) -> None:
        shutil.rmtree(self._classes, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run_java(self, options: Mapping[str, object], seconds: float, state: Path) -> tuple[Any, ProcessSampler]:
        """Run the peer until it has printed its one line; return the line's contents."""
        with self._started(self.command(options), state) as process:
            sampler = ProcessSampler(lambda: tree(process.pid))
            with sampler:
                output = line_of(process, seconds + GRACE_SECONDS)
        if not output:
            raise KStreamsError(
                f"the {self.title} peer failed: {last_words(state / LOG)}", hint="run it once more; its jars may not fit the JDK"
            )
        return json.loads(output), sampler

    @contextmanager
    def _started(self, command: Sequence[str], state: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Start the peer, and kill it afterwards; what it says is in its log in its state directory."""
        with (state / LOG).open("wb") as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
            try:
                yield process
            finally:
                process.kill()
                process.communicate()

    def command(self, options: Mapping[str, object], *flags: str) -> list[str]:
        """Return the command of the peer.

        Args:
            flags: of the JVM.
        """
        class_path = os.pathsep.join([self._class_path(), str(self._classes)])
        given = [f"{key}={value}" for key, value in options.items()]
        return [str(self._jdk / "bin" / "java"), *flags, "-cp", class_path, self.sources[0].removesuffix(".java"), *given]

    def _class_path(self) -> str:
        return os.pathsep.join(map(str, self._jars))


class KafkaStreamsPeer(JavaPeer):
    """`StreamsPeer.java`."""

    def run(
        self,
        testbed: Testbed,
        workload: str,
        topics: Topics,
        records: int,
        settings: Settings,
        name: str,
        *,
        after: int = 0,
        twins: str = "",
        settle_ms: int = 0,
        options: Mapping[str, str] | None = None,
    ) -> PeerRun:
        """Run one workload to the end of its input, and delete everything it made except its output.

        Args:
            after: number of processed records after which its clock starts; 0: with the first record.
            twins: `workload` is a query of this benchmark, and `topics.input` the prefix of its topics.
            settle_ms: it has finished when it has processed nothing for so long, for topologies with repartition topics; its clock stops
                with the last record.
            options: of the twin.

        Raises:
            KStreamsError: the peer failed, or did not finish in time.
        """
        more = {"records": records, "after": after, "twins": twins, "settle-ms": settle_ms, "max-seconds": settings.max_seconds}
        more |= options or {}
        with self._options(testbed, workload, topics, settings, name, more) as (given, state):
            result, sampler = self._run_java(given, settings.max_seconds, state)
            state_mb = megabytes_in(state)
        complete = result["records"] == records and result["closed"]
        return PeerRun(
            result["measured"],
            result["seconds"],
            result["cpu_seconds"],
            sampler.peak_rss_mb,
            complete,
            state_mb,
            began=result["began_ms"] / 1000,
            commit_ms=result["commit_ms"],
            sending=result["sending"],
        )

    @contextmanager
    def running(
        self,
        testbed: Testbed,
        workload: str,
        topics: Topics,
        settings: Settings,
        name: str,
        *,
        twins: str = "",
        options: Mapping[str, object] | None = None,
    ) -> Iterator[Callable[[], None]]:
        """Run a workload for as long as the block lasts; yields a function that raises if the peer has ended before.

        Args:
            twins: as in `run`.
            options: replace those of the settings.
        """
        more = {"records": _ENDLESS, "after": 0, "twins": twins, "settle-ms": 0, "max-seconds": _ENDLESS_SECONDS}
        more |= options or {}

        def check() -> None:
            if process.poll() is not None:
                raise KStreamsError(f"the {self.title} peer failed: {last_words(state / LOG)}", hint="run it once more")

        with (
            self._options(testbed, workload, topics, settings, name, more) as (options, state),
            self._started(self.command(options), state) as process,
        ):
            yield check

    @contextmanager
    def _options(
        self, testbed: Testbed, workload: str, topics: Topics, settings: Settings, name: str, more: Mapping[str, object]
    ) -> Iterator[tuple[dict[str, Any], Path]]:
        """Yield the options of a run and its state directory; delete afterwards what the run made except its output."""
        state = Path(tempfile.mkdtemp(prefix="kstreams-peer-state-", dir=self._scratch))
        options = {
            "application": name,
            "bootstrap": testbed.session.bootstrap_servers,
            "workload": workload,
            "guarantee": settings.guarantee,
            "input": topics.input,
            "table": topics.table,
            "output": topics.output,
            "threads": settings.instances,
            "commit-ms": settings.commit_ms,
            **{f"producer.{name}": value for name, value in settings.sending.items()},
            "state-dir": state,
            "cache-bytes": "" if settings.cache_bytes is None else settings.cache_bytes,
        }
        try:
            yield {**options, **more}, state
        finally:
            shutil.rmtree(state, ignore_errors=True)
            testbed.forget(name)


def line_of(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """Return the process's one line of output; empty if it ended without a line, or is too slow."""
    import selectors

    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if selector.select(0.2):
                return process.stdout.readline()
    return b""


def last_words(log: Path) -> str:
    lines = [
        line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip() and "SLF4J" not in line
    ]
    causes = [line for line in lines if line.startswith(("Exception", "Caused by", "Error"))]
    return (causes or lines or ["(no output)"])[-1][:400]
