"""The streaming query of a deployed application: clock → instances → no sink, with the totals as observed metrics.

``rate-micro-batch`` gives one row per instance and epoch and ends immediately, so Spark's offsets only count epochs; the input offsets are
those of the consumer group. Each generation has a new checkpoint directory: a kept one would replay an old batch with other partitions.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kstreams_repl.host.spark.epochs.epoch_rows import REPORT_DDL
from kstreams_repl.host.spark.epochs.worker import run_epoch
from kstreams_repl.host.spark.planning.plan_serialization import Shipment
from kstreams_repl.host.spark.slots.worker_pools import pool_of_functions, take_pool

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_MOST_TASKS_SHOWN = 200


class RunningQuery:
    """A Spark streaming query and its checkpoint directory. A query whose Spark or JVM has ended counts as ended, without an error."""

    def __init__(self, streaming: StreamingQuery, checkpoint: Path, context: SparkContext) -> None:
        self.streaming = streaming
        self._checkpoint = checkpoint
        self._context = context
        self._tracker = context.statusTracker()

    @property
    def active(self) -> bool:
        try:
            return bool(self.streaming.isActive)
        except Exception:  # py4j raises various errors when the JVM does not answer
            return False

    def cause(self) -> str | None:
        """Return Spark's reason why the query ended by itself; None when Spark was stopped or its JVM has ended."""
        try:
            found = None if self._context._jsc.sc().isStopped() else self.streaming.exception()
        except Exception:  # as above
            return None
        return None if found is None else str(found)

    def await_idle(self, seconds: float) -> None:
        """Wait until no worker runs for the query. Stopping it then ends no worker process, so that warm workers stay warm."""
        with suppress(Exception):  # Spark may have been stopped
            group = str(self.streaming.runId)
            deadline = time.monotonic() + seconds
            while self.active and time.monotonic() < deadline:
                jobs = set(self._tracker.getActiveJobsIds())
                if not jobs or jobs.isdisjoint(self._tracker.getJobIdsForGroup(group)):
                    return
                time.sleep(0.002)

    def queued_tasks(self) -> int:
        """Return how many tasks of the running epoch have no slot."""
        waiting = 0
        for job in self._tracker.getJobIdsForGroup(str(self.streaming.runId)):
            found = self._tracker.getJobInfo(job)
            if found is None or found.status != "RUNNING":
                continue
            for stage in map(self._tracker.getStageInfo, found.stageIds):
                if stage is not None:
                    waiting += max(0, stage.numTasks - stage.numActiveTasks - stage.numCompletedTasks)
        return waiting

    def await_progress(self, seconds: float) -> None:
        """Wait for the next progress report: it includes the epoch that ended last, with its failures."""
        with suppress(Exception):  # as above
            before = _last_batch(self.streaming)
            deadline = time.monotonic() + seconds
            while self.active and _last_batch(self.streaming) <= before and time.monotonic() < deadline:
                time.sleep(0.01)

    def stop(self) -> None:
        """Stop the query, whatever its workers do; may be called again."""
        with suppress(Exception):  # it may have failed; the watcher has read its error
            self.streaming.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def end_later(self, seconds: float) -> threading.Thread:
        """Stop a query whose instances are at rest, on a thread: Spark needs some time to see that its tasks are done, and a pause need not
        wait for that. The next call (`resume`, `stop`) waits for the thread.
        """

        def end() -> None:
            self.await_idle(seconds)
            self.stop()

        thread = threading.Thread(target=end, name="end-query", daemon=True)
        thread.start()
        return thread


def start_query(
    session: SparkSession,
    shipment: Shipment,
    directory: Path,
    *,
    application_id: str,
    instances: int,
    generation: int,
    tasks: Sequence[str] = (),
    holder: object,
    pool: str = "own",
) -> RunningQuery:
    """Start the query.

    Its progress (`StreamingQueryProgress.observedMetrics`) has the row ``epoch``: ``records``, ``dropped``, ``restored``, ``lag`` (-1 while
    it is unknown for any task), ``seconds``, ``rate`` (records per second), ``tasks``, ``failures``; and the row ``tasks`` with a struct of
    the same for each task, with its ``state`` and ``error``.

    Args:
        tasks: names of the tasks; with more than a few hundred the row ``tasks`` is left out.
        holder: the owner of the worker pool (`release_pool`).
        pool: of `repl.worker.pool`.
        directory: the parent of the checkpoint directory.
    """
    from pyspark.sql import functions as f

    def epoch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_epoch(shipment, application_id, batches)

    checkpoint = Path(tempfile.mkdtemp(prefix=f"checkpoint-{generation}-", dir=directory))
    try:
        clock = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", instances)
            .option("numPartitions", instances)
            .load()
        )
        with pool_of_functions(session, take_pool(application_id, instances, holder, kind=pool)):
            ran = clock.mapInArrow(epoch, REPORT_DDL)
        reports = ran.observe(
            "epoch",
            f.sum("records").alias("records"),
            f.count("slot").alias("tasks"),
            f.sum(f.when(f.col("error").isNotNull(), 1).otherwise(0)).alias("failures"),
            f.sum("dropped").alias("dropped"),
            f.sum("restored").alias("restored"),
            f.when(f.min("lag") < 0, -1).otherwise(f.sum("lag")).alias("lag"),
            f.max("seconds").alias("seconds"),
            (f.sum("records") / f.max("seconds")).alias("rate"),
        )
        if 0 < len(tasks) <= _MOST_TASKS_SHOWN:
            columns = f.struct("records", "dropped", "restored", "lag", "state", "error")
            reports = reports.observe("tasks", *(f.max(f.when(f.col("task") == name, columns)).alias(name) for name in tasks))
        query = (
            reports.writeStream.format("noop")
            .queryName(f"{application_id}-{generation}")
            .option("checkpointLocation", str(checkpoint))
            .trigger(processingTime="0 seconds")
            .start()
        )
    except BaseException:
        shutil.rmtree(checkpoint, ignore_errors=True)
        raise
    return RunningQuery(query, checkpoint, session.sparkContext)


def _last_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
