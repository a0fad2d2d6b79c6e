"""`./kstreams demo`: the command. The demos are in `flights` and `own_input`; `background` and `background_driver` keep them
running."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kstreams_repl.demo import background as keeping
from kstreams_repl.demo.screen import Screen


@click.command(help="The main job: a year of real departures through a topology on Spark and Kafka, checked number by number.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON line instead of tables.")
@click.option("--keep", is_flag=True, help="Leave broker and application running, and tell how to look at them.")
@click.option("--stop", is_flag=True, help="End what --keep left running, at a commit.")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@click.option("--instances", default=2, show_default=True, type=click.IntRange(1), help="num.stream.threads: Spark Python workers.")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".kstreams/demo"),
    show_default=True,
    help="Broker data and state.",
)
@click.option("--input", "file", type=click.Path(path_type=Path), help="Your own CSV or JSON-lines file instead of the flights.")
@click.option("--topic", help="With --input: the topic its rows go to.")
@click.option("--key", help="With --input: the column that becomes the key (and is counted by).")
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
    """Exit status 1 when a number is wrong."""
    if (file is None) != (topic is None):
        raise click.UsageError("--input and --topic go together: --input FILE --topic NAME")
    if key is not None and file is None:
        raise click.UsageError("--key goes with --input: --input FILE --topic NAME --key COLUMN")
    if resume and file is not None:
        raise click.UsageError("--resume goes on with the flights; a run with --input starts anew")
    if stop and (keep or resume or file is not None):
        raise click.UsageError("--stop ends what --keep left running; it goes with --directory and --json only")
    where = directory.expanduser().absolute()
    if stop:
        _stop(where, as_json)
        return
    request: dict[str, Any] = {
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
        keeping.refuse_kept(where)
        verdict = run_request(request)
    if as_json:
        click.echo(json.dumps(verdict))
    if not verdict["ok"]:
        raise SystemExit(1)


def run_request(request: Mapping[str, Any], hold: Any = None) -> dict[str, Any]:
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


def _keep(where: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Run the request in a keeper process, and show its progress."""
    quiet = request["quiet"]
    terminal = sys.stdout.isatty()

    def relay(part: bytes) -> None:
        if not quiet:
            click.echo(part, nl=False)

    width = shutil.get_terminal_size().columns if terminal else None
    kept = keeping.keep(where, {**request, "terminal": terminal, "width": width}, relay=relay)
    verdict = dict(kept.verdict)
    if kept.state != keeping.READY:
        return verdict
    end = keeping.stop_command(where)
    if quiet:
        running = {"pid": kept.pid, "bootstrap_servers": kept.bootstrap_servers, "application": kept.application}
        return {**verdict, "kept": {**running, "directory": kept.directory, "stop": end}}
    click.echo(f"""
It goes on: broker {kept.bootstrap_servers}, application {kept.application}, process {kept.pid}.
Look at it from ./kstreams repl, a notebook or any Python with this package:
{kept.look}
End it: {end}""")
    return verdict


def _stop(where: Path, as_json: bool) -> None:
    kept, stopped = keeping.stop(where)
    if as_json:
        click.echo(json.dumps({"ok": True, "stopped": stopped}))
    elif stopped and kept is not None:
        click.echo(f"stopped {kept.application or 'the demo'} at a commit, and the broker at {kept.bootstrap_servers or where}")
    elif kept is not None:
        click.echo(
            f"the kept demo (process {kept.pid}) has ended already without --stop; "
            f"what it committed is in {where}, and ./kstreams demo --resume goes on with it"
        )
    else:
        click.echo(f"no demo is kept in {where}")
