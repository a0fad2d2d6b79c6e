"""Topics, stores and the user's dataframes as tables of a locked DuckDB database; the only package that imports duckdb."""

from __future__ import annotations

from kstreams_repl.pictures.columns import Decoded, TableData
from kstreams_repl.repl.inspection.query import Limits, TableCatalog, run_sql
from kstreams_repl.repl.inspection.result import SqlResult
from kstreams_repl.repl.inspection.sandbox import open_sandbox, quote_identifier
from kstreams_repl.repl.inspection.stores import StoreRows, store_table
from kstreams_repl.repl.inspection.topics import TopicScan

__all__ = [
    "Decoded", "Limits", "SqlResult", "StoreRows", "TableCatalog", "TableData", "TopicScan", "open_sandbox", "quote_identifier", "run_sql",
    "store_table",
]  # fmt: skip
