"""The rows of a store that differ between two moments, as a query result."""

from __future__ import annotations

from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.repl.inspection.result import SqlResult
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.past import past_of
from kstreams_repl.repl.session.views.tables.sql_query import run_query
from kstreams_repl.system.errors import CallError

_KEYS = ("key", "partition", "window_start", "window_end")
"""The columns that name a row, as far as a store has them."""
_DIFFERENT = "WITH gone AS (FROM before EXCEPT ALL FROM after), added AS (FROM after EXCEPT ALL FROM before) "


def store_diff(app: ApplicationCore, store: StoreBuilder, start: object, end: object) -> SqlResult:
    """Return the rows of a store that differ between two moments, as `Application.diff`.

    Raises:
        CallError: `start` is None.
        InvalidStateStoreError: the state as of one of them is not known any more.
    """
    if start is None:
        raise CallError("diff compares an earlier moment with a later one", hint="start='10 minutes ago'", argument="start")
    table = f"SELECT * FROM {quote_identifier(f'application {app.name}')}.{quote_identifier(store.name)}"
    before, after = (run_query(app.client, app.registry, table, past=past_of(moment)).arrow() for moment in (start, end))
    names = [name for name in after.column_names if name in before.column_names]
    keys = ", ".join(quote_identifier(name) for name in names if name in _KEYS)
    values = [quote_identifier(name) for name in names if name not in _KEYS]
    earlier = [quote_identifier(f"{name} before") for name in names if name not in _KEYS]
    if store.retain_duplicates:  # several rows of one key: each is there or not
        columns = ", ".join((keys, *values))
        query = f"{_DIFFERENT}SELECT 'gone' AS change, {columns} FROM gone UNION ALL SELECT 'added', {columns} FROM added"
    else:
        pairs = ", ".join(f"gone.{name} AS {old}, added.{name}" for name, old in zip(values, earlier, strict=True))
        query = (
            f"{_DIFFERENT}SELECT CASE WHEN gone.partition IS NULL THEN 'added' WHEN added.partition IS NULL THEN 'gone' ELSE 'changed' END"
            f" AS change, {keys}, {pairs} FROM gone FULL JOIN added USING ({keys}) ORDER BY {keys}"
        )
    return run_query(app.client, app.registry, query, frames={"before": before.select(names), "after": after.select(names)})
