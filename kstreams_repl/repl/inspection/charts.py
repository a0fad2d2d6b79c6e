"""Choose the columns of a chart and draw it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kstreams_repl.pictures.chart import Chart, ChartKind
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.system.errors import SqlError, did_you_mean

if TYPE_CHECKING:
    import duckdb

MOST = {ChartKind.BAR: 40, ChartKind.LINE: 1000, ChartKind.HISTOGRAM: 10_000}
"""Maximal number of rows in a chart; the chart shows a note if there are more."""
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_TIMES = ("TIMESTAMP", "DATE")
_PLACES = ("partition", "offset")


def axes(relation: duckdb.DuckDBPyRelation, kind: ChartKind) -> tuple[str, str] | None:
    """Return the default (x, y): the last numeric column over the first text column (a bar chart), or over a time or numeric column (a
    line). "" is the row number; None: there is no numeric column."""
    kinds = dict(zip(relation.columns, map(str, relation.types), strict=True))
    numbers = [name for name, kind_of in kinds.items() if kind_of.removeprefix("U").startswith(_NUMBERS) and not kind_of.endswith("]")]
    wanted = [name for name in numbers if name not in _PLACES] or numbers
    if not wanted:
        return None
    y = wanted[-1]
    times = [name for name, kind_of in kinds.items() if kind_of.startswith(_TIMES) and not kind_of.endswith("]")]
    others = [name for name in wanted if name != y]
    texts = [name for name, kind_of in kinds.items() if kind_of == "VARCHAR"]
    found = (times + others) if kind is ChartKind.LINE else (texts + times + others)
    return (found[0] if found else ""), y


def chart_of(relation: duckdb.DuckDBPyRelation, total: int, kind: str, x: str | None, y: str | None) -> Chart:
    """Return a chart of the relation.

    Raises:
        SqlError: the chart kind or a column does not exist, or there is no numeric column.
    """
    if kind not in list(ChartKind):
        raise SqlError(f"there is no chart kind {kind!r}", hint=did_you_mean(kind, list(ChartKind)) or f"kinds: {', '.join(ChartKind)}")
    wanted = ChartKind(kind)
    for column in (x, y):
        if column and column not in relation.columns:
            raise SqlError(
                f"the result has no column {column!r}",
                hint=did_you_mean(column, relation.columns) or f"columns: {', '.join(relation.columns)}",
            )
    found = axes(relation, wanted)
    if found is None and y is None:
        raise SqlError("the result has no numeric column to draw", hint="pass a numeric column: y=")
    x, y = (found[0] if found else "") if x is None else x, y or (found[1] if found else "")
    most = MOST[wanted]
    rows: Sequence[tuple[object, ...]] = relation.limit(most).project(
        f"{quote_identifier(x) if x else 'NULL'}, {quote_identifier(y)}"
    ).fetchall()
    points = tuple((number + 1 if not x else row[0], row[1]) for number, row in enumerate(rows))
    note = f"the first {len(points):,} of {counted(total, 'row')}" if total > len(points) else ""
    return Chart(wanted, points, x or "row", y, note)
