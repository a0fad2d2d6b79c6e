"""A version of a table is read in a fixed order, from any row on."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kstreams_repl.engine.topology.table_files import FORMATS
from kstreams_repl.system.errors import ConfigError, KStreamsError
from kstreams_repl.table_files.table_reader import TableVersion, open_version
from tests.unit.table_files.rig import DAY_MS, Sink, table


def _numbers(version: TableVersion, skip: int = 0) -> list[int]:
    return [row["n"] for batch in version.batches(skip) for row in batch.to_pylist()]


def _write(path: Path, format: str) -> Sink:
    sink = Sink(table(path, format, partition_by=("event_day",), target_file_bytes=1))
    for number in range(12):
        sink.write(number, timestamp=number % 3 * DAY_MS)
        sink.tables.finish()
    return sink


@pytest.mark.parametrize("format", FORMATS)
def test_the_rows_after_any_number_are_the_same_every_time(tmp_path: Path, format: str) -> None:
    _write(tmp_path, format)
    first = open_version(str(tmp_path))
    rows = _numbers(first)
    assert first.name.startswith(f"{format}:") and sorted(rows) == list(range(12)) and first.rows == 12
    for skip in range(13):
        assert _numbers(open_version(str(tmp_path), version=first.name), skip) == rows[skip:]
    assert "event_day" in next(first.batches(0)).schema.names


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_an_earlier_version_stays_readable(tmp_path: Path, format: str) -> None:
    sink = _write(tmp_path, format)
    before = open_version(str(tmp_path))
    sink.write(99)
    sink.tables.finish()
    assert open_version(str(tmp_path)).rows == 13
    assert _numbers(open_version(str(tmp_path), version=before.name)) == _numbers(before)


def test_plain_parquet_that_changed_is_another_version(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    before = open_version(str(tmp_path / "a.parquet"))
    assert _numbers(before) == [1, 2]
    written = (tmp_path / "a.parquet").stat().st_mtime_ns
    pq.write_table(pa.table({"n": [3, 4]}), tmp_path / "a.parquet")
    os.utime(tmp_path / "a.parquet", ns=(written + 10**9, written + 10**9))  # a file system's clock may be coarse
    assert open_version(str(tmp_path / "a.parquet")).name != before.name


def test_what_is_no_table_is_said(tmp_path: Path) -> None:
    with pytest.raises(KStreamsError, match="no Parquet file at"):
        open_version(str(tmp_path))
    with pytest.raises(KStreamsError, match="no Delta table at"):
        open_version(str(tmp_path), "delta")
    with pytest.raises(KStreamsError, match="no Iceberg table"):
        open_version(str(tmp_path), "iceberg")
    with pytest.raises(ConfigError, match="expected the format"):
        open_version(str(tmp_path), "csv")
    assert not list(tmp_path.iterdir()), "reading leaves nothing"
