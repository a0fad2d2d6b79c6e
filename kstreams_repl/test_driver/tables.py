"""Table literals: records written as a table, so that a test reads as a specification.

A table is text with a header line; columns are separated by two or more spaces (or by ``|``). `key`, `value`, `timestamp` (or
`ts`) are the record's fields; cells are JSON if they parse as JSON, else text; `-` is null. Any other column is a header of that
name.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kstreams_repl.system.errors import CallError
from kstreams_repl.test_driver.driver import TestInputTopic, TestOutputTopic, TestRecord

_COLUMN = re.compile(r"\s*\|\s*|\s{2,}")


def records(table: str) -> list[TestRecord]:
    """Return the records of a table literal.

    Example:
        >>> records('''
        ...     key  value  ts
        ...     a    1      10
        ...     b    -      20
        ... ''')
        [TestRecord(key='a', value=1, timestamp=10, headers=[]), TestRecord(key='b', value=None, timestamp=20, headers=[])]
    """
    lines = [line.strip().strip("|").strip() for line in table.splitlines() if line.strip()]
    if not lines:
        return []
    columns = ["timestamp" if name == "ts" else name for name in _COLUMN.split(lines[0])]
    return [_record(columns, _COLUMN.split(line), line) for line in lines[1:]]


def pipe(topic: TestInputTopic, table: str) -> None:
    """Pipe a table literal into an input topic, line by line."""
    topic.pipe_records(records(table))


def assert_output(topic: TestOutputTopic, table: str) -> None:
    """Assert that an output topic's unread records are those of the table, in order; only the table's columns are compared.

    Raises:
        AssertionError: they differ; shows both sides as tables.
    """
    want = records(table)
    lines = [line for line in table.splitlines() if line.strip()]
    columns = (
        ["timestamp" if name == "ts" else name for name in _COLUMN.split(lines[0].strip().strip("|").strip())] if lines else []
    )
    got = topic.read_records()
    seen = [
        tuple(
            _comparable(getattr(record, name, None) if name in TestRecord._fields else _header(record, name)) for name in columns
        )
        for record in got
    ]
    hoped = [
        tuple(
            _comparable(getattr(record, name, None) if name in TestRecord._fields else _header(record, name)) for name in columns
        )
        for record in want
    ]
    if seen != hoped:
        raise AssertionError(f"expected on {topic.topic}:\n{_table(columns, hoped)}\ngot:\n{_table(columns, seen)}")


def _record(columns: list[str], cells: list[str], line: str) -> TestRecord:
    if len(cells) != len(columns):
        raise CallError(
            f"expected {len(columns)} values, got {len(cells)}: {line!r}",
            hint="separate columns by two spaces or |; write null as -",
        )
    row = {name: _value(cell) for name, cell in zip(columns, cells, strict=True)}
    headers = [
        (name, None if cell is None else str(cell).encode()) for name, cell in row.items() if name not in TestRecord._fields
    ]
    return TestRecord(row.get("key"), row.get("value"), row.get("timestamp"), headers)


def _value(text: str) -> Any:
    if text == "-":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _header(record: TestRecord, name: str) -> str | None:
    value = next((value for header, value in record.headers if header == name), None)
    return None if value is None else value.decode()


def _comparable(cell: object) -> object:
    return str(cell) if cell is not None and not isinstance(cell, str | int | float | list | dict) else cell


def _table(columns: list[str], rows: list[tuple[object, ...]]) -> str:
    shown = [columns, *([("-" if cell is None else str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(columns))]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown
    )
