"""`EventTime` deployed as an application is: Spark's Python workers run its instances, and are what dies."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from kstreams_repl.host.spark.deployment import Deployment
from tests.faults.crew import SECONDS
from tests.faults.event_time import EventTime


class OnSpark(EventTime):
    """Args:
    spark: the session; Spark starts a worker that died again, and the deployment a query that Spark gave up.
    """

    def __init__(self, bootstrap: str, directory: Path, *, spark: Any, **options: Any) -> None:
        super().__init__(bootstrap, directory, **options)
        self._spark = spark
        self._deployment: Deployment | None = None
        self._killed: set[int] = set()

    def deploy(self, instances: int = 2, *, failpoints: str = "", inside: int = 0) -> None:
        config = self.config.with_(num_stream_threads=instances)
        self._deployment = Deployment(self.topology(), config, spark=self._spark, failpoints=failpoints).start()
        self.plan = self._deployment.plan

    def kill(self, slot: int) -> None:
        """kill -9 of the worker process that runs a slot now: one that has not been killed before."""
        assert self._deployment is not None
        found: list[int] = []

        def there() -> bool:
            assert self._deployment is not None
            reports = self._deployment.reports.instances
            found[:] = [reports[slot].pid] if slot in reports and reports[slot].pid not in self._killed else []
            return bool(found) and Path(f"/proc/{found[0]}").exists()

        self.settle(there, f"a worker of slot {slot}", 2 * SECONDS)
        self._killed.add(found[0])
        with suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGKILL)

    def raise_failures(self) -> None:
        if self._deployment is not None and self._deployment.error is not None:
            raise AssertionError(self._deployment.error)

    def stop(self) -> None:
        if self._deployment is not None:
            self._deployment.stop()
            self.raise_failures()

    def close(self) -> None:
        if self._deployment is not None:
            self._deployment.stop()
        super().close()
