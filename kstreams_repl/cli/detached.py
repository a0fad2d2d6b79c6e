"""``./kstreams detached``: applications with a driver process of their own. The commands contact neither a broker nor Spark."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kstreams_repl.system.errors import UnknownApplicationError, did_you_mean

DEFAULT_DIRECTORY = Path(".kstreams") / "state"

_state = click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="The applications' state.dir.",
)


@click.group()
def main() -> None:
    """Applications deployed with detached=True: they continue when their notebook is closed."""


@main.command("list")
@_state
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line for each.")
def list_(state: Path, as_json: bool) -> None:
    """Show the driver processes that are alive, and those that ended by themselves."""
    from kstreams_repl.repl.session.application.detached.mailbox import STOPPED, mailboxes

    found = 0
    for box in mailboxes(state.absolute()):
        record = box.record
        if record is None or record.state == STOPPED:
            continue
        found += 1
        how = record.state if record.is_alive else "process ended"
        if as_json:
            click.echo(json.dumps({"application": box.application, "state": how, "pid": record.pid, "log": str(box.log)}))
        else:
            click.echo(f"{box.application}: {how}, process {record.pid}, version {record.version}, log {box.log}")
    if not found and not as_json:
        click.echo(f"no application runs detached in {state}")


@main.command()
@_state
@click.argument("name")
def stop(state: Path, name: str) -> None:
    """Stop an application at a commit and end its process; topics, offsets and state stay."""
    from kstreams_repl.repl.session.application.detached.mailbox import Mailbox, end, mailboxes

    known = [box.application for box in mailboxes(state.absolute())]
    if name not in known:
        raise UnknownApplicationError(
            f"no application {name!r} was deployed detached in {state}",
            hint=did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else "give its state.dir: --state"),
        )
    stopped = end(Mailbox(state.absolute(), name))
    click.echo(f"stopped {name}; its topics, offsets and state stay" if stopped else f"{name} does not run")
