"""The driver's control channel over the journal: the interface of `LeaseWriter` for instances on other hosts.

Commands are written with the application's control id (`Generations`), reports are read by a follower of the journal. Reports of earlier
generations and runs are told apart by generation, run and time, because a topic cannot be cleared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstreams_repl.instance.control.file_control import LeaseWriter, Signal
from kstreams_repl.instance.control.journal_control import Follower
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.journal_records import InstanceReport
from kstreams_repl.metrics.snapshot import validated


class RemoteLease(LeaseWriter):
    """Commands and reports of one application over its journal.

    Args:
        directory: on the driver's host, for checkpoints.
    """

    remote = True

    def __init__(self, directory: Path, settings: ClientSettings, application_id: str) -> None:
        super().__init__(directory)
        self._settings = settings
        self._application_id = application_id
        self._follower: Follower | None = None
        self.send: Callable[[int, Signal], None] | None = None
        """Writes a command to the journal; set by the owner of the control id."""
        self._cleared: dict[int, InstanceReport] = {}

    def follow(self, start: int) -> None:
        """Start reading reports at an offset. A repeated call keeps the existing follower."""
        if self._follower is None or self._follower.over:
            self._follower = Follower(self._settings, self._application_id, start=start, reports=True)

    def write(self, generation: int, signal: Signal) -> bool:
        """Set the signal here and in the journal.

        Raises:
            ProducerFencedError: another session has taken over the application.
            BrokerUnavailableError: the journal cannot be written now.
        """
        written = super().write(generation, signal)
        if written and self.send is not None:
            self.send(generation, signal)
        return written

    def clear(self) -> None:
        """Ignore all reports up to now."""
        super().clear()
        if self._follower is not None:
            self._follower.refresh()
            self._cleared = dict(self._follower.state.reports)

    def reports(self, generation: int) -> dict[int, dict[str, Any]]:
        if self._follower is None:
            return {}
        found = {}
        for slot, report in list(self._follower.state.reports.items()):
            if report.generation == generation and self._cleared.get(slot) is not report:
                found[slot] = _content(report)
        return found

    def metrics(self, generation: int) -> dict[int, dict[str, Any]]:
        follower = self._follower
        told = {} if follower is None else dict(follower.state.measured)
        read = ((slot, validated(said.snapshot)) for slot, said in told.items() if said.generation == generation)
        return {slot: snapshot for slot, snapshot in read if snapshot is not None}

    def places(self) -> dict[int, str]:
        """Return the executor directory of each slot according to its last report."""
        follower = self._follower
        return {} if follower is None else {slot: said.host for slot, said in list(follower.state.reports.items()) if said.host}

    def close(self) -> None:
        """Stop reading; the latest reports stay available."""
        follower = self._follower
        if follower is not None:
            follower.close()


def _content(report: InstanceReport) -> dict[str, Any]:
    try:
        figures = json.loads(report.figures or "{}")
    except ValueError:
        figures = {}
    plain = {name: figures[name] for name in figures if isinstance(name, str)} if isinstance(figures, dict) else {}
    return {
        "pid": 0,
        **plain,
        "generation": report.generation,
        "slot": report.slot,
        "state": report.state,
        "at_ms": report.at_ms,
        "place": report.host or None,
    }
