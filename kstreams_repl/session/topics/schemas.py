"""Columns of a topic in SQL: their types, and an example of each, from its last records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstreams_repl.display.table import Table, value_text
from kstreams_repl.display.wording import counted
from kstreams_repl.inspection.sandbox import quote_identifier
from kstreams_repl.session.views.sql_catalog import SessionTables

if TYPE_CHECKING:
    from kstreams_repl.session.session import Session

LOOKED_AT = 200
EXAMPLE = 60


def schema_of(session: Session, topic: str) -> Table:
    """Return the table of `Session.schema`.

    Raises:
        UnknownTopicError: there is no such topic.
    """
    name = SessionTables(session, {}, {}).topic(topic)
    result = session.sql(f"SELECT * FROM topics.{quote_identifier(name)}", records=LOOKED_AT)
    rows = result.table(LOOKED_AT).rows
    described = []
    for index, (column, kind) in enumerate(zip(result.columns, result.types, strict=True)):
        example = next((row[index] for row in reversed(rows) if row[index] is not None), None)
        described.append((column, kind, "" if example is None else value_text(example, EXAMPLE)[:EXAMPLE]))
    note = f"from the last {counted(len(rows), 'record')}" if rows else "0 records: the fields of the values are not known yet"
    return Table.of(("column", "type", "example"), described, note=note, title=name)
