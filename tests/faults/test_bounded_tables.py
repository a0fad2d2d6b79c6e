"""A bounded run whose rows go to a table is finished only when the table has all of them, whatever dies at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.topology.table_files import FORMATS, TableFiles
from kstreams_repl.host.journal.journal_records import StopOffsets
from kstreams_repl.host.spark.application_state import Status
from tests.faults.batch_topologies import table_of
from tests.faults.bounded_runs import BoundedRuns
from tests.spark.hosting import Host, numbered
from tests.unit.table_files.rig import source, strays

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def table(runs: BoundedRuns, format: str) -> TableFiles:
    files = table_of(runs.directory, format, runs.name).node("table").table
    assert isinstance(files, TableFiles)
    return files


def check(runs: BoundedRuns, format: str, record: StopOffsets) -> None:
    """The rows of all runs so far are those of a count over the input up to the stop offsets; nothing stays staged."""
    groups = Counter(b"g%d" % (int(value or 0) % 7) for _, value in runs.input_up_to(record))
    wanted = sorted((group, number) for group, count in groups.items() for number in range(1, count + 1))
    files = table(runs, format)
    assert duckdb.sql(f"SELECT key, value FROM {source(files)} ORDER BY key, value").fetchall() == wanted
    assert strays(files) == []


@pytest.mark.parametrize(
    ("format", "kills"),
    [
        pytest.param("parquet", {0: "T2=kill"}, marks=pytest.mark.slow),
        pytest.param("parquet", {0: "T3=kill", 1: "T2=kill"}, marks=pytest.mark.slow),
        pytest.param("parquet", {0: "F7=kill", 1: "T4=kill"}, marks=pytest.mark.slow),
        pytest.param("delta", {0: "T2=kill", 1: "T4=kill"}, marks=pytest.mark.slow),
        pytest.param("iceberg", {0: "T2=kill", 1: "T4=kill"}, marks=pytest.mark.slow),
    ],
)
def test_an_instance_dies_between_the_last_kafka_commit_and_the_commit_of_the_table(
    runs: Callable[..., BoundedRuns], format: str, kills: dict[int, str]
) -> None:
    mine = runs(format)
    for number in (1, 2):
        mine.write(200)
        mine.start(instances=kills)
        assert mine.wait() == 0 and mine.deaths == len(kills)
        record = mine.check_end()
        assert record.run == number
        check(mine, format, record)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_everything_dies_there_and_the_next_start_completes_the_same_run(runs: Callable[..., BoundedRuns], format: str) -> None:
    mine = runs(format)
    mine.write(200)
    mine.start(instances={0: "T2=stop", 1: "T2=stop"})
    mine.kill_all_when_stopped()
    fixed = mine.record()
    assert fixed is not None and fixed.state == "open", "every offset is committed at its stop, and no row is in the table"
    mine.write(50)
    mine.until_finished()
    record = mine.check_end()
    assert (record.run, record.offsets) == (fixed.run, fixed.offsets)
    check(mine, format, record)
    check(mine, format, mine.run())


@pytest.mark.slow
@pytest.mark.spark
def test_a_worker_of_spark_dies_there_and_the_run_goes_on_to_its_end(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "table"
    topic = host.topic("in", 2)
    host.produce(topic, numbered(300))
    builder = StreamsBuilder()
    rows = builder.stream(topic, key_serde=serdes.string, value_serde=serdes.json).map_values(_row)
    rows.to_table_files(str(path), schema={"n": "int64"}, commit_interval_ms=3_600_000, name="table")
    deployment = host.deploy(builder.build(), autostop_at="eol", failpoints=f"T2=kill!{tmp_path / 'once'}")
    assert deployment.wait(120) and deployment.status is Status.STOPPED, deployment.error
    assert (tmp_path / "once").exists()
    found = duckdb.sql(f"SELECT n FROM read_parquet('{path}/*.parquet') ORDER BY n").fetchall()
    assert [number for (number,) in found] == list(range(300))


def _row(number: Any) -> dict[str, Any]:
    return {"n": number}
