"""``./kstreams doctor``: a table of what was found on this machine, with a fix for each missing item."""

from __future__ import annotations

import json
from collections.abc import Sequence

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kstreams_repl.cli.checks import CheckStatus, Finding, examine
from kstreams_repl.system.errors import as_installed

STYLES = {CheckStatus.OK: "[green]ok[/]", CheckStatus.WARNING: "[yellow]warning[/]", CheckStatus.MISSING: "[red]missing[/]"}

WIDTH_OF_A_LOG = 140


def as_table(findings: Sequence[Finding]) -> Table:
    table = Table("", "state", "found", "fix", title=as_installed("./kstreams doctor"), title_justify="left")
    table.columns[2].overflow = table.columns[3].overflow = "fold"
    for finding in findings:
        table.add_row(finding.name, STYLES[finding.status], escape(finding.found), escape(finding.fix))
    return table


def as_json(findings: Sequence[Finding], healthy: bool) -> str:
    checks = [{"name": item.name, "status": str(item.status), "found": item.found, "fix": item.fix} for item in findings]
    return json.dumps({"ok": healthy, "checks": checks})


@click.command()
@click.option("--json", "machine_readable", is_flag=True, help="Print one JSON line instead of the table.")
@click.pass_context
def main(context: click.Context, machine_readable: bool) -> None:
    """Show what was found on this machine, with a fix for each missing item.

    The exit code is 1 if something is missing that the project cannot run without. Nothing is downloaded.
    """
    findings = examine()
    healthy = all(finding.status is not CheckStatus.MISSING for finding in findings)
    if machine_readable:
        click.echo(as_json(findings, healthy))
    else:
        console = Console()
        if not console.is_terminal:  # a log file has no width
            console = Console(width=WIDTH_OF_A_LOG)
        console.print(as_table(findings))
    context.exit(0 if healthy else 1)
