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


def start_query(
    session: Any,
    shipment: Shipment,
    directory: Path,
    *,
    application_id: str,
    instances: int,
    generation: int,
    tasks: Sequence[str] = (),
    shared_pool: bool = False,
) -> tuple[Any, Path]:
    """Start the query.

    Its progress (`StreamingQueryProgress.observedMetrics`) has the row ``epoch``: ``records``, ``dropped``, ``restored``, ``lag`` (-1 while
    any task does not know), ``seconds``, ``rate`` (records per second), ``tasks``, ``failures``; and the row ``tasks`` with a struct of
    the same for each task, with its ``state`` and ``error``.

    Args:
        tasks: names of the tasks; of more than some hundreds the row ``tasks`` is left out.
        shared_pool: use the workers that all such applications share.
        directory: where its checkpoint directory is made.

    Returns:
        The query and its checkpoint directory, which is of no use once the query has ended.
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
        with _own_pool(session, claim_pool(application_id, instances, shared=shared_pool)):
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
    return query, checkpoint


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


def end_later(query: Any, checkpoint: Path | None, seconds: float) -> threading.Thread:
    """End a query whose instances all rest, on a thread: Spark takes a while to see that its tasks are done, and whoever
    pauses needs not wait for it. What comes next (`resume`, `stop`) waits for the thread.
    """

    def end() -> None:
        with suppress(Exception):  # Spark itself may have been stopped meanwhile
            await_idle(query, seconds)
            query.stop()
        if checkpoint is not None:
            shutil.rmtree(checkpoint, ignore_errors=True)

    thread = threading.Thread(target=end, name=f"end-{query.name}", daemon=True)
    thread.start()
    return thread


def await_idle(query: Any, seconds: float) -> None:
    """Wait until no worker runs for the query. Stopping it then ends no worker process, so that what workers keep warm stays
    warm.
    """
    tracker = _tracker()
    group = str(query.runId)
    deadline = time.monotonic() + seconds
    while query.isActive and time.monotonic() < deadline:
        active = set(tracker.getActiveJobIds())
        if not active or active.isdisjoint(tracker.getJobIdsForGroup(group)):
            return
        time.sleep(0.002)


def await_progress(query: Any, seconds: float) -> None:
    """Wait until the query has told its progress once more: the epoch that ended last is in it, with its failures."""
    before = _last_batch(query)
    deadline = time.monotonic() + seconds
    while query.isActive and _last_batch(query) <= before and time.monotonic() < deadline:
        time.sleep(0.01)


def _last_batch(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _tracker() -> Any:
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    return context._jsc.statusTracker()
