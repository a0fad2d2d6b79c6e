"""Run one query of a session or an application: resolve its tables (`sql_catalog`), read them, ask DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kstreams_repl.repl.inspection import Limits, SqlResult, run_sql
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.produce import milliseconds
from kstreams_repl.repl.session.views.tables.sql_catalog import Past, SessionTables, callers_names


def run_query(
    client: ClusterClient,
    applications: Mapping[str, ApplicationCore],
    query: str,
    *,
    frames: Mapping[str, object] = MappingProxyType({}),
    topic_limit: int | None = None,
    store_limit: int | None = None,
    start: object = None,
    end: object = None,
    past: Past | None = None,
) -> SqlResult:
    """Run one SELECT, as `Session.sql`.

    Args:
        past: gives the state of each application as of a moment; None: now.
    """
    first, last = (None if moment is None else milliseconds(moment) for moment in (start, end))
    tables = SessionTables(client, applications, frames, callers_names(client.variables), past=past)
    return run_sql(query, tables, limits=Limits(topic_limit, store_limit, first, last))
