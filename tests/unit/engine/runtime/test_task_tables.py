"""What a commit of a task says about rows that are on their way into a table."""

from __future__ import annotations

from pathlib import Path

from kstreams_repl.engine.runtime.metadata_names import BEHIND
from kstreams_repl.engine.runtime.task_tables import TaskTables
from tests.unit.table_files.rig import Sink, numbers, table


def commit(sink: Sink, tables: TaskTables, metadata: dict[str, int], *rows: int) -> None:
    sink.put(*rows)
    tables.convert()
    tables.stage({}, metadata)
    tables.committed()


def test_a_commit_counts_those_whose_rows_are_not_in_the_table(tmp_path: Path) -> None:
    sink = Sink(table(tmp_path / "t", "parquet"))
    tables, metadata = TaskTables(sink=sink.rows[0]), dict[str, int]()
    commit(sink, tables, metadata)
    assert metadata == {} and not tables.have_caught_up(metadata)
    commit(sink, tables, metadata, 1, 2)
    commit(sink, tables, metadata)
    assert metadata[BEHIND] == 1
    commit(sink, tables, metadata, 3)
    assert metadata[BEHIND] == 2 and not tables.have_caught_up(metadata)
    sink.tables.finish()
    assert tables.have_caught_up(metadata), "which the last commit does not say"
    commit(sink, tables, metadata)
    assert BEHIND not in metadata and not tables.have_caught_up(metadata)
    commit(sink, tables, metadata, 4)
    assert metadata[BEHIND] == 1


def test_a_successor_counts_them_again_after_a_crash(tmp_path: Path) -> None:
    files = table(tmp_path / "t", "parquet")
    first, metadata = Sink(files), dict[str, int]()
    tables = TaskTables(sink=first.rows[0])
    commit(first, tables, metadata, 1)
    commit(first, tables, metadata, 2)
    second = Sink(files, {0: metadata["repl.table.sink"]})
    tables = TaskTables(sink=second.rows[0])
    assert metadata[BEHIND] == 2 and not tables.have_caught_up(metadata)
    second.tables.finish()
    assert tables.have_caught_up(metadata) and numbers(files) == [1, 2]


def test_the_count_goes_with_the_sink_that_an_edit_removes() -> None:
    tables, metadata = TaskTables(), {BEHIND: 1}
    assert tables.have_caught_up(metadata)
    tables.stage({}, metadata)
    assert metadata == {}
