"""The states of an application as its driver sees it, in one transition table; any other transition raises an error with the last ones.

    CREATED → RUNNING ⇄ PAUSED          RUNNING ⇄ RESTARTING          RUNNING, RESTARTING → FAILED → RUNNING
    CREATED, RUNNING, PAUSED, FAILED → STOPPED → RUNNING

RESTARTING: a generation has ended by itself (its worker processes died, an input topic grew) and the next one is being started; users
see RUNNING. PAUSED and STOPPED are entered when everything processed is committed; only a paused application keeps its workers.

Source: KafkaStreams.State. REBALANCING has no counterpart, because the driver assigns the tasks before a generation starts.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from kstreams_repl.system.errors import IllegalStateTransitionError

_REMEMBERED = 6
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


class ApplicationLife:
    """The state of one application and its last transitions.

    Example:
        >>> life = ApplicationLife("counts")
        >>> life.enter(Status.RUNNING, "generation 1 started")
        >>> life.enter(Status.PAUSED, "requested")
        >>> life
        ApplicationLife(counts: created, then running (generation 1 started), then paused (requested))
    """

    def __init__(self, application_id: str) -> None:
        self._application_id = application_id
        self.state = Status.CREATED
        self._story: deque[str] = deque([Status.CREATED.value], _REMEMBERED)

    def check(self, wanted: Status) -> None:
        """Raise if the application cannot enter a state.

        Raises:
            IllegalStateTransitionError: the table has no such transition; the error names the last ones.
        """
        if wanted not in _NEXT[self.state]:
            raise IllegalStateTransitionError(
                f"{self._application_id} is {self.state} and cannot become {wanted}; transitions so far: {', then '.join(self._story)}",
                application=self._application_id,
                state=self.state.value,
                wanted=wanted.value,
            )

    def enter(self, state: Status, why: str) -> None:
        """Enter a state and log it; raise as `check` does."""
        self.check(state)
        _LOG.info("%s -> %s (%s)", self.state.value, state.value, why, extra={"application": self._application_id})
        self.state = state
        self._story.append(f"{state} ({why})")

    def __repr__(self) -> str:
        return f"ApplicationLife({self._application_id}: {', then '.join(self._story)})"
