"""Instances that wait for slots which a cluster has lost: Spark would queue them for ever and say nothing."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from kstreams_repl.errors import DeployError
from kstreams_repl.spark.epoch import RunningQuery
from kstreams_repl.spark.session import is_cluster, missing_slots

PATIENCE_SECONDS = 60.0
"""How long an instance may be queued: a master or a scheduler of containers starts an executor anew within it."""


class Shortage:
    """Looked at about once a second while an application's query runs.

    Instances that are queued behind other Spark jobs are none: those end, and the slots are there. Only a cluster loses slots.
    """

    def __init__(self, session: Any, query: RunningQuery, name: str) -> None:
        self._session = session
        self._query = query
        self._name = name
        self._remote = is_cluster(session)
        self._since: float | None = None

    def look(self) -> DeployError | None:
        """The error of an application some of whose instances have been queued for `PATIENCE_SECONDS` with too few slots for all."""
        missing = queued = 0
        with suppress(Exception):  # Spark may go meanwhile: then the query is over, and that is the error
            missing = missing_slots(self._session) if self._remote else 0
            queued = self._query.queued_tasks() if missing else 0
        if not queued:
            self._since = None
            return None
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since < PATIENCE_SECONDS:
            return None
        return DeployError(
            f"{queued} instances of {self._name} have waited {PATIENCE_SECONDS:.0f} s for a Spark slot: executors were lost, and {missing} "
            "slots less than the applications hold are left",
            hint="stopped, nothing committed is lost; start executors anew, stop another application or set num.stream.threads lower, "
            "then resume",
            queued=queued,
            missing=missing,
        )
