"""Topics, stores and the user's dataframes as tables of one locked DuckDB, for looking and joining; the only importer of duckdb."""

from __future__ import annotations

from kstreams_repl.inspection.columns import Decoded, TableData
from kstreams_repl.inspection.query import Limits, SqlResult, TableSource, run_sql
from kstreams_repl.inspection.sandbox import open_sandbox, quote_identifier
from kstreams_repl.inspection.stores import StoreRows, store_table
from kstreams_repl.inspection.topics import topic_table

__all__ = [
    "Decoded", "Limits", "SqlResult", "StoreRows", "TableData", "TableSource", "open_sandbox", "quote_identifier", "run_sql", "store_table",
    "topic_table",
]  # fmt: skip
