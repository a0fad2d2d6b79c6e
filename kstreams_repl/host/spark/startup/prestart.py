"""Start Spark on a thread before the first deploy: its JVM, its session, and the Python workers of the first application.

A connected session is about to deploy; what happens until then (the broker's start, the cells that build a topology) takes about as long
as Spark's start. The thread runs one empty epoch, so that the classes of a streaming query are loaded and workers with all modules wait in
the pool that the first application gets. Failures are not reported here: the deploy meets the same error and raises it.
"""

from __future__ import annotations

import importlib.util
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kstreams_repl.host.spark.slots.spark_slots import is_used
from kstreams_repl.host.spark.slots.worker_pools import offer_pool, pool_of_functions
from kstreams_repl.host.spark.startup.spark_session import end_jvm, get_session, is_wanted, runs_already, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_EPOCH_SECONDS = 30.0


class Prestart:
    """The start of Spark in the background.

    Args:
        master: see `get_session`.
        workers: number of Python workers to start.
    """

    def __init__(self, master: str | None, workers: int) -> None:
        self._master, self._workers = master, workers
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._start, name="start-spark", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether Spark is still starting."""
        return self._thread.is_alive()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until Spark has started or failed to start; return False on timeout."""
        self._thread.join(seconds)
        return not self.running

    def stop(self) -> None:
        """Stop Spark unless an application uses it: kill it if it is still starting, otherwise shut it down."""
        if is_used():
            return
        self._cancelled.set()
        if self.running:
            end_jvm()
            self._thread.join(_EPOCH_SECONDS)
        stop_session()

    def _start(self) -> None:
        with suppress(Exception):  # the deploy takes the same steps and raises the error
            session = get_session(self._master, cancelled=self._cancelled)
            if not self._cancelled.is_set() and not is_wanted():
                self._run_an_epoch(session)

    def _run_an_epoch(self, session: SparkSession) -> None:
        checkpoint = Path(tempfile.mkdtemp(prefix="kstreams-prestart-"))
        try:
            clock = (
                session.readStream.format("rate-micro-batch")
                .option("rowsPerBatch", self._workers)
                .option("numPartitions", self._workers)
                .load()
            )
            with pool_of_functions(session, offer_pool(self._workers)):
                ran = clock.mapInArrow(nothing, clock.schema)
            query = ran.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
            try:
                deadline = time.monotonic() + _EPOCH_SECONDS
                while query.isActive and not query.lastProgress and not self._cancelled.is_set() and time.monotonic() < deadline:
                    time.sleep(0.02)
            finally:
                query.stop()
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)


def start_ahead(master: str | None, workers: int) -> Prestart | None:
    """Start Spark in advance; return None if it is running already or PySpark is not installed."""
    if importlib.util.find_spec("pyspark") is None or runs_already():
        return None
    return Prestart(master, workers)


def nothing(batches: Iterator[T]) -> Iterator[T]:
    """Pass the clock's rows on; the workers' daemon has imported the modules."""
    yield from batches
