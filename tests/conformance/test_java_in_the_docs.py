"""The pairs of ``docs/start/kafka-streams.md``: the Java compiles, and describes the topology of the Python."""

from __future__ import annotations

import os
import re
import subprocess
from doctest import DocTestParser
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.kafka.embedded.jars import ensure_jars
from workshop.bench.peers.kafka_streams import find_jdk, peer_jars

PAGE = Path(__file__).resolve().parents[2] / "docs" / "start" / "kafka-streams.md"
PAIR = re.compile(r"^```java\n(.*?)^```\n\n```python\n(>>> .*?)^```", re.MULTILINE | re.DOTALL)
PROGRAM = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.*;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.processor.api.*;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;

public class Page {
    %s
    public static void main(String[] arguments) {
        %s
    }
}
"""
PRINT = 'System.out.println(builder.build().describe() + "----");'


def topologies() -> list[str]:
    """What the Python of each pair describes; the page runs as a whole in `tests/unit/test_docs.py`."""
    found: list[str] = []
    names: dict[str, Any] = {}
    for _, python in PAIR.findall(PAGE.read_text(encoding="utf-8")):
        for example in DocTestParser().get_examples(python):
            exec(compile(example.source, str(PAGE), "single"), names)
        found.append(str(names["builder"].build().describe()))
    return found


def test_the_page_has_pairs() -> None:
    assert len(topologies()) == 4 and len(set(topologies())) == 4


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_java_of_a_pair_describes_the_same_topology(tmp_path: Path) -> None:
    jdk = find_jdk()
    if jdk is None:
        pytest.skip("no JDK (javac 17 or newer)")
    classes, blocks = [], []
    for java, _ in PAIR.findall(PAGE.read_text(encoding="utf-8")):
        declared, _, statements = java.rpartition("\n}\n")
        classes.append(f"{declared}\n}}" if declared else "")
        blocks.append(f"{{ StreamsBuilder builder = new StreamsBuilder();\n{statements}\n{PRINT} }}")
    (tmp_path / "Page.java").write_text(PROGRAM % ("\n".join(classes), "\n".join(blocks)), encoding="utf-8")
    jars = os.pathsep.join(map(str, ensure_jars(jars=peer_jars())))
    subprocess.run([jdk / "bin" / "javac", "-nowarn", "-cp", jars, "-d", tmp_path, tmp_path / "Page.java"], check=True, timeout=300)
    command = [jdk / "bin" / "java", "-Xmx256m", "-cp", f"{jars}{os.pathsep}{tmp_path}", "Page"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    described = [one.strip() for one in done.stdout.split("----")][:-1]
    assert described == [one.strip() for one in topologies()]
