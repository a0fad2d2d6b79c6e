"""``./kstreams broker``: control the embedded broker.

``start`` leaves it running, ``stop`` ends it, ``status`` shows its address, ``fetch`` only downloads its jars.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click

from kstreams_repl.system.errors import KStreamsError, as_installed

DEFAULT_DIRECTORY = Path(".kstreams") / "broker"

_directory = click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="The broker's data directory.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON line.")


@click.group()
def main() -> None:
    """A real single-node Kafka on this machine: start it, stop it, show its address."""


@main.command()
@_directory
@_as_json
@click.option("--port", type=click.IntRange(1, 65535), default=None, help="The client port; default: the previous one, else a free one.")
@click.option("--heap", default="512m", show_default=True, help="The JVM's maximum heap size.")
@click.option("--foreground", is_flag=True, help="Stay in the foreground; Ctrl-C stops the broker.")
def start(directory: Path, as_json: bool, port: int | None, heap: str, foreground: bool) -> None:
    """Start a broker and leave it running (unless --foreground)."""
    from kstreams_repl.host.kafka.embedded import EmbeddedBroker

    broker = EmbeddedBroker(directory, port=port, heap=heap)
    broker.start(detach=not foreground)
    _show(broker.bootstrap_servers, broker.directory, broker.pid, as_json)
    if foreground:
        try:
            while broker.is_alive:
                time.sleep(0.5)
            raise click.ClickException(f"the broker ended; its log is {broker.log_path}")
        except KeyboardInterrupt:
            click.echo("stopping", err=True)
        finally:
            broker.stop()
    elif not as_json:
        where = "" if directory == DEFAULT_DIRECTORY else f" --directory {directory}"
        click.echo(as_installed(f"stop it with: ./kstreams broker stop{where}"))


@main.command()
@_directory
def stop(directory: Path) -> None:
    """Stop the directory's broker; its data stays."""
    from kstreams_repl.host.kafka.embedded import EmbeddedBroker

    broker = EmbeddedBroker.attach(directory)
    address = broker.bootstrap_servers
    broker.stop()
    click.echo(f"stopped {address}; its data stays in {broker.directory}")


@main.command()
@_directory
@_as_json
def status(directory: Path, as_json: bool) -> None:
    """Show whether the directory's broker runs, and its address. Exit code 3 if it does not run."""
    from kstreams_repl.host.kafka.embedded import EmbeddedBroker

    try:
        broker = EmbeddedBroker.attach(directory)
    except KStreamsError as error:
        click.echo(json.dumps({"running": False, "directory": os.fspath(directory)}) if as_json else str(error))
        raise click.exceptions.Exit(3) from error
    _show(broker.bootstrap_servers, broker.directory, broker.pid, as_json)


@main.command()
def fetch() -> None:
    """Download and verify the broker's jars now, so that the first start needs no network."""
    from kstreams_repl.host.kafka.embedded import cache_directory, ensure_jars

    click.echo(f"{len(ensure_jars())} verified jars in {cache_directory()}")


def _show(address: str, directory: Path, pid: int, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"running": True, "bootstrap_servers": address, "directory": os.fspath(directory), "pid": pid}))
    else:
        click.echo(f"running at {address} (process {pid}), data in {directory}")
