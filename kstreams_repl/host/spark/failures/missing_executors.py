"""Detect instances that wait for slots of lost executors: Spark would queue them forever without an error."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kstreams_repl.host.spark.epochs.streaming_query import RunningQuery
from kstreams_repl.host.spark.slots.spark_slots import is_cluster, missing_slots
from kstreams_repl.system.errors import DeployError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS = 60.0
"""How long an instance may be queued: a cluster manager replaces a lost executor within this time."""


class MissingExecutors:
    """Checks about once a second, while an application's query runs, whether executors are missing.

    Instances queued behind other Spark jobs do not count, because those jobs end. Only a cluster loses slots.
    """

    def __init__(self, session: SparkSession, query: RunningQuery, name: str) -> None:
        self._session = session
        self._query = query
        self._name = name
        self._remote = is_cluster(session)
        self._since: float | None = None

    def check(self) -> DeployError | None:
        """Return an error if instances have been queued for `PATIENCE_SECONDS` and there are too few slots for all."""
        missing = queued = 0
        with suppress(Exception):  # if Spark stops meanwhile, the query ends with its own error
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
            "slots are missing for the applications that hold them",
            hint="no committed data are lost; add executors, stop another application or lower num.stream.threads, "
            "then resume",
            queued=queued,
            missing=missing,
        )
