"""The streaming query of a deployed application: clock → instances → nowhere, with the totals observed.

``rate-micro-batch`` gives one row per instance and epoch and ends at once, so that Spark's offsets only count epochs; the
input offsets are the consumer group's. A checkpoint is fresh per generation: a kept one would replay an old batch with other
partitions.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kstreams_repl.spark.closure import Shipment
from kstreams_repl.spark.report_rows import REPORT_DDL
from kstreams_repl.spark.session import claim_pool, python_path
from kstreams_repl.spark.worker import run_epoch

POOL_VARIABLE = "KSTREAMS_POOL"
_MOST_TASKS_SHOWN = 200
_pool_lock = threading.Lock()


class RunningQuery:
    """A streaming query of Spark's and its checkpoint directory. Once Spark or its JVM has gone it is over, which is no error."""

    def __init__(self, streaming: Any, checkpoint: Path, context: Any) -> None:
        self.streaming = streaming
        self._checkpoint = checkpoint
        self._context = context
        self._tracker = context.statusTracker()

    @property
    def active(self) -> bool:
        try:
            return bool(self.streaming.isActive)
        except Exception:  # whatever py4j makes of a JVM that does not answer
            return False

    def cause(self) -> str | None:
        """Why it ended by itself, in Spark's words; None when Spark was stopped or has gone."""
        try:
            found = None if self._context._jsc.sc().isStopped() else self.streaming.exception()
        except Exception:  # as above
            return None
        return None if found is None else str(found)

    def await_idle(self, seconds: float) -> None:
        """Wait until no worker runs for it. Stopping it then ends no worker process, so that what workers keep warm stays warm."""
        with suppress(Exception):  # Spark may be stopped meanwhile
            group = str(self.streaming.runId)
            deadline = time.monotonic() + seconds
            while self.active and time.monotonic() < deadline:
                jobs = set(self._tracker.getActiveJobsIds())
                if not jobs or jobs.isdisjoint(self._tracker.getJobIdsForGroup(group)):
                    return
                time.sleep(0.002)

    def queued_tasks(self) -> int:
        """How many tasks of the running epoch have no slot."""
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
        """Wait until it has told its progress once more: the epoch that ended last is in it, with its failures."""
        with suppress(Exception):  # as above
            before = _last_batch(self.streaming)
            deadline = time.monotonic() + seconds
            while self.active and _last_batch(self.streaming) <= before and time.monotonic() < deadline:
                time.sleep(0.01)

    def stop(self) -> None:
        """End it, whatever its workers do; may be repeated."""
        with suppress(Exception):  # it may have died by itself; its error was read by the watcher
            self.streaming.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def end_later(self, seconds: float) -> threading.Thread:
        """End a query whose instances all rest, on a thread: Spark takes a while to see that its tasks are done, and whoever
        pauses needs not wait for it. What comes next (`resume`, `stop`) waits for the thread.
        """

        def end() -> None:
            self.await_idle(seconds)
            self.stop()

        thread = threading.Thread(target=end, name="end-query", daemon=True)
        thread.start()
        return thread


def start_query(
    session: Any,
    shipment: Shipment,
    directory: Path,
    *,
    application_id: str,
    instances: int,
    generation: int,
    tasks: Sequence[str] = (),
    holder: object,
    shared_pool: bool = False,
) -> RunningQuery:
    """Start the query.

    Its progress (`StreamingQueryProgress.observedMetrics`) has the row ``epoch``: ``records``, ``dropped``, ``restored``, ``lag`` (-1 while
    any task does not know), ``seconds``, ``rate`` (records per second), ``tasks``, ``failures``; and the row ``tasks`` with a struct of
    the same for each task, with its ``state`` and ``error``.

    Args:
        tasks: names of the tasks; of more than some hundreds the row ``tasks`` is left out.
        holder: of the worker pool (`release_slots`).
        shared_pool: use the workers that all such applications share.
        directory: where its checkpoint directory is made.
    """
    from pyspark.sql import functions as f

    def epoch(batches: Any) -> Any:
        return run_epoch(shipment, application_id, batches)

    checkpoint = Path(tempfile.mkdtemp(prefix=f"checkpoint-{generation}-", dir=directory))
    try:
        clock = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", instances)
            .option("numPartitions", instances)
            .load()
        )
        with _own_pool(session, claim_pool(application_id, instances, holder, shared=shared_pool)):
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
            told = f.struct("records", "dropped", "restored", "lag", "state", "error")
            reports = reports.observe("tasks", *(f.max(f.when(f.col("task") == name, told)).alias(name) for name in tasks))
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


@contextmanager
def _own_pool(session: Any, pool: str) -> Iterator[None]:
    """Make functions inside for one worker pool: Spark keys pools by the environment variables of the function.

    The same variables carry this package's folder, so that workers of a session which somebody else started find it as well.
    """
    environment = session.sparkContext.environment
    with _pool_lock:
        before = {name: environment.get(name) for name in (POOL_VARIABLE, "PYTHONPATH")}
        environment[POOL_VARIABLE] = pool
        environment["PYTHONPATH"] = python_path(before["PYTHONPATH"])
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del environment[name]
                else:
                    environment[name] = value


def _last_batch(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])
