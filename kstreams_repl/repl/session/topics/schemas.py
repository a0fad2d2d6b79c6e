"""Columns of a topic in SQL: their types, and an example of each, from its last records."""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.pictures.table import Table, value_text
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.inspection import Limits, run_sql
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.views.tables.sql_catalog import SessionTables

RECORDS = 200
EXAMPLE_CHARACTERS = 60


def schema_of(client: ClusterClient, applications: Mapping[str, ApplicationCore], topic: str) -> Table:
    """Return the table of `Session.schema`.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    tables = SessionTables(client, applications, {}, {})
    name = tables.topic(topic)
    result = run_sql(f"SELECT * FROM topics.{quote_identifier(name)}", tables, limits=Limits(RECORDS))
    rows = result.table(RECORDS).rows
    described = []
    for index, (column, kind) in enumerate(zip(result.columns, result.types, strict=True)):
        example = next((row[index] for row in reversed(rows) if row[index] is not None), None)
        described.append((column, kind, "" if example is None else value_text(example, EXAMPLE_CHARACTERS)[:EXAMPLE_CHARACTERS]))
    note = f"from the last {counted(len(rows), 'record')}" if rows else "0 records: the fields of the values are not known yet"
    return Table.of(("column", "type", "example"), described, note=note, title=name)
