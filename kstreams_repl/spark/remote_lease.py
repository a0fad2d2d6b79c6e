"""The driver's side of control over the journal: the same calls as `LeaseWriter`, for instances on other hosts.

Commands go out through the holder of the application's control id (`Generations`), reports come back through a follower of the
journal. What earlier generations and runs reported is told apart by generation, run and time, for a topic cannot be cleared.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kstreams_repl.instance.control import LeaseWriter, Signal
from kstreams_repl.instance.remote_control import Follower
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.kafka.journal_records import InstanceReport
from kstreams_repl.metrics.snapshot import sound


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
        """Writes a command to the journal; set by whoever holds the control id."""
        self._cleared: dict[int, InstanceReport] = {}

    def follow(self, start: int) -> None:
        """Begin to read reports, from an offset on. Repeating it goes on with the follower there is."""
        if self._follower is None or self._follower.over:
            self._follower = Follower(self._settings, self._application_id, start=start, reports=True)

    def write(self, generation: int, signal: Signal) -> bool:
        """Say what is wanted, here and in the journal.

        Raises:
            ProducerFencedError: another session has taken the application over.
            BrokerUnavailableError: the journal cannot be written now.
        """
        written = super().write(generation, signal)
        if written and self.send is not None:
            self.send(generation, signal)
        return written

    def clear(self) -> None:
        """What was reported up to now says nothing any more."""
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
        read = ((slot, sound(said.snapshot)) for slot, said in told.items() if said.generation == generation)
        return {slot: snapshot for slot, snapshot in read if snapshot is not None}

    def places(self) -> dict[int, str]:
        """Where each slot was when it reported last."""
        follower = self._follower
        return {} if follower is None else {slot: said.host for slot, said in list(follower.state.reports.items()) if said.host}

    def close(self) -> None:
        """Stop reading; what was read last stays readable."""
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
