"""The streaming query of a deployed application: clock → instances → nowhere, with the totals observed.

``rate-micro-batch`` gives one row per instance and epoch and ends at once, so that Spark's offsets only count epochs; the
input offsets are the consumer group's. A checkpoint is fresh per generation: a kept one would replay an old batch with other
partitions.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from kstreams_repl.spark.closure import Shipment
from kstreams_repl.spark.worker import REPORT_DDL, run_epoch


def start_query(session: Any, shipment: Shipment, *, application_id: str, instances: int, generation: int) -> tuple[Any, Path]:
    """Start the query; returns it and its checkpoint directory, which is of no use once the query has ended."""
    from pyspark.sql import functions as f

    def epoch(batches: Any) -> Any:
        return run_epoch(shipment, application_id, batches)

    checkpoint = Path(tempfile.mkdtemp(prefix=f"kstreams-{generation}-"))
    try:
        clock = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", instances)
            .option("numPartitions", instances)
            .load()
        )
        reports = clock.mapInArrow(epoch, REPORT_DDL).observe(
            "epoch",
            f.sum("records").alias("records"),
            f.count("slot").alias("tasks"),
            f.sum(f.when(f.col("error").isNotNull(), 1).otherwise(0)).alias("failures"),
        )
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
