"""How many instances an application has if nothing is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, StreamsConfig, TimeWindows, Topology, serdes
from kstreams_repl.host.spark.planning import instance_count
from kstreams_repl.host.spark.planning.instance_count import default_instances, memory_bytes, processors
from kstreams_repl.host.spark.slots import spark_slots
from kstreams_repl.host.spark.slots.spark_slots import free_slots
from kstreams_repl.system.types import TaskId

TASKS = [*(TaskId(0, number) for number in range(3)), *(TaskId(1, number) for number in range(4))]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_count, "processors", lambda: 8)
    monkeypatch.setattr(instance_count, "memory_bytes", lambda: 64 << 30)


def passing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()


def chosen(topology: Topology | None = None, *, slots: int | None = 30, tasks: Any = TASKS, **config: object) -> str:
    return str(default_instances(topology or passing(), StreamsConfig(**config), tasks, slots))


def test_it_is_the_number_of_partitions_of_the_largest_sub_topology() -> None:
    assert chosen() == "4 instances (num.stream.threads: 8 processors, 4 partitions)"


def test_it_is_not_more_than_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_count, "processors", lambda: 2)
    assert chosen() == "2 instances (num.stream.threads: 2 processors, 4 partitions)"
    monkeypatch.setattr(instance_count, "processors", lambda: 1)
    assert chosen() == "None"


def test_a_number_that_is_given_holds() -> None:
    assert chosen(num_stream_threads=1) == "None"


def test_a_cluster_is_shared_and_one_partition_needs_one() -> None:
    assert chosen(slots=None) == "None"
    assert chosen(tasks=TASKS[:1]) == "None"


def test_memory_and_slots_limit_it_and_are_named_only_then(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(slots=7) == "3 instances (num.stream.threads: 8 processors, 4 partitions, 7 free Spark slots)"
    monkeypatch.setattr(instance_count, "memory_bytes", lambda: 2 << 30)
    assert chosen() == "2 instances (num.stream.threads: 8 processors, 4 partitions, 2 GB of memory)"


def test_tasks_that_advance_together_stay_in_one() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", key_serde=serdes.string, value_serde=serdes.string).select_key(lambda key, value: value)
    keyed.group_by_key().windowed_by(TimeWindows.of_size(1000)).count().to_stream().to("out")
    assert chosen(builder.build()).startswith("1 instance (num.stream.threads: with more, windows behind a repartition wait")
    assert chosen(builder.build(), repl_alignment_drift_ms=-1).startswith("4 instances")


@pytest.mark.parametrize(("path", "count"), [("s3://lake/table", "1 instance "), ("/tmp/table", "4 instances")])
def test_a_parquet_table_on_an_object_store_has_one_writer(path: str, count: str) -> None:
    pa = pytest.importorskip("pyarrow")
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=serdes.string, value_serde=serdes.json)
    stream.to_table_files(path, format="parquet", schema=pa.schema([("a", pa.int64())]))
    assert chosen(builder.build()).startswith(count)


def test_slots_of_other_applications_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_slots, "_reservations", {"holder": spark_slots._Reservation("other", 5)})
    assert [free_slots("app", master) for master in (None, "local[12,8]", "local", "spark://host:7077")] == [25, 5, 0, None]
    assert free_slots("other", None) == 30


def test_a_container_limits_processors_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance_count, "_CGROUP", tmp_path)
    unlimited = processors()
    for text, expected in (("max 100000", unlimited), ("50000 100000", 1), ("100000 100000", 1)):
        (tmp_path / "cpu.max").write_text(f"{text}\n")
        assert processors() == expected
    (tmp_path / "memory.max").write_text("1048576\n")
    assert memory_bytes() == 1 << 20
