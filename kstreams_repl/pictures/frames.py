"""Conversions of a result that has rows: `df()` for pandas, `pl()` for polars, `arrow()` for Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kstreams_repl.system.extras import extras

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class TableRows(Protocol):
    """Columns and rows, as a `Table` has them."""

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def rows(self) -> tuple[tuple[object, ...], ...]: ...


class Frames:
    """`df()`, `pl()` and `arrow()` of a result that `table()` shows; a class that knows its column types overrides `arrow`.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)]).arrow().to_pydict()
        {'word': ['to', 'be'], 'n': [2, 1]}
    """

    __slots__ = ()

    def table(self) -> TableRows:
        """Return the rows as a table to show."""
        raise NotImplementedError

    def arrow(self) -> pa.Table:
        """Return all rows as a `pyarrow.Table`; a column whose values have no common type is text.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)]).arrow().num_rows
            2
        """
        import pyarrow as pa

        from kstreams_repl.pictures.columns import as_array

        table = self.table()
        return pa.table({name: as_array([row[index] for row in table.rows]) for index, name in enumerate(table.columns)})

    def df(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame.

        Raises:
            KStreamsError: pandas is not installed.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)]).df().shape
            (2, 2)
        """
        with extras():
            import pandas  # noqa: F401 - pyarrow needs it, and would raise an error of its own
        return self.arrow().to_pandas()

    def pl(self) -> Any:
        """Return all rows as a polars DataFrame.

        Raises:
            KStreamsError: polars is not installed.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.reports.Table.of(("word", "n"), [("to", 2), ("be", 1)]).pl().shape
            (2, 2)
        """
        with extras():
            import polars
        return polars.from_arrow(self.arrow())
