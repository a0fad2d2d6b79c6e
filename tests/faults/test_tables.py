"""Tables under kill -9: whatever dies between a staged segment, the Kafka commit, the data files and the commit of the table, each
record is one row, and nothing stays that belongs to no table."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.topology.table_files import FORMATS, TableFiles
from kstreams_repl.host.spark.startup.spark_session import get_session, stop_session
from tests.faults.counts import full
from tests.faults.crew import BOTH, Crew
from tests.faults.reliability import note
from tests.unit.table_files.rig import file_names, numbers, strays

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
COLUMNS = {"n": "int64", "row": "string"}
POINTS = ("T2", "T3", "T4", "F4", "F5", "F7")


def _joined(value: bytes, row: bytes) -> dict[str, Any]:
    return {"n": int(value.partition(b":")[0]), "row": row.decode()}


class TableCrew(Crew):
    """Writes each record, joined with a table, to a table of files of each format."""

    formats: tuple[str, ...] = FORMATS
    by: tuple[str, ...] = ()

    def topology(self) -> Any:
        builder = StreamsBuilder()
        side = builder.table(f"{self.name}-side", store="side", **BOTH)
        rows = builder.stream(f"{self.name}-in", **BOTH).join(side, _joined)
        for format in self.formats:
            path = str(self.directory / format)
            rows.to_table_files(path, format, schema=COLUMNS, partition_by=self.by, commit_interval_ms=200, name=format)
        return builder.build()

    def violations(self) -> list[str]:
        topology, wanted, found = self.topology(), Counter(number for _, number in self.sent), []
        for format in self.formats:
            files = topology.node(format).table
            assert isinstance(files, TableFiles)
            seen, stray = Counter(numbers(files)), strays(files)
            lost, twice = wanted - seen, seen - wanted
            found += [f"{format}: {lost.total()} lost: {sorted(lost)[:10]}"] if lost else []
            found += [f"{format}: {twice.total()} repeated: {sorted(twice)[:10]}"] if twice else []
            found += [f"{format}: {len(stray)} stray files: {stray[:5]}"] if stray else []
        return found


def campaign(crew: TableCrew, points: list[str], *, each: int, seed: int) -> list[str]:
    """Kill one of two processes at each point in turn, while records keep coming; then stop in order and look."""
    dice = random.Random(seed)
    crew.write(each)
    crew.deploy(2)
    for number, point in enumerate(points):
        slot = number % 2
        crew.raise_failures()
        os.kill(crew.pids[slot], signal.SIGKILL)
        crew.died(slot)
        crew.start(slot, failpoints=f"{point}=kill@{dice.randrange(1, 3)}")
        pid, until, left = crew.pids[slot], time.monotonic() + 120, 20 * each
        while crew.state_of(pid):
            assert time.monotonic() < until, f"{point} is not reached"
            crew.write(each if left > 0 else 4)  # a start that takes long must not leave more than can be read in the end
            left -= each
            time.sleep(0.05)
        crew.died(slot)
        crew.start(slot)
    crew.processed(seconds=300)
    crew.stop()
    return crew.violations()


@pytest.fixture
def crew(broker: Any, tmp_path: Path) -> Any:
    crew = TableCrew(broker.bootstrap_servers, tmp_path)
    yield crew
    crew.close()


@pytest.mark.slow  # tests/unit/table_files crashes at each step of a commit
def test_kills_around_the_commits_of_tables_lose_and_double_no_row(crew: TableCrew) -> None:
    crew.by = ("event_day",)
    wrong = campaign(crew, ["T2", "T3", "T4", "F5"], each=200, seed=1)
    note("R19", "kill -9 around the commits of tables (sample)", 8, len(wrong))
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("format", FORMATS)
def test_many_kills_around_the_commit_of_a_table(crew: TableCrew, format: str) -> None:
    crew.formats = (format,)
    count = full(50)
    points = ([point for point in POINTS if point != "T3" or format == "parquet"] * count)[:count]
    wrong = campaign(crew, points, each=400, seed=2)
    note("R19", f"kill -9 around the commits of a {format} table", 2 * count, len(wrong))
    assert not wrong, wrong
    assert by_spark(crew, format) == sorted(number for _, number in crew.sent)


def by_spark(crew: TableCrew, format: str) -> list[int]:
    """The rows as Spark reads the files that the format names."""
    files = crew.topology().node(format).table
    spark = get_session(slots=2)
    try:
        return sorted(row.n for row in spark.read.parquet(*file_names(files)).select("n").collect())
    finally:
        stop_session()
