"""A Spark DataFrame over data that are read in pieces: a Python worker reads each piece, nothing passes through the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as DataFrame
    from pyspark.sql import SparkSession


def frame_of(spark: SparkSession, read: Callable[[int], Iterator[pa.RecordBatch]], pieces: int, schema: pa.Schema) -> DataFrame:
    """Return a lazy DataFrame with one partition per piece; each action reads the pieces it needs again.

    Its times are without a zone, in UTC, as in `Session.sql`, if that is the zone of the Spark session; else Spark would take them for
    local ones when it compares them with `current_timestamp()`, and they are moments, which the session shows in its zone.

    Args:
        read: returns the rows of a piece, given its number, in batches of that schema; it is pickled and sent to the workers.
        pieces: number of pieces.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    if str(spark.conf.get("spark.sql.session.timeZone")) not in ("UTC", "Etc/UTC"):
        schema = pa.schema([field.with_type(_as_moments(field.type)) for field in schema])
    kinds = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not pieces:
        return spark.createDataFrame([], kinds)

    def rows_of(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from (rows.cast(schema) for rows in read(number))

    return spark.range(0, pieces, 1, pieces).mapInArrow(rows_of, kinds)


def _as_moments(kind: pa.DataType) -> pa.DataType:
    """Return the type with times in UTC instead of times without a zone."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, kind.tz or "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_moments(field.type)) for field in kind])
    return pa.list_(_as_moments(kind.value_type)) if pa.types.is_list(kind) else kind
