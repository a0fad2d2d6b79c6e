"""The rows that an epoch reports to Spark, one per task, as an Arrow batch.

The batch is built from buffers instead of `pyarrow.array`: that imports pandas to check whether its argument is a pandas object, which
costs 0.25 s of CPU and tens of megabytes in every worker, at the end of its first epoch, when a pause may be waiting.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from kstreams_repl.host.instance.reports.epoch_result import EpochResult, TaskResult

REPORT_DDL = (
    "slot int, task string, state string, records long, warm boolean, error string, "
    "dropped long, restored long, lag long, seconds double"
)
REPORT_SCHEMA = pa.schema(
    [
        ("slot", pa.int32()),
        ("task", pa.string()),
        ("state", pa.string()),
        ("records", pa.int64()),
        ("warm", pa.bool_()),
        ("error", pa.string()),
        ("dropped", pa.int64()),
        ("restored", pa.int64()),
        ("lag", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
_CODES = {pa.int32(): "i", pa.int64(): "q", pa.float64(): "d"}


def report_batch(outcome: EpochResult) -> pa.RecordBatch:
    """Return the result of an epoch of one slot: a row per task, or one row when it has none."""
    rows = outcome.tasks or {"": TaskResult(lag=0)}
    count, done = len(rows), rows.values()
    error = None if outcome.failure is None else json.dumps(outcome.failure)
    columns: list[Sequence[object]] = [
        [outcome.slot] * count,
        list(rows),
        [outcome.state] * count,
        [task.records for task in done],
        [outcome.warm] * count,
        [error] * count,
        [task.dropped for task in done],
        [task.restored for task in done],
        [task.lag for task in done],
        [outcome.seconds] * count,
    ]
    arrays = [_column(field.type, values) for field, values in zip(REPORT_SCHEMA, columns, strict=True)]
    return pa.record_batch(arrays, schema=REPORT_SCHEMA)


def _column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """Build a column. Only string columns may be null, and then all their values are."""
    count = len(values)
    if kind == pa.string():
        if values[0] is None:
            return pa.nulls(count, kind)
        texts = [value.encode() for value in values]
        ends = array("i", accumulate((len(text) for text in texts), initial=0))
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(texts))])
    if kind == pa.bool_():
        bits = sum(1 << at for at, value in enumerate(values) if value)
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bits.to_bytes((count + 7) // 8, "little"))])
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array(_CODES[kind], values).tobytes())])
