"""`SqlResult`: the result of a query, and its conversions.

A result with few rows is stored when it is first used and its source tables are dropped, because topics may be large. A result that was cut
(`cuts`) warns in every conversion.
"""

from __future__ import annotations

import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb
import pyarrow as pa

from kstreams_repl.pictures.chart import Chart, ChartKind
from kstreams_repl.pictures.markup import element, style_sheet
from kstreams_repl.pictures.table import MAX_ROWS, Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.inspection.charts import axes, chart_of
from kstreams_repl.repl.inspection.interruptible_query import interruptible
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import PartialResultWarning, SqlError, did_you_mean
from kstreams_repl.system.extras import extras

if TYPE_CHECKING:
    import pandas as pd

EXACT = 2**53
"""The largest integer up to which a float represents every integer."""
KEEP = 10_000
"""Maximal number of rows of a result that is stored without its source tables."""
_OURS = ("kstreams_repl.", "kernel_ext.")
_KEPT = "_kstreams_answer"
T = TypeVar("T")
_STYLE = (
    ".ks-charts{display:flex;flex-wrap:wrap;gap:2px 6px;margin:4px 0;font:11px ui-sans-serif,system-ui,sans-serif}"
    ".ks-charts summary{cursor:pointer;list-style:none;padding:1px 8px;border:1px solid var(--jp-border-color1,#8888);border-radius:4px;"
    "width:max-content;color:var(--jp-ui-font-color1,inherit)}.ks-charts summary::-webkit-details-marker{display:none}"
    ".ks-charts details[open]{flex-basis:100%}.ks-charts details[open] summary{background:var(--jp-layout-color2,#8882)}"
)


class SqlResult:
    """The result of one query: displays its first rows; `df()`, `pl()`, `arrow()`, `relation` and `fetchall()` give all of them.

    Attributes:
        bounds: what was read of each topic and store.
        notes: further information (cells that could not be read).
        commits: for each store, the commits of its tasks that the rows reflect; their time is a tooltip below the table.
        cuts: topics and stores that were not read completely, because of `topic_limit` or `store_limit`: how much was read of how much, and
            the keyword argument that lifts the bound. Every conversion warns of them (`PartialResultWarning`).
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection,
        relation: duckdb.DuckDBPyRelation,
        bounds: tuple[str, ...],
        notes: tuple[str, ...],
        empty: Sequence[str] = (),
        cuts: tuple[str, ...] = (),
        commits: tuple[str, ...] = (),
    ) -> None:
        self._database = database
        self._relation = relation
        self._empty = empty
        self._rows: int | None = None
        self._looked = False
        self._shown = MAX_ROWS
        self.bounds = bounds
        self.notes = notes
        self.cuts = cuts
        self.commits = commits

    @property
    def relation(self) -> duckdb.DuckDBPyRelation:
        """The DuckDB relation, for further queries; it belongs to a separate locked database."""
        self._warn()
        self._run(lambda: None)
        return self._relation

    @property
    def columns(self) -> list[str]:
        return list(self._relation.columns)

    @property
    def types(self) -> list[str]:
        """DuckDB's type of each column."""
        return list(map(str, self._relation.types))

    def df(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame. Integers that a float cannot represent are Python integers in columns with NULLs or with
        integers over 64 bits; decimals that a float cannot represent are `decimal.Decimal`.

        Raises:
            KStreamsError: pandas is not installed.

        Example:
            >>> found = session.sql("SELECT value AS word FROM words ORDER BY word")
            >>> found.df().shape
            (5, 1)
        """
        self._warn()
        return self._run(self._frame)

    pandas = df

    def pl(self) -> Any:
        """Return all rows as a polars DataFrame.

        Raises:
            KStreamsError: polars is not installed.

        Example:
            >>> found = session.sql("SELECT value AS word FROM words ORDER BY word")
            >>> found.pl().shape
            (5, 1)
        """
        with extras():
            import polars
        self._warn()
        return polars.from_arrow(self._run(self._table))

    def arrow(self) -> pa.Table:
        """Return all rows as an Arrow table.

        Example:
            >>> found = session.sql("SELECT value AS word FROM words ORDER BY word")
            >>> found.arrow().num_rows
            5
        """
        self._warn()
        return self._run(self._table)

    def limited(self, rows: int, timeout: Seconds) -> pa.Table:
        """Return the first rows as an Arrow table, within a time: for callers that are not trusted with all of them.

        Args:
            rows: number of rows.
            timeout: seconds after which the query is cancelled.

        Raises:
            SqlError: it took longer, or DuckDB rejected it while it ran.

        Example:
            >>> session.sql("SELECT value AS word FROM words ORDER BY word").limited(2, 10.0).num_rows
            2
        """
        seconds = as_seconds(timeout, "timeout")
        timer = threading.Timer(seconds, self._database.interrupt)
        timer.start()
        try:
            return self._relation.limit(rows).to_arrow_table()
        except duckdb.InterruptException as error:
            raise SqlError(f"the query took longer than {seconds:.0f} s", hint="ask for less") from error
        except duckdb.Error as error:
            raise explain(error, self._empty) from error
        finally:
            timer.cancel()

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows as tuples.

        Raises:
            SqlError: the query fails on a value, which shows only when the rows are fetched.

        Example:
            >>> found = session.sql("SELECT value AS word FROM words ORDER BY word")
            >>> found.fetchall()[0]
            ('be',)
        """
        self._warn()
        return self._run(lambda: self._relation.fetchall())

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def count(self) -> int:
        """Return the number of rows.

        Example:
            >>> found = session.sql("SELECT value AS word FROM words ORDER BY word")
            >>> found.count()
            5
        """
        return self._run(self._counted)

    def table(self, rows: int | None = None) -> Table:
        """Return the first rows for display (100 unless `show` set another number), and the total number.

        Example:
            >>> found = session.sql("SELECT value AS word FROM words ORDER BY word")
            >>> len(found.table(2))
            2
        """
        rows = self._shown if rows is None else rows
        found = self._run(lambda: self._relation.limit(rows).fetchall())
        total = self.count() if len(found) == rows else len(found)
        shown = counted(total, "row") if len(found) == total else f"{len(found):,} of {counted(total, 'row')}; .df() gives all"
        note = "\n".join([shown, *self.bounds, *self.notes])
        return Table.of(self.columns, found, note=note, warning="\n".join(self.cuts), tooltip="\n".join(self.commits))

    def chart(self, kind: str = "bar", *, x: str | None = None, y: str | None = None) -> Chart:
        """Return a chart of two columns.

        Args:
            kind: "bar" (the first 40 rows), "line" (the first 1,000, in the order of x) or "histogram" (of y, the first 10,000). The
                chart shows a note if there are more rows.
            x, y: columns; None: the last numeric column over the first text or time column.

        Raises:
            SqlError: the chart kind or a column does not exist, or there is no numeric column.

        Example:
            >>> session.sql("SELECT key, value FROM counts").chart("bar")     # doctest: +SKIP
        """
        return self._run(lambda: chart_of(self._relation, self._counted(), kind, x, y))

    def show(self, rows: int) -> SqlResult:
        """Return this result, set to display this many rows.

        Example:
            >>> found = session.sql("SELECT value AS word FROM words ORDER BY word")
            >>> found.show(2)
        """
        self._shown = rows
        return self

    def __repr__(self) -> str:
        return self.table().text()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return the first rows and, in a notebook, collapsed charts below them."""
        table = self.table()
        folded = [element("details", element("summary", str(chart.kind)), chart.html()) for chart in self._run(self._charts)]
        charts = element("div", style_sheet(_STYLE), *folded, class_="ks-charts") if folded else None
        return {"text/plain": table.text(), "text/html": str(element("div", table.html(), charts))}

    def _charts(self) -> list[Chart]:
        """Return useful charts: at least two rows, with numbers."""
        names = [name.lower() for name in self.columns]
        if len(set(names)) < len(names) or axes(self._relation, ChartKind.BAR) is None or self._counted() < 2:
            return []
        return [chart_of(self._relation, self._counted(), kind, None, None) for kind in ChartKind]

    def _warn(self) -> None:
        for cut in self.cuts:
            caller = sys._getframe(1)
            while caller.f_back is not None and str(caller.f_globals.get("__name__", "")).startswith(_OURS):
                caller = caller.f_back
            # without a registry, so that the same line warns each time it runs
            warnings.warn_explicit(cut, PartialResultWarning, caller.f_code.co_filename, caller.f_lineno)

    def _run(self, call: Callable[[], T]) -> T:
        """Make a call that may fail only when its rows are fetched, with the same errors as a query; an interrupt cancels it."""

        def run() -> T:
            if not self._looked:
                self._looked = True
                self._keep_by_itself()
            return call()

        try:
            return interruptible(self._database, run)
        except duckdb.Error as error:
            raise explain(error, self._empty) from error

    def _keep_by_itself(self) -> None:
        """Store a result of few rows as a table and drop its source tables; a larger one stays a query."""
        names = [name.lower() for name in self._relation.columns]
        if len(set(names)) < len(names):  # a table needs distinct column names
            return
        try:
            self._relation.limit(KEEP + 1).create(_KEPT)
        except duckdb.InterruptException:
            self._looked = False
            raise
        except duckdb.Error:  # EXPLAIN cannot be stored; errors of values are raised when the rows are fetched
            return
        rows = int(self._database.table(_KEPT).count("*").fetchall()[0][0])
        if rows > KEEP:
            self._database.execute(f"DROP TABLE {_KEPT}")
            return
        self._relation, self._rows = self._database.table(_KEPT), rows
        made = "SELECT database_name, schema_name, {0}_name FROM duckdb_{0}s() WHERE NOT internal"
        for kind in ("view", "table"):
            for place in self._database.execute(made.format(kind)).fetchall():
                if place[-1] != _KEPT:
                    self._database.execute(f"DROP {kind} {'.'.join(map(quote_identifier, place))}")

    def _counted(self) -> int:
        if self._rows is None:
            self._rows = int(self._relation.count("*").fetchall()[0][0])
        return self._rows

    def _table(self) -> pa.Table:
        """Return an Arrow table whose column names differ: a second ``n`` is ``n_1``, as in a dataframe of DuckDB's."""
        rows = self._relation.to_arrow_table()
        names: list[str] = []
        for name in rows.column_names:
            taken, number = {known.lower() for known in names}, 0
            while (f"{name}_{number}" if number else name).lower() in taken:
                number += 1
            names.append(f"{name}_{number}" if number else name)
        return rows.rename_columns(names)

    def _frame(self) -> pd.DataFrame:
        with extras():
            import pandas  # noqa: F401 - DuckDB needs it, and would raise its own error
        frame = self._relation.df()
        rounded = self._rounded(frame)
        return self._exact(frame, rounded) if rounded else frame

    def _rounded(self, frame: pd.DataFrame) -> list[int]:
        """Return the columns of integers and decimals that pandas converted to floats although floats cannot represent their values."""
        units = [_unit(str(kind)) for kind in self._relation.types]
        floats = ((index, units[index]) for index, kind in enumerate(frame.dtypes) if str(kind) == "float64")
        return [index for index, unit in floats if unit is not None and (frame.iloc[:, index].abs() >= EXACT * unit).any()]

    def _exact(self, frame: pd.DataFrame, columns: Sequence[int]) -> pd.DataFrame:
        """Return the frame from a new run of the query, with Python integers and decimals in these columns."""
        rows = self._relation.to_arrow_table()
        again = self._database.from_arrow(rows).df()
        again.columns = frame.columns
        for index in columns:
            whole: list[Any] = rows.column(index).to_pylist()
            if _unit(str(self._relation.types[index])) == 1:
                whole = [None if value is None else int(value) for value in whole]
            again.isetitem(index, type(again.iloc[:, index])(whole, dtype=object))
        return again


def _unit(kind: str) -> float | None:
    """Return the smallest difference of values of an integer or DECIMAL type; None for others."""
    scale = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", kind)
    return 10.0 ** -int(scale[1]) if scale else 1.0 if kind.endswith("INT") else None


def explain(error: duckdb.Error, empty: Sequence[str], columns: Iterable[str] = ()) -> SqlError:
    """Return DuckDB's error as `SqlError`: its message without the trace, with its own hints.

    Args:
        columns: the names of all columns, for "did you mean".
    """
    missing = missing_column(error)
    if isinstance(error, duckdb.OutOfMemoryException):
        hint = "read less of the topics: topic_limit=N reads the last N, start= and end= a time range; or use session.spark_frame(topic)"
    elif isinstance(error, duckdb.PermissionException):
        hint = "SQL reads topics, stores and dataframes, no files: read the file with pandas or polars and name the dataframe in the query"
    elif empty:
        hint = f"{', '.join(empty)}: no records yet, so the fields of the values are unknown"
    else:
        hint = (did_you_mean(missing, [*_candidates(error), *columns]) if missing else None) or "DESCRIBE name lists a table's columns"
    return SqlError(str(error).strip().split("\n\n")[0], hint=hint)


def missing_column(error: duckdb.Error) -> str | None:
    """Return the column or field which does not exist, according to DuckDB's error; None if it is another error."""
    found = re.search(r'(?:Referenced column|have a column named|find key) "(.+?)"', str(error))
    return found[1] if found and isinstance(error, duckdb.BinderException) else None


def _candidates(error: duckdb.Error) -> list[str]:
    return re.findall(r'"([^"]+)"', str(error).partition("Candidate Entries:")[2])
