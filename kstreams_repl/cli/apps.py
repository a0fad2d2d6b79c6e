"""``./kstreams apps``: applications with a driver process of their own: those of ``./kstreams run``, and those deployed detached.

The commands read small files below a ``state.dir``, and contact neither a broker nor Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kstreams_repl.system.errors import KStreamsError, UnknownApplicationError, did_you_mean
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    from kstreams_repl.repl.session.application.detached.mailbox import Mailbox

DEFAULT_DIRECTORY = Path(".kstreams") / "state"


def _state(command: Callable[..., object]) -> Callable[..., object]:
    place = click.Path(file_okay=False, path_type=Path)
    return click.option("--state", type=place, default=DEFAULT_DIRECTORY, show_default=True, help="The applications' state.dir.")(command)


_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON line for each.")


@click.group()
def main() -> None:
    """Applications with a process of their own: started by ./kstreams run, or deployed with detached=True."""


@main.command("list")
@_state
@_json
def list_(state: Path, as_json: bool) -> None:
    """Show those that run, and those that ended by themselves."""
    from kstreams_repl.repl.session.application.detached.mailbox import STOPPED, mailboxes

    shown = [told for box in mailboxes(state.absolute()) if (told := _told(box)) is not None and told["state"] != STOPPED]
    for told in shown:
        click.echo(json.dumps(told) if as_json else "{application}: {state}, process {pid}, version {version}".format(**told))
    if not shown and not as_json:
        click.echo(f"no application has a process of its own in {state}")


@main.command()
@_state
@_json
@click.argument("name")
def status(state: Path, name: str, as_json: bool) -> None:
    """Show one of them: state, version, restarts, failure, where it can be asked. Exit status 1 if it does not run."""
    told = _told(_mailbox(state, name))
    assert told is not None
    if as_json:
        click.echo(json.dumps(told))
    else:
        width = max(map(len, told))
        for key, value in told.items():
            click.echo(f"{key:{width}}  {value if not isinstance(value, list) else '; '.join(map(str, value)) or 'none'}")
    if told["state"] not in ("starting", "running", "paused"):
        raise SystemExit(1)


@main.command()
@_state
@click.argument("name")
def stop(state: Path, name: str) -> None:
    """Stop an application at a commit and end its process; topics, offsets and state stay."""
    from kstreams_repl.repl.session.application.detached.mailbox import end

    stopped = end(_mailbox(state, name))
    click.echo(f"stopped {name}; its topics, offsets and state stay" if stopped else f"{name} does not run")


@main.command()
@_state
@click.option("-n", "lines", default=40, show_default=True, type=click.IntRange(1), help="How many of the last lines.")
@click.argument("name")
def logs(state: Path, name: str, lines: int) -> None:
    """Show the last lines of an application that was deployed detached."""
    from kstreams_repl.system.processes import last_lines

    box = _mailbox(state, name)
    if not box.log.exists():
        raise KStreamsError(
            f"{name} was started by ./kstreams run, which writes its log to its standard error",
            hint="its terminal, journalctl -u UNIT, or kubectl logs POD",
        )
    click.echo("\n".join(last_lines(box.log, lines)))


def _mailbox(state: Path, name: str) -> Mailbox:
    from kstreams_repl.repl.session.application.detached.mailbox import Mailbox, mailboxes

    known = [box.application for box in mailboxes(state.absolute())]
    if name not in known:
        raise UnknownApplicationError(
            f"no application {name!r} has had a process of its own in {state}",
            hint=did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else "give its state.dir: --state"),
        )
    return Mailbox(state.absolute(), name)


def _told(box: Mailbox) -> JsonObject | None:
    """Return what the files say of an application; None: there is no whole record."""
    from kstreams_repl.host.spark.query_server_process import read_record, servers_directory
    from kstreams_repl.repl.session.application.detached.mailbox import STOPPED

    record = box.record
    if record is None:
        return None
    server = read_record(servers_directory(box.root, box.application) / "driver.json")
    return {
        "application": box.application,
        "state": record.state if record.is_alive or record.state == STOPPED else "process ended",
        "pid": record.pid,
        "version": record.version,
        "generation": record.generation,
        "restarts": list(record.restarts),
        "failure": str(record.failure.get("message", "")).partition("\n")[0] or None,
        "url": None if server is None else server.address.url,
        "log": str(box.log) if box.log.exists() else None,
    }
