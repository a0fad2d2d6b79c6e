"""The demo's directory: who runs in it, and how it is emptied."""

from __future__ import annotations

import shutil
from pathlib import Path

from kstreams_repl.demo.kept import LOG, RECORD, stop_command
from kstreams_repl.errors import EmbeddedBrokerError
from kstreams_repl.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.session.broker import is_taken

OWN = "own"
"""Where ``--input`` keeps its broker, inside the demo's directory."""


def refuse_running(directory: Path) -> None:
    """A demo that still runs in this directory must not lose its data. The broker of one that was killed is waited for.

    Raises:
        EmbeddedBrokerError: one runs.
    """
    for place in (directory, directory / OWN):
        broker = place / "session" / "broker"
        if is_taken(broker):
            record = BrokerDirectory(broker).read_record()
            where = f" (broker 127.0.0.1:{record.port})" if record is not None else ""
            raise EmbeddedBrokerError(
                f"another demo runs in {place}{where}",
                hint=f"wait for it, end it (a kept one: {stop_command(directory)}), or choose another --directory",
                path=str(broker),
            )


def empty(directory: Path) -> None:
    """Remove what earlier runs left, but not what a keeper is writing."""
    for entry in directory.iterdir():
        if entry.name in (RECORD, LOG):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
