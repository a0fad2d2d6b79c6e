"""A Spark DataFrame over data that are read in pieces: a Python worker reads each piece, nothing passes through the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa


def frame_of(spark: Any, read: Callable[[int], Iterator[pa.RecordBatch]], pieces: int, schema: pa.Schema) -> Any:
    """Return a lazy DataFrame with one partition per piece; each action reads the pieces it needs again.

    Args:
        read: returns the rows of a piece, given its number, in batches of that schema; it is pickled and sent to the workers.
        pieces: number of pieces.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not pieces:
        return spark.createDataFrame([], kinds)

    def rows(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from read(number)

    return spark.range(0, pieces, 1, pieces).mapInArrow(rows, kinds)
