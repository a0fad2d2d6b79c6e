"""Kafka Streams itself, run on the JVM for its results: `Oracle.java` for conformance cases, and other oracles beside their cases.

The class path has Kafka Streams and its test utilities of a version pinned in `oracle.lock`; the other libraries are those of the embedded
broker and of the benchmarks' peer. Results of all cases were recorded with the first version, those of a case with `since` with that one.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kstreams_repl.host.kafka.embedded.jars import LockedJar, ensure_jars, locked_jars, parse_lock
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers.kafka_streams import find_jdk, peer_jars

HERE = Path(__file__).parent
LOCK = parse_lock((HERE / "oracle.lock").read_text(encoding="utf-8"))
VERSIONS = tuple(jar.version for jar in LOCK if jar.artifact == "kafka-streams")
RECORDED = VERSIONS[0]
"""The version whose results the cases have."""
SECONDS = 540.0


def jars_of(version: str) -> tuple[LockedJar, ...]:
    """Return the class path with a version of Kafka Streams."""
    others = (jar for jar in (*peer_jars(), *locked_jars()) if jar.group != "org.apache.kafka")
    return (*(jar for jar in LOCK if jar.version == version), *others)


def run_java(sources: Sequence[Path], *arguments: str, version: str, text: str | None = None) -> bytes:
    """Compile sources, run the first one's class, and return what it prints. Its temporary files are removed.

    Args:
        arguments: of the class.
        version: of Kafka Streams.
        text: its standard input.

    Raises:
        KStreamsError: there is no JDK, or the class fails.
    """
    jdk = find_jdk()
    if jdk is None:
        raise KStreamsError("no JDK to run Kafka Streams with", hint="install one (javac 17 or newer), or set JAVA_HOME")
    path = os.pathsep.join(map(str, ensure_jars(jars=jars_of(version))))
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as scratch:
        compiled = subprocess.run(
            [str(jdk / "bin" / "javac"), "-nowarn", "-cp", path, "-d", scratch, *map(str, sources)],
            capture_output=True, text=True, check=False, timeout=SECONDS,
        )  # fmt: skip
        if compiled.returncode:
            raise KStreamsError(f"{sources[0].name} does not compile with Kafka Streams {version}: {compiled.stderr[:400]}")
        flags = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF", f"-Djava.io.tmpdir={scratch}"]
        done = subprocess.run(
            [str(jdk / "bin" / "java"), *flags, "-cp", f"{scratch}{os.pathsep}{path}", sources[0].stem, *arguments],
            input=None if text is None else text.encode(), capture_output=True, check=False, timeout=SECONDS,
        )  # fmt: skip
    if done.returncode:
        raise KStreamsError(
            f"{sources[0].name} failed with Kafka Streams {version}: {done.stderr.decode(errors='replace')[-400:]}"
        )
    return done.stdout


def knows(case: dict[str, Any], version: str) -> bool:
    """Whether a version of Kafka Streams has the result that a case records."""
    return VERSIONS.index(case.get("since", RECORDED)) <= VERSIONS.index(version)


def results(cases: Iterable[dict[str, Any]], *, version: str) -> list[dict[str, Any]]:
    """Return the result of each case on the JVM, as its `expect` has it."""
    asked = list(cases)
    text = "".join(json.dumps({**case, "expect": None}) + "\n" for case in asked)
    sources = [HERE / "Oracle.java", *([] if version == RECORDED else [HERE / "Oracle44.java"])]
    lines = run_java(sources, version=version, text=text).decode().splitlines()
    answers = [json.loads(line) for line in lines if line.startswith("{")]
    if [answer.pop("id") for answer in answers] != [case["id"] for case in asked]:
        raise KStreamsError(f"{len(answers)} results for {len(asked)} cases", hint="the JVM prints one line a case")
    return answers


def differences(case: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """Return in what the JVM's result differs from the recorded one: the part, and for the trace the step, with both values."""
    expect = case["expect"]
    found = [
        f"{part}: recorded {json.dumps(expect.get(part))}, got {json.dumps(answer.get(part))}"
        for part in sorted({*expect, *answer} - {"trace"})
        if expect.get(part) != answer.get(part)
    ]
    steps = expect.get("trace", ()), answer.get("trace", ())
    if len(steps[0]) != len(steps[1]):
        found.append(f"trace: recorded {len(steps[0])} steps, got {len(steps[1])}")
    for number, (want, got) in enumerate(zip(*steps, strict=False)):
        for topic in sorted(want.keys() | got.keys()):
            if want.get(topic) != got.get(topic):
                shown = f"recorded {json.dumps(want.get(topic))}, got {json.dumps(got.get(topic))}"
                found.append(f"step {number}, {topic}: {shown}")
    return found
