"""Something that is read in pieces as a Spark DataFrame: a Python worker reads each piece, nothing goes through the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa


def frame_of(spark: Any, read: Callable[[int], Iterator[pa.RecordBatch]], pieces: int, schema: pa.Schema) -> Any:
    """A DataFrame of as many partitions as there are pieces; lazy, so each action reads what it needs anew.

    Args:
        read: the rows of a piece by its number, in batches of that schema; it goes to the workers.
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
