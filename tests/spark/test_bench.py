"""`./kstreams bench` on a real broker and real Spark, very small: the lines are whole and the outputs right. No figure is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.embedded.jars import missing_jars
from workshop.bench.peers.kafka_streams import find_jdk, peer_jars

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


def with_peer(test: Any) -> Any:
    """Only where the peer can run."""
    test = pytest.mark.skipif(find_jdk() is None, reason="the Kafka Streams peer needs a JDK")(test)
    return pytest.mark.skipif(bool(missing_jars(jars=peer_jars())), reason="the peer's jars are not in the cache")(test)


def lines_of(*arguments: str) -> list[dict[str, Any]]:
    """Run a benchmark as a user does."""
    command = [sys.executable, "-m", "kstreams_repl.cli", "bench", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(text) for text in done.stdout.splitlines()]
    assert all({"bench", "case", "value", "unit"} <= line.keys() for line in lines)
    return lines


def bench(broker: Any, *arguments: str) -> list[dict[str, Any]]:
    """Run a benchmark on a broker; its lines without the machine's."""
    lines = lines_of(*arguments, "--bootstrap", broker.bootstrap_servers)
    assert lines[0]["bench"] == "machine"
    return lines[1:]


@pytest.mark.slow
def test_throughput_tells_each_workload_and_leaves_only_its_input(broker: Any) -> None:
    tiny = ["--records", "5000", "--keys", "500", "--runs", "1", "--guarantee", "exactly_once_v2"]
    lines = bench(broker, "throughput", *tiny, "--workload", "count", "--workload", "join")
    assert [line["case"] for line in lines] == ["count exactly_once_v2", "join exactly_once_v2"]
    assert all(line["value"] > 0 and line["records"] == 5000 and line["peak_rss_mb"] > 0 for line in lines)
    left = [name for name in Admin(ClientSettings(broker.bootstrap_servers)).topics(internal=True) if name.startswith("bench-")]
    assert sorted(left) == ["bench-input-5000-500", "bench-table-500"]


@pytest.mark.slow
def test_a_query_of_nexmark_has_a_line_after_each_run(broker: Any) -> None:
    lines = bench(broker, "nexmark", "--query", "q1", "--events", "5000", "--runs", "2")
    assert [(line["case"], line["runs"], line["records"]) for line in lines] == [("q1", 1, 4600), ("q1", 2, 4600)]


@pytest.mark.slow
@with_peer
def test_instances_beside_threads_of_kafka_streams_show_the_processors_of_each_part(broker: Any) -> None:
    tiny = ["--query", "rekeyed", "--events", "6000", "--instances", "1", "--instances", "3", "--peer", "kafka-streams"]
    lines = {line["case"]: line for line in bench(broker, "scale", *tiny)}
    for case in ("rekeyed, 1 instance", "rekeyed, 3 instances"):
        assert lines[f"{case} ratio"]["same_output"] and lines[case]["partitions"] == 6
        assert lines[case]["poll_loop_cores"] > 0 and lines[f"{case} kafka-streams"]["stream_threads_cores"] > 0
        assert lines[case]["efficiency"] > 0


@pytest.mark.slow
@with_peer
@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_queries_of_nexmark_over_values_with_schemas_put_out_what_kafka_streams_does(broker: Any, format: str) -> None:
    """Read only, in the store of a join, in a repartition topic; q9 copies a whole value."""
    chosen = [part for name in ("q1", "q9", "q18") for part in ("--query", name)]
    lines = bench(broker, "nexmark", "--values", format, *chosen, "--events", "5000", "--peer", "kafka-streams")
    ratios = {line["case"]: line["same_output"] for line in lines if line["case"].endswith(" ratio")}
    assert ratios == {f"{name} {format} ratio": True for name in ("q1", "q9", "q18")}


@pytest.mark.slow
@with_peer
def test_values_with_schemas_are_read_and_written_as_the_jvm_does() -> None:
    """The command fails if the JVM writes other bytes."""
    cases = ["--case", "avro", "--case", "protobuf"]
    _, *lines = lines_of("engine", *cases, "--records", "2000", "--runs", "2", "--peer", "kafka-streams")
    assert [line["case"] for line in lines] == [
        f"{format}{which}" for format in ("avro", "protobuf") for which in ("", ", serde alone", ", serde alone, JVM")
    ]
    assert all(line["value"] > 0 and line["runs"] == 2 for line in lines)


@pytest.mark.slow
@with_peer
def test_kafka_streams_beside_us_puts_out_the_same(broker: Any) -> None:
    tiny = ["--records", "20000", "--keys", "500", "--runs", "1", "--guarantee", "exactly_once_v2"]
    chosen = ["--workload", "stateless", "--workload", "window", "--workload", "sum"]
    lines = bench(broker, "throughput", *tiny, *chosen, "--peer", "kafka-streams")
    ratios = [line for line in lines if line["case"].endswith(" ratio")]
    assert len(lines) == 9
    assert [line["same_output"] for line in ratios] == [True, True, True]


@pytest.mark.slow
@with_peer
def test_queries_of_theodolite_and_shufflebench_put_out_what_kafka_streams_does(broker: Any) -> None:
    names = ["uc1", "uc2", "uc3", "uc4", "shuffle-100000"]
    chosen = [part for name in names for part in ("--query", name)]
    lines = bench(broker, "theodolite", "--records", "4000", "--sensors", "200", *chosen, "--peer", "kafka-streams")
    ratios = {line["case"]: line for line in lines if line["case"].endswith(" ratio")}
    assert [ratios[f"{name} ratio"]["same_output"] for name in names] == [True] * 5
    assert [line["records"] for line in lines if line["case"] in names] == [40_000, 40_000, 4000, 8000, 20_000]
    assert not [name for name in Admin(ClientSettings(broker.bootstrap_servers)).topics(internal=True) if "feedback" in name]


@pytest.mark.slow
@with_peer
def test_a_load_is_tried_on_both_systems_and_their_topics_are_deleted(broker: Any) -> None:
    few = ["--load", "200", "--doublings", "1", "--seconds", "6", "--warm-seconds", "2"]
    lines = {line["case"]: line for line in bench(broker, "theodolite", "--query", "uc4", *few, "--peer", "kafka-streams")}
    for system in ("", " kafka-streams"):
        first = lines[f"uc4 at 200/s{system}"]
        assert 190 <= first["reached"] <= 210 and first["below"] == 2 and first["last_lag"] < 5_000
        assert lines[f"uc4 load held{system}"]["value"] in (0, 200, 400)
    left = Admin(ClientSettings(broker.bootstrap_servers)).topics(internal=True)
    assert not [name for name in left if name.startswith(("load-", "theodolite-"))]


@pytest.mark.slow
@with_peer
def test_growth_beside_kafka_streams_compares_both_with_their_own_smallest_store(broker: Any) -> None:
    sizes = ["--keys", "500", "--keys", "2000", "--warm", "3000", "--records", "5000"]
    shape = ["--case", "rekeyed", "--stores", "2", "--nodes", "3", "--partitions", "2"]
    one = bench(broker, "state-growth", *shape, *sizes[:2], *sizes[4:], "--peer", "kafka-streams")
    for system, line in zip((" kafka-streams", ""), one, strict=True):  # no kill: it belongs to a plain count
        assert line["case"] == f"rekeyed, 500 keys, 2 stores, 3 nodes, 2 partitions{system}"
        assert line["disk_bytes_per_key"] > 0 and line["commit_ms"] > 0
    lines = {line["case"]: line for line in bench(broker, "state-growth", *sizes, "--peer", "kafka-streams")}
    assert all(lines[f"count, {keys} keys{system}"]["value"] > 0 for keys in ("500", "2,000") for system in ("", " kafka-streams"))
    assert lines["count, largest to smallest"]["unit"] == lines["count, largest to smallest kafka-streams"]["unit"] == "x"
    assert lines["count, 2,000 keys"]["worker_private_mb"] > 10
    left = [name for name in Admin(ClientSettings(broker.bootstrap_servers)).topics(internal=True) if "growing" in name]
    assert left == []


@pytest.mark.slow
def test_latency_control_restore_and_growth_print_their_lines(broker: Any) -> None:
    latency = bench(broker, "latency", "--seconds", "1", "--turns", "2", "--fast", "500", "--timeline", "--runs", "2")
    turns = {line["case"]: line["turns"] for line in latency if "steps" not in line["case"]}
    assert turns.pop("50/s over 2 epoch turns") >= 4 and set(turns.values()) == {0} and len(turns) == 5
    steps = {line["case"]: line["value"] for line in latency if "steps" in line["case"]}
    assert len(steps) == 10 and all(value > 0 for value in steps.values())
    control = bench(broker, "control", "--runs", "1", "--idle-seconds", "0")
    steps = ["deploy to first record", "pause", "resume to first record", "edit to first record", "stop"]
    assert [line["case"] for line in control] == steps
    assert [line.get("new_processes") for line in control] == [None, None, 0, None, None]
    memory = bench(broker, "memory", "--seconds", "5", "--warm", "2", "--rate", "500", "--keys", "100")
    assert [(line["unit"], line["samples"] > 2) for line in memory] == [("MB/min", True)] * 3
    notebook = bench(broker, "notebook", "--keys", "3000", "--nodes", "12", "--runs", "2")
    assert [line["case"] for line in notebook] == [
        "edit to first record", "pause", "resume to first record", "values undeployed", "sql over a store", "picture update",
    ]  # fmt: skip
    assert all(line["value"] > 0 and line["target"] and line["runs"] >= 2 for line in notebook)
    crowd = bench(broker, "many-applications", "--applications", "2", "--idle-seconds", "2", "--settle-seconds", "0")
    assert [line["unit"] for line in crowd] == ["s", "% of a core", "instances", "MB"]
    assert crowd[0]["workers_cpu_seconds"] > 0 and crowd[2]["value"] == 0
    restore = bench(broker, "restore", "--records", "20000", "--keys", "1000", "--runs", "1")
    assert [line["instances"] for line in restore] == [1, 2]
    growth = bench(broker, "state-growth", "--keys", "500", "--keys", "2000", "--warm", "1000", "--records", "5000", "--clients")
    assert [line["unit"] for line in growth] == ["s", "us/record", "s", "us/record", "us/record", "x"]
    assert growth[-2]["times_smallest"] > 0


@pytest.mark.slow
def test_bounded_runs_and_tables_are_compared_with_spark(broker: Any) -> None:
    tiny = ["--records", "20000", "--keys", "500", "--runs", "1"]
    lines = {line["case"]: line for line in bench(broker, "batch", *tiny)}
    assert {case for case in lines if case.endswith("ratio")} == {
        "bounded run to stream ratio", "bounded run to AvailableNow over json ratio", "bounded run to AvailableNow over parquet ratio",
    }  # fmt: skip
    assert [case for case, line in lines.items() if line["unit"] == "s"] == [
        "empty run, process start to exit", "empty run, warm session", "run of one record, warm session",
    ]  # fmt: skip
    assert all(line["value"] > 0 for line in lines.values())
    tables = bench(broker, "tables", *tiny)
    assert [line["case"].split()[-2] for line in tables[:3]] == ["parquet", "delta", "iceberg"]
    assert all(line["value"] > 0 and line["records"] == 20000 for line in tables)


@pytest.mark.slow
@with_peer
def test_queries_print_their_lines_beside_kafka_streams(broker: Any) -> None:
    tiny = ["--keys", "2000", "--gets", "200", "--seconds", "1", "--records", "500000", "--runs", "1"]
    lines = {line["case"]: line for line in bench(broker, "queries", *tiny, "--peer", "kafka-streams")}
    for system in ("", " kafka-streams"):
        for case in ("HTTP get", "HTTP multi-get of 1000"):
            assert lines[case + system]["per_core"] > 0 and lines[case + system]["load_cores"] > 0
    assert lines["subscription, commit to change"]["changes"] > 0
    assert lines["subscription, record to change"]["p50"] > 0
    assert lines["processing under 1,000 queries/s, shared processors"]["queries_per_s"] > 0
