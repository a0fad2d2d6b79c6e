"""The states of an application and its transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from kstreams_repl.errors import IllegalStateTransitionError


class Status(StrEnum):
    """The state of an application. CREATED → RUNNING ⇄ PAUSED → STOPPED; RUNNING → FAILED → RUNNING (resume after a fix)."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


NEXT: Mapping[Status, frozenset[Status]] = {
    Status.CREATED: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.RUNNING: frozenset({Status.PAUSED, Status.STOPPED, Status.FAILED}),
    Status.PAUSED: frozenset({Status.RUNNING, Status.STOPPED, Status.FAILED}),
    Status.FAILED: frozenset({Status.RUNNING, Status.STOPPED}),
    Status.STOPPED: frozenset({Status.RUNNING}),
}


def check_step(application: str, status: Status, wanted: Status, story: Sequence[str]) -> None:
    """Raise `IllegalStateTransitionError` with the previous transitions if the application cannot go from one state to the other."""
    if wanted not in NEXT[status]:
        raise IllegalStateTransitionError(
            f"{application} is {status} and cannot become {wanted}; transitions so far: {', then '.join(story[-6:])}"
        )
