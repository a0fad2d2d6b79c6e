"""A table sink commit by commit: each format, every place to crash, two processes that write the same rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from kstreams_repl.cli.compact import main
from kstreams_repl.engine.commit import failpoints
from kstreams_repl.engine.topology.table_files import FORMATS
from kstreams_repl.system.errors import KStreamsError, TaskCorruptedError
from kstreams_repl.table_files.compaction import Compacted, compact
from kstreams_repl.table_files.formats import open_log
from kstreams_repl.table_files.table_log import added_since
from tests.unit.table_files.rig import DAY_MS, Sink, numbers, read, strays, table

pytestmark = pytest.mark.parametrize("format", FORMATS)


class Crash(BaseException):
    """Ends the thread of the tables where a process would be killed."""


@contextmanager
def crash_at(name: str) -> Iterator[None]:
    def crash() -> None:
        raise Crash(name)

    failpoints.hook(name, crash)
    try:
        yield
    finally:
        failpoints.hook(name, None)


def test_rows_appear_with_the_commit_of_the_table_and_nothing_stays_staged(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format)
    sink = Sink(files)
    sink.write(1, 2)
    sink.write(3)
    assert len(strays(files)) >= 2
    sink.tables.finish()
    assert numbers(files) == [1, 2, 3]
    assert strays(files) == []
    assert sink.tables.written == {"rows": 3, "files": 1, "commits": 1}
    sink.write(4)
    sink.tables.finish()
    sink.tables.close()
    assert numbers(files) == [1, 2, 3, 4]


def test_rows_of_an_aborted_commit_never_appear(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format)
    first = Sink(files)
    first.write(1)
    first.put(2)
    first.stage()  # the Kafka transaction aborts
    second = Sink(files, first.heads)
    second.write(2, 3)
    second.tables.finish()
    assert numbers(files) == [1, 2, 3]
    assert strays(files) == []


@pytest.mark.parametrize("place", ["T2", "T4"])
def test_a_crash_around_the_commit_of_the_table_loses_and_doubles_nothing(tmp_path: Path, format: str, place: str) -> None:
    files = table(tmp_path / "t", format, partition_by=("event_day",))
    first = Sink(files, partitions=2)
    for partition in (0, 1):
        first.write(partition, partition + 10, partition=partition, timestamp=partition * DAY_MS)
    with crash_at("T3" if format == "parquet" and place == "T4" else place), pytest.raises(Crash):
        first.tables.finish()
    for partition in (0, 1):  # the next process
        second = Sink(files, first.heads, partitions=2)
        second.write(20 + partition, partition=partition)
        second.tables.finish()
        first.heads = second.heads
    assert numbers(files) == [0, 1, 10, 11, 20, 21]
    assert strays(files) == []


def test_a_process_that_lost_its_task_does_not_write_rows_twice(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format)
    zombie = Sink(files)
    zombie.write(1)
    successor = Sink(files, zombie.heads)
    successor.write(2)
    zombie.tables.finish()  # it does not know yet; both have row 1
    successor.tables.finish()
    assert numbers(files) == [1, 2]
    zombie.write(7)  # fenced on Kafka: this commit would fail, so its head is known to no one
    successor.write(3)
    successor.tables.finish()
    with pytest.raises(KStreamsError, match="another instance"):
        zombie.tables.finish()
    zombie.tables.close()
    assert numbers(files) == [1, 2, 3]


def test_what_a_sink_added_since_a_commit_stands_in_the_log(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format)
    sink = Sink(files, partitions=2)
    sink.write(1, 2)
    sink.tables.finish()
    sink.write(3)
    sink.write(4, 5, partition=1)
    sink.tables.finish()
    sink.write(6)
    sink.tables.finish()
    compact(files.path)
    log = open_log(files)

    def since(starts: dict[str, int], at_ms: int = 0, of: str = "app/sink") -> tuple[int, int]:
        added = added_since(log, of, starts, at_ms)
        assert (added.bytes > 0) == (added.files > 0)
        return added.files, added.rows

    assert since({}) == (4, 6)
    assert since({"in-0": 1}) == (3, 4)
    assert since({"in-0": 2, "in-1": 1}) == (1, 1)
    assert since({"in-0": 3, "in-1": 1}) == (0, 0)
    assert since({}, of="app/other") == (0, 0)
    assert since({}, at_ms=int(time.time() * 1000) + 120_000) == (0, 0), "commits of long ago are not read"
    again = Sink(files, sink.heads)  # the application was reset: its offsets begin again
    again.write(7)
    again.tables.finish()
    assert since({}) == (1, 1)


def test_two_instances_write_one_table(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format)
    one, other = Sink(files, partitions=1), Sink(files, partitions=2)
    for number in range(0, 12, 2):
        one.write(number)
        other.write(number + 1, partition=1)
        one.tables.finish()
        other.tables.finish()
    assert numbers(files) == list(range(12))


def test_late_rows_open_a_file_in_an_old_partition_and_null_has_one(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format, partition_by=("event_day",))
    sink = Sink(files)
    sink.write(1, 2, timestamp=5 * DAY_MS)
    sink.tables.finish()
    sink.write(3, timestamp=5 * DAY_MS + 1)
    sink.write(4, timestamp=2 * DAY_MS)
    sink.tables.finish()
    day = date(1970, 1, 6)
    assert read(files) == [(1, "t1", day), (2, "t2", day), (3, "t3", day), (4, "t4", date(1970, 1, 3))]
    texts = table(tmp_path / "u", format, partition_by=("text",))
    sink = Sink(texts)
    sink.rows[0].append(None, {"n": 1, "text": None}, 0)
    sink.rows[0].append(None, {"n": 2, "text": "a/b =ü"}, 0)
    sink.commit()
    sink.tables.finish()
    assert [row[:1] for row in read(texts)] == [(1,), (2,)]
    if format == "delta":  # its log has the values, whatever the directories are called
        rows = DeltaTable(texts.path).to_pyarrow_table().sort_by("n").to_pylist()
        assert [row["text"] for row in rows] == [None, "a/b =ü"]
    assert len({path.parent for path in Path(texts.path).rglob("*.parquet")}) == 2


def test_files_are_closed_at_the_target_size(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format, target_file_bytes=100_000)
    sink = Sink(files)
    for start in range(0, 300_000, 50_000):
        sink.write(*range(start, start + 50_000))
    sink.tables.finish()
    assert sink.tables.written["files"] >= 2
    assert len(numbers(files)) == 300_000


def test_rows_that_are_committed_but_gone_are_an_error(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format)
    sink = Sink(files)
    sink.write(1)
    for path in Path(files.path).rglob("*.arrow"):
        path.unlink()
    with pytest.raises(TaskCorruptedError, match="commit 1 are neither in the table"):
        Sink(files, sink.heads)


def test_compaction_tries_again_when_pyiceberg_has_not_seen_a_file(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its threads share the state of one test of manifests, so that it misses one now and then; it commits nothing then."""
    from pyiceberg.exceptions import ValidationException
    from pyiceberg.table.update.snapshot import _OverwriteFiles

    real, times = _OverwriteFiles._validate_required_deletes, []

    def first_unseen(self: Any, entries: Any) -> None:
        times.append(len(entries))
        if len(times) == 1:
            raise ValidationException("Missing required files to delete: one")
        real(self, entries)

    monkeypatch.setattr(_OverwriteFiles, "_validate_required_deletes", first_unseen)
    files = table(tmp_path / "t", format, partition_by=("event_day",))
    sink = Sink(files)
    for number in range(4):
        sink.write(number, timestamp=0)
        sink.tables.finish()
    before = read(files)
    assert compact(files.path) == Compacted(4, 1) and times == ([4, 4] if format == "iceberg" else [])
    assert read(files) == before


def test_compaction_leaves_few_files_and_the_same_rows_and_the_sink_goes_on(tmp_path: Path, format: str) -> None:
    files = table(tmp_path / "t", format, partition_by=("event_day",))
    sink = Sink(files)
    for number in range(6):
        sink.write(number, timestamp=number % 2 * DAY_MS)
        sink.tables.finish()
    sink.write(6)
    before = read(files)
    assert compact(files.path) == Compacted(6, 2)
    assert read(files) == before
    sink.tables.finish()
    assert numbers(files) == list(range(7))
    assert compact(files.path) == Compacted(2, 1)
    done = CliRunner().invoke(main, [files.path])
    assert (done.exit_code, done.output) == (0, f"{files.path}: 0 files became 0\n")
    wrong = CliRunner().invoke(main, [files.path, "--catalog", "sqlite"])
    assert wrong.exit_code == 2 and "NAME=VALUE" in wrong.output
    assert numbers(files) == list(range(7))
