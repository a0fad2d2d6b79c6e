"""The states of an application as its driver sees it, in one transition table; any other transition raises an error with the last ones.

    CREATED → RUNNING ⇄ PAUSED          RUNNING ⇄ RESTARTING          RUNNING, RESTARTING → FAILED → RUNNING
    CREATED, RUNNING, PAUSED, FAILED → STOPPED → RUNNING

RESTARTING: a generation has ended by itself (its worker processes died, an input topic grew) and the next one is being started; users
see RUNNING. PAUSED and STOPPED are entered when everything processed is committed; only a paused application keeps its workers.

Source: KafkaStreams.State. REBALANCING has no counterpart, because the driver assigns the tasks before a generation starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum

from kstreams_repl.host.instance.epochs.lifecycle import Lifecycle

_LOG = logging.getLogger("kstreams_repl.host.spark")


class Status(StrEnum):
    """The state of an application."""

    CREATED = "created"
    RUNNING = "running"
    RESTARTING = "restarting"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


_NEXT: Mapping[Status, frozenset[Status]] = {
    Status.CREATED: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.RUNNING: frozenset({Status.RESTARTING, Status.PAUSED, Status.STOPPED, Status.FAILED}),
    Status.RESTARTING: frozenset({Status.RUNNING, Status.PAUSED, Status.FAILED}),
    Status.PAUSED: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.STOPPED: frozenset({Status.RUNNING}),
    Status.FAILED: frozenset({Status.RUNNING, Status.STOPPED}),
}


class ApplicationLife(Lifecycle[Status]):
    """The state of one application and its last transitions.

    Args:
        entered: called with each new state.

    Example:
        >>> life = ApplicationLife("counts")
        >>> life.enter(Status.RUNNING, "generation 1 started")
        >>> life.enter(Status.PAUSED, "requested")
        >>> life
        ApplicationLife(counts: created, then running (generation 1 started), then paused (requested))
    """

    __slots__ = ("_entered",)
    transitions = _NEXT  # type: ignore[assignment]
    hint = None

    def __init__(self, application_id: str, entered: Callable[[Status], None] = lambda state: None) -> None:
        super().__init__(application_id, Status.CREATED)
        self._entered = entered

    def check(self, wanted: Status, why: str = "") -> None:
        """Raise as `Lifecycle.check` does, without the reason: the caller is the user."""
        super().check(wanted)

    def _entering(self, state: Status, why: str) -> None:
        _LOG.info("%s -> %s (%s)", self.state.value, state.value, why, extra={"application": self.name})
        self._entered(state)
