"""``./kstreams broker``: the embedded broker by hand, for a second terminal or a container image that should hold the jars."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

POLL_SECONDS = 0.2
FOLDER = click.Path(file_okay=False, path_type=Path)


def end_in_order(number: int, frame: FrameType | None) -> NoReturn:
    """On SIGTERM: leave through the ``with`` block that stops the broker."""
    raise SystemExit(128 + number)


@click.group()
def main() -> None:
    """Start, stop or fetch the embedded Kafka broker (one node, on 127.0.0.1)."""


@main.command()
@click.option("--directory", type=FOLDER, help="Keep the data here; else in a temporary directory.")
@click.option("--port", type=click.IntRange(1, 65535), help="The client port; else any free one.")
@click.option("--detach", is_flag=True, help="Return at once and leave the broker running; needs --directory.")
def start(directory: Path | None, port: int | None, detach: bool) -> None:
    """Start a broker and keep it until Ctrl-C."""
    from kstreams_repl.kafka.embedded import EmbeddedBroker

    broker = EmbeddedBroker(directory, port=port)
    if detach:
        broker.start(detach=True)
        click.echo(f"{broker.bootstrap_servers}\nstop it with: ./kstreams broker stop {broker.directory}")
        return
    signal.signal(signal.SIGTERM, end_in_order)
    with broker:
        click.echo(f"{broker.bootstrap_servers}\nlog: {broker.log_path}\nCtrl-C stops it")
        while broker.is_alive:
            time.sleep(POLL_SECONDS)
        raise click.ClickException(f"the broker ended by itself; see {broker.log_path}")


@main.command()
@click.argument("directory", type=FOLDER)
def stop(directory: Path) -> None:
    """Stop the broker that runs in DIRECTORY, whoever started it."""
    from kstreams_repl.kafka.embedded import EmbeddedBroker

    EmbeddedBroker.attach(directory).stop()


@main.command()
def fetch() -> None:
    """Fetch and verify the broker's jars now, so that the first start needs no network."""
    from kstreams_repl.kafka.embedded import cache_directory, ensure_jars

    click.echo(f"{len(ensure_jars())} verified jars in {cache_directory()}")
