"""Times of Spark frames: UTC without a zone here, moments in a session of the user's with another zone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from kstreams_repl.host.spark.dataframe_reader import frame_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
SCHEMA = pa.schema([("key", pa.string()), ("timestamp", pa.timestamp("us")), ("o", pa.struct([("at", pa.timestamp("us"))]))])


def read(number: int) -> Iterator[pa.RecordBatch]:
    now = int(time.time() * 1_000_000)
    times = [1_357_002_000_000_000, now - 5_400_000_000, now - 1_800_000_000]  # 2013-01-01 01:00 UTC; 90 and 30 minutes ago
    rows = {"key": ["old", "earlier", "recent"], "timestamp": times, "o": [{"at": time} for time in times]}
    yield pa.RecordBatch.from_pydict(rows, schema=SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_a_frame_compares_with_the_present_in_every_zone(spark: Any, zone: str) -> None:
    """A time without a zone was compared as a local one: nothing in Tokyo, the record of 90 minutes ago in Los Angeles."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    frame = frame_of(session, read, 1, SCHEMA)
    assert [row.key for row in frame.where("timestamp > current_timestamp() - INTERVAL 1 HOUR").collect()] == ["recent"]
    assert [row.key for row in frame.where("o.at > current_timestamp() - INTERVAL 1 HOUR").collect()] == ["recent"]
    assert frame.where("timestamp = TIMESTAMP '2013-01-01 01:00:00 UTC'").count() == 1
    if zone == "UTC":
        assert frame.where("key = 'old'").collect()[0].timestamp == datetime(2013, 1, 1, 1)
