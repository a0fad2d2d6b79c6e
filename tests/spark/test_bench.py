"""`./kstreams bench` on a real broker and real Spark, very small: the lines are whole and the outputs right. No figure is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.bench.peers.kafka_streams import find_jdk, peer_jars
from kstreams_repl.kafka.embedded.jars import missing_jars

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


def bench(broker: Any, *arguments: str, environment: dict[str, str] | None = None) -> tuple[list[dict[str, Any]], str]:
    """Run a benchmark as a user does; its lines without the machine's, and what it said."""
    command = [sys.executable, "-m", "kstreams_repl.cli", "bench", *arguments, "--bootstrap", broker.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **(environment or {})})
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert all({"bench", "case", "value", "unit"} <= line.keys() for line in lines)
    assert lines[0]["bench"] == "machine"
    return lines[1:], done.stderr


def test_throughput_tells_each_workload_and_leaves_only_its_input(broker: Any) -> None:
    from kstreams_repl.kafka.admin import Admin
    from kstreams_repl.kafka.clients import ClientSettings

    tiny = ["--records", "5000", "--keys", "500", "--runs", "1", "--guarantee", "exactly_once_v2"]
    lines, _ = bench(broker, "throughput", *tiny, "--workload", "count", "--workload", "join")
    assert [line["case"] for line in lines] == ["count exactly_once_v2", "join exactly_once_v2"]
    assert all(line["value"] > 0 and line["records"] == 5000 and line["peak_rss_mb"] > 0 for line in lines)
    left = [name for name in Admin(ClientSettings(broker.bootstrap_servers)).topics(internal=True) if name.startswith("bench-")]
    assert sorted(left) == ["bench-input-5000-500", "bench-table-500"]


def test_without_a_jdk_the_peer_is_left_out_and_ours_is_measured(broker: Any, tmp_path: Path) -> None:
    tiny = ["--records", "2000", "--keys", "100", "--runs", "1", "--guarantee", "exactly_once_v2", "--workload", "stateless"]
    for folder in os.environ["PATH"].split(os.pathsep):
        for tool in Path(folder).glob("*"):
            if tool.name != "javac" and not (tmp_path / tool.name).exists():
                (tmp_path / tool.name).symlink_to(tool)
    without = {"JAVA_HOME": "", "PATH": str(tmp_path)}
    lines, said = bench(broker, "throughput", *tiny, "--peer", "kafka-streams", environment=without)
    assert "no JDK" in said
    assert [line["case"] for line in lines] == ["stateless exactly_once_v2"]


@pytest.mark.skipif(find_jdk() is None, reason="the Kafka Streams peer needs a JDK")
@pytest.mark.skipif(bool(missing_jars(jars=peer_jars())), reason="the peer's jars are not in the cache")
def test_kafka_streams_beside_us_puts_out_the_same(broker: Any) -> None:
    tiny = ["--records", "20000", "--keys", "500", "--runs", "1", "--guarantee", "exactly_once_v2"]
    chosen = ["--workload", "stateless", "--workload", "window", "--workload", "sum"]
    lines, _ = bench(broker, "throughput", *tiny, *chosen, "--peer", "kafka-streams")
    ratios = [line for line in lines if line["case"].endswith(" ratio")]
    assert len(lines) == 9
    assert [line["same_output"] for line in ratios] == [True, True, True]


def test_latency_control_restore_and_growth_print_their_lines(broker: Any) -> None:
    assert len(bench(broker, "latency", "--seconds", "1", "--turns", "1", "--fast", "500")[0]) == 3
    control, _ = bench(broker, "control", "--runs", "1")
    assert [line["case"] for line in control] == ["deploy to first record", "pause", "resume to first record", "stop"]
    restore, _ = bench(broker, "restore", "--records", "20000", "--keys", "1000", "--runs", "1")
    assert [line["instances"] for line in restore] == [1, 2]
    growth, _ = bench(broker, "state-growth", "--keys", "500", "--keys", "2000", "--records", "5000")
    assert [line["unit"] for line in growth] == ["us/record", "us/record", "x"]
