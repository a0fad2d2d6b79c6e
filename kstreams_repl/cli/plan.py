"""``./kstreams plan MODULE:NAME``: what ``run`` with the same options would change, for a pull request. It starts and creates nothing.

Exit status: 0 nothing would change · 2 something would · 1 it would be refused, or could not be compared.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from kstreams_repl.cli.run import connection_options, load, made, settings_of
from kstreams_repl.system.errors import UnknownApplicationError

if TYPE_CHECKING:
    from kstreams_repl.engine.config import StreamsConfig

CHANGED, REFUSED = 2, 1
_OF_THE_PLACE = frozenset({"application.id", "bootstrap.servers", "state.dir"})


@click.command()
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(topology: str, as_json: bool, **options: Any) -> int:
    """Compare the topology that MODULE:NAME names with what the application NAME ran last: nodes, state, schemas, topics, settings."""
    from kstreams_repl import connect

    given = settings_of(options)
    name, place = given.command.get("application.id", topology.rpartition(":")[2]), given.command
    where: dict[str, Any] = {**given.client, "directory": place.get("repl.directory"), "spark": given.spark or None}
    thing = made(lambda: load(topology))
    with connect(place.get("bootstrap.servers"), prestart=False, report=lambda line: None, **where) as session:
        try:
            app = session.attach(name)
        except UnknownApplicationError:
            table, status, rows = session.plan(thing, name, config=given.application), CHANGED, []
            note = "it never ran here"
        else:
            plan = app.edit(thing, dry_run=True)
            rows = _settings(app.config, session.client.application_config(name, given.application))
            refused = bool(plan.diff.refused or plan.diff.refused_schemas)
            table = plan.table()
            status = REFUSED if refused else CHANGED if rows or not plan.diff.empty else 0
            note = table.note
    if as_json:
        changes = [dict(zip(("what", "name", "change", "because"), row, strict=True)) for row in (*table.rows, *rows)]
        click.echo(json.dumps({"application": name, "status": status, "changes": changes, "note": note}, default=str))
    else:
        click.echo(table.text())
        for _, key, change, _ in rows:
            click.echo(f"setting {key}: {change}")
    return status


def _settings(ran: StreamsConfig, wanted: StreamsConfig) -> list[tuple[str, str, str, str]]:
    keys = sorted((ran.given | wanted.given | ran.client.keys() | wanted.client.keys()) - _OF_THE_PLACE)

    def shown(config: StreamsConfig, key: str) -> str:
        return str(config[key] if key in config else config.client.get(key, "not set"))

    return [("setting", key, f"{shown(ran, key)} -> {shown(wanted, key)}", "") for key in keys if shown(ran, key) != shown(wanted, key)]
