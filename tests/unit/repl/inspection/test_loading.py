"""Pieces of a topic become one table, also where their columns are not alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kstreams_repl.pictures.columns import TableData, as_array
from kstreams_repl.repl.inspection.loading import load
from kstreams_repl.repl.inspection.sandbox import open_sandbox


class Scan:
    """Pieces that are there already: (partition, values) or (partition, columns)."""

    def __init__(self, *pieces: tuple[int, Any]) -> None:
        self._pieces = pieces

    def pieces(self) -> Iterator[tuple[int, TableData]]:
        for partition, values in self._pieces:
            columns = values if isinstance(values, dict) else {"value": values}
            yield partition, TableData({name: as_array(column) for name, column in columns.items()})


def loaded(*pieces: tuple[int, Any]) -> list[tuple[Any, ...]]:
    database = open_sandbox()
    load(database, "rows", Scan(*pieces))  # type: ignore[arg-type]
    return database.sql("FROM rows").fetchall()


def test_rows_are_in_the_order_of_partitions_however_they_came() -> None:
    assert loaded((1, [3, 4]), (0, [1]), (1, [5]), (0, [2])) == [(1,), (2,), (3,), (4,), (5,)]


def test_whole_numbers_and_fractions_become_fractions() -> None:
    assert loaded((0, [1, 2]), (0, [0.5])) == [(1.0,), (2.0,), (0.5,)]


def test_a_piece_of_nothing_but_null_takes_the_type_of_the_others() -> None:
    assert loaded((0, [None]), (0, ["a"]), (1, [None])) == [(None,), ("a",), (None,)]


def test_structures_get_the_fields_of_all() -> None:
    assert loaded((0, [{"a": 1}]), (0, [{"b": "x"}])) == [({"a": 1, "b": None},), ({"a": None, "b": "x"},)]


def test_what_has_no_common_type_is_text() -> None:
    assert loaded((0, [1]), (0, ["a"]), (0, [{"b": 1}])) == [("1",), ("a",), ("{'b': 1}",)]


def test_a_column_that_a_piece_has_not_is_null_there() -> None:
    assert loaded((0, {"key": ["a"]}), (0, {"key": ["b"], "window_start": [1]})) == [("a", None), ("b", 1)]


def test_no_record_at_all_is_an_empty_table() -> None:
    assert loaded((0, [])) == []
