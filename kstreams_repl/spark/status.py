"""The states of an application and how one follows another."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    """Where an application is. CREATED → RUNNING ⇄ PAUSED → STOPPED; RUNNING → FAILED → RUNNING (resume after a fix)."""

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
