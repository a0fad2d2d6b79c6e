"""``./kstreams compare MODULE:NAME --against APPLICATION``: what a topology would have made of the records of an application, for a pull
request. Nothing is deployed, and nothing reaches the application.

Exit status: 0 no differences, noise left out · 2 differences (0 with ``--fail-on never``) · 1 it could not be compared.
"""

from __future__ import annotations

import json
from typing import Any

import click

from kstreams_repl.cli.run import connection_options, load, made, settings_of

DIFFERENT, NOT_COMPARED = 2, 1


@click.command()
@connection_options
@click.option("--against", metavar="APPLICATION", help="The application; default: NAME.")
@click.option("--records", type=click.IntRange(1), help="About how many input records; default: 100,000.")
@click.option("--start", help="Instead of --records: the commit to begin from: a time, '10 minutes ago', 'commit 12'.")
@click.option("--end", help="The commit to end at; default: the last one.")
@click.option("--calls", is_flag=True, help="Call functions of asynchronous nodes where no answer is recorded.")
@click.option("--samples", default=20, show_default=True, type=click.IntRange(0), help="Rows shown of each output and store.")
@click.option(
    "--fail-on",
    type=click.Choice(["changed", "never"]),
    default="changed",
    show_default=True,
    help="What differences mean for the status.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    topology: str,
    against: str | None,
    records: int | None,
    start: str | None,
    end: str | None,
    calls: bool,
    samples: int,
    fail_on: str,
    as_json: bool,
    **options: Any,
) -> int:
    """Process the records of an application with the topology that MODULE:NAME names, too: which rows differ, and from which node on."""
    from kstreams_repl import connect

    given = settings_of(options)
    place = given.command
    name = against or place.get("application.id", topology.rpartition(":")[2])
    where: dict[str, Any] = {**given.client, "directory": place.get("repl.directory"), "spark": given.spark or None}
    thing = made(lambda: load(topology))
    with connect(place.get("bootstrap.servers"), prestart=False, report=lambda line: None, **where) as session:
        found = session.attach(name).compare(thing, records=records, start=start, end=end, calls=calls, samples=samples)
    if as_json:
        click.echo(json.dumps(found.to_dict(), default=str))
    else:
        click.echo(found.text)
        if found.samples:
            click.echo(found.differences().text())
    if found.all_noise:
        return NOT_COMPARED
    return DIFFERENT if fail_on == "changed" and not found.equal else 0
