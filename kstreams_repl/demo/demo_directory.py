"""The demo's directory: checks that no demo runs in it, and empties it."""

from __future__ import annotations

import shutil
from pathlib import Path

from kstreams_repl.demo.background import LOG, RECORD, stop_command
from kstreams_repl.host.kafka.embedded.layout import BrokerDirectory
from kstreams_repl.repl.session.broker import is_taken
from kstreams_repl.system.errors import EmbeddedBrokerError

OWN = "own"
"""Folder of ``--input``'s broker inside the demo's directory."""


def refuse_running(directory: Path) -> None:
    """Raise if a demo still runs in this directory, since it would lose its data. Waits for the broker of a killed demo to end.

    Raises:
        EmbeddedBrokerError: a broker runs there.
    """
    for place in (directory, directory / OWN):
        broker = place / "session" / "broker"
        if is_taken(broker):
            record = BrokerDirectory(broker).read_record()
            where = f" (broker 127.0.0.1:{record.port})" if record is not None else ""
            raise EmbeddedBrokerError(
                f"another demo runs in {place}{where}",
                hint=f"wait for it, stop it (in the background: {stop_command(directory)}), or choose another --directory",
                path=str(broker),
            )


def empty(directory: Path) -> None:
    """Remove the files of earlier runs, except those that a background demo is writing."""
    for entry in directory.iterdir():
        if entry.name in (RECORD, LOG):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
