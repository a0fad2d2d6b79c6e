"""`./kstreams demo`: the command. The demos are in `flights` and `own_input`; `background` and `background_driver` run them
in the background."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kstreams_repl.demo import background
from kstreams_repl.demo.screen import Screen
from kstreams_repl.system.errors import as_installed
from kstreams_repl.system.types import JsonMapping, JsonObject

if TYPE_CHECKING:
    from kstreams_repl.demo.flights import Hold


@click.command(help="Run a year of real departures through a topology on Spark and Kafka, and check every result.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line instead of tables.")
@click.option("--keep", is_flag=True, help="Leave broker and application running in the background, and print how to query them.")
@click.option("--stop", is_flag=True, help="Stop the demo that --keep left running, at a commit.")
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--instances", default=2, show_default=True, type=click.IntRange(1), help="num.stream.threads: Spark Python workers.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".kstreams/demo"),
    show_default=True,
    help="Directory of broker data and state.",
)
@click.option("--input", "file", type=click.Path(path_type=Path), help="A CSV or JSON-lines file to process instead of the flights.")
@click.option("--topic", help="With --input: the topic to which the rows are written.")
@click.option("--key", help="With --input: the column used as the record key; rows are counted by it.")
def main(
    as_json: bool,
    keep: bool,
    stop: bool,
    resume: bool,
    instances: int,
    directory: Path,
    file: Path | None,
    topic: str | None,
    key: str | None,
) -> None:
    """Run the demo; exit status 1 if a result is wrong."""
    if (file is None) != (topic is None):
        raise click.UsageError("--input and --topic must be given together: --input FILE --topic NAME")
    if key is not None and file is None:
        raise click.UsageError("--key needs --input: --input FILE --topic NAME --key COLUMN")
    if resume and file is not None:
        raise click.UsageError("--resume continues the flights only; a run with --input always starts from the beginning")
    if stop and (keep or resume or file is not None):
        raise click.UsageError("--stop stops the demo of --keep; it can be combined only with --directory and --json")
    where = directory.expanduser().absolute()
    if stop:
        _stop(where, as_json)
        return
    request: JsonObject = {
        "directory": str(where),
        "instances": instances,
        "resume": resume,
        "quiet": as_json,
        "file": None if file is None else str(file),
        "topic": topic,
        "key": key,
    }
    if keep:
        verdict = _keep(where, request)
    else:
        background.refuse_background_demo(where)
        verdict = run_request(request)
    if as_json:
        click.echo(json.dumps(verdict))
    if not verdict["ok"]:
        raise SystemExit(1)


def run_request(request: JsonMapping, hold: Hold | None = None) -> JsonObject:
    """Run what the command line requested; returns the verdict, which ``--json`` prints."""
    show = Screen(quiet=request["quiet"], terminal=request.get("terminal"), width=request.get("width"))
    directory = Path(request["directory"])
    if request["file"] is not None:
        from kstreams_repl.demo import own_input

        return own_input.run(
            Path(request["file"]),
            request["topic"],
            request["key"],
            directory=directory,
            instances=request["instances"],
            show=show,
            hold=hold,
        )
    from kstreams_repl.demo.flights import FlightsDemo

    return FlightsDemo(directory, request["instances"], show).run(resume=request["resume"], hold=hold)


def _keep(where: Path, request: JsonObject) -> JsonObject:
    """Run the request in a background process, and show its progress."""
    quiet = request["quiet"]
    terminal = sys.stdout.isatty()

    def relay(part: bytes) -> None:
        if not quiet:
            click.echo(part, nl=False)

    width = shutil.get_terminal_size().columns if terminal else None
    demo = background.start(where, {**request, "terminal": terminal, "width": width}, relay=relay)
    verdict = dict(demo.verdict)
    if demo.state != background.READY:
        return verdict
    end = background.stop_command(where)
    if quiet:
        running = {"pid": demo.pid, "bootstrap_servers": demo.bootstrap_servers, "application": demo.application}
        return {**verdict, "background": {**running, "directory": demo.directory, "stop": end}}
    click.echo(as_installed(f"""
Still running: broker {demo.bootstrap_servers}, application {demo.application}, process {demo.pid}.
Query it from ./kstreams repl, a notebook or any Python process with this package:
{demo.instructions}
Stop it: {end}"""))
    return verdict


def _stop(where: Path, as_json: bool) -> None:
    demo, stopped = background.stop(where)
    if as_json:
        click.echo(json.dumps({"ok": True, "stopped": stopped}))
    elif stopped and demo is not None:
        click.echo(f"stopped {demo.application or 'the demo'} at a commit, and the broker at {demo.bootstrap_servers or where}")
    elif demo is not None:
        ended = f"the background demo (process {demo.pid}) has already ended without --stop; "
        click.echo(as_installed(f"{ended}what it committed is in {where}, and ./kstreams demo --resume continues it"))
    else:
        click.echo(f"no background demo runs in {where}")
