"""A query gives the same rows in every time zone: times without a zone are UTC, for DuckDB, dataframes, charts and displays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.kafka.reading import OffsetRange
from kstreams_repl.host.spark.dataframe_reader import _as_moments
from kstreams_repl.repl.inspection import Limits, TopicScan, run_sql, topics
from kstreams_repl.repl.inspection.stores import StoreRows, store_table
from kstreams_repl.repl.session.topics.produce import milliseconds, parts_of
from kstreams_repl.system.types import RecordBatch, TopicPartition

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).parents[4]
MINUTE, HOUR = 60_000, 3_600_000
AT = 1_356_998_400_000 + 90 * MINUTE  # 2013-01-01 01:30 UTC: another day in Los Angeles
QUERIES = (
    "SELECT key FROM {} WHERE timestamp > now() - INTERVAL 1 HOUR ORDER BY key",
    "SELECT key FROM {} WHERE timestamp > current_timestamp - INTERVAL 1 HOUR AND timestamp < now() ORDER BY key",
    "SELECT key FROM {} WHERE timestamp = TIMESTAMPTZ '2013-01-01 02:30:00+01' ORDER BY key",
    "SELECT key FROM {} WHERE timestamp >= '2013-01-01 01:30:00' AND timestamp < DATE '2013-01-02' ORDER BY key",
    "SELECT timestamp::VARCHAR, hour(timestamp), date_trunc('day', timestamp)::VARCHAR, timestamp::TIMESTAMPTZ::VARCHAR FROM {}"
    " WHERE key = 'old'",
    "SELECT key FROM {} WHERE timestamp::DATE >= today() - 1 ORDER BY key",
    "SELECT epoch_ms(timestamp::TIMESTAMPTZ) FROM {} WHERE key = 'old'",
    "SELECT key FROM {} WHERE timestamp > (SELECT now() - INTERVAL 1 HOUR) ORDER BY key",
    "SELECT key FROM {} JOIN frame USING (key) WHERE frame.at > now() - INTERVAL 1 HOUR ORDER BY key",
)
RECENT = [["recent"]]
EXPECTED = [
    RECENT, RECENT, [["old"]], [["old"]],
    [["2013-01-01 01:30:00", 1, "2013-01-01 00:00:00", "2013-01-01 01:30:00+00"]], None, [[AT]], RECENT, RECENT,
]  # fmt: skip


class Source:
    """A topic and a store with a record of 2013, one of 90 minutes ago and one of 30, and a dataframe of the user's."""

    def __init__(self) -> None:
        now = int(time.time() * 1000)
        self.keys, self.times = [b"old", b"earlier", b"recent"], [AT, now - 90 * MINUTE, now - 30 * MINUTE]
        self.settings = None

    def ranges_of(self, admin: Any, topic: str, **bounds: Any) -> tuple[OffsetRange, ...]:
        return (OffsetRange(TopicPartition("topic", 0), 0, 3),)

    def offsets_for_time(self, asked: Any) -> Any:
        return {at: next((n for n, time in enumerate(self.times) if time >= limit), None) for at, limit in asked.items()}

    def read_ranges(self, settings: Any, ranges: Any) -> Any:
        for item in ranges:
            part = slice(item.start, item.end)
            offsets = list(range(item.start, item.end))
            yield item.partition, RecordBatch(self.keys[part], [b"1"] * len(offsets), self.times[part], offsets, None)

    def table(self, schema: str, name: str, limits: Limits) -> Any:
        if name == "topic":
            return TopicScan(self, "topic", bounds=limits.bounds, columns=limits.columns)  # type: ignore[arg-type]
        if name == "store":
            builder = StoreBuilder("store", StoreKind.TIMESTAMPED_KEY_VALUE, serdes.string, serdes.long)
            values = [time.to_bytes(8, "big") + (1).to_bytes(8, "big") for time in self.times]
            return store_table(builder, [StoreRows(0, self.keys, values)], key_serde=serdes.string, value_serde=serdes.long)
        moments = pandas.to_datetime(pandas.Series(self.times), unit="ms").astype("datetime64[us]")
        return pandas.DataFrame({"key": ["old", "earlier", "recent"], "at": moments}) if name == "frame" else None

    def names(self) -> Iterable[str]:
        return ("topic", "store", "frame")

    def expect(self, tables: Any) -> None:
        """Do nothing: the tables are unrelated."""


def answers() -> list[Any]:
    """Return what a process in this time zone answers."""
    source = Source()
    topics.ranges_of, topics.read_ranges = source.ranges_of, source.read_ranges  # type: ignore[assignment]
    of_tables = [
        [run_sql(query.format(table), source).fetchall() for query in QUERIES if table == "topic" or "frame" not in query]
        for table in ("topic", "store")
    ]
    old = run_sql("SELECT timestamp, count(*)::BIGINT AS n FROM topic WHERE key = 'old' GROUP BY 1", source)
    record = ks.reports.Records([ks.reports.ReadRecord("old", 1, AT)])
    return [
        *of_tables,
        [str(old.df()["timestamp"][0]), str(old.pl()["timestamp"][0]), str(old.arrow()["timestamp"][0].as_py()), repr(old)],
        str(old.chart("line", x="timestamp", y="n").points),
        [str(record.df()["timestamp"][0]), str(record.arrow()["timestamp"][0].as_py()), repr(record)],
        [part[2] for part in parts_of(old.df().assign(key="old"), timestamp="timestamp")],
        [milliseconds("2013-01-01T01:30"), milliseconds(old.df()["timestamp"][0]), milliseconds(old.fetchall()[0][0])],
    ]  # fmt: skip


@pytest.fixture(scope="module")
def by_zone() -> dict[str, list[Any]]:
    script = f"import json; from {__name__} import answers; print(json.dumps(answers()))"
    started = {
        zone: subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "TZ": zone}, stdout=subprocess.PIPE, text=True)
        for zone in ("UTC", "Asia/Tokyo", "America/Los_Angeles")
    }
    return {zone: json.loads(process.communicate()[0]) for zone, process in started.items()}


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_a_query_of_a_topic_and_of_a_store_gives_the_same_rows_in_every_zone(zone: str, by_zone: dict[str, list[Any]]) -> None:
    of_topic, of_store = by_zone[zone][:2]
    for query, found, expected in zip(QUERIES, of_topic, EXPECTED, strict=True):
        assert found == expected or (expected is None and ["recent"] in found and ["old"] not in found), query
    assert of_store == of_topic[: len(of_store)]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_dataframes_charts_and_displays_are_the_same_in_every_zone(zone: str, by_zone: dict[str, list[Any]]) -> None:
    assert by_zone[zone][2:] == by_zone["UTC"][2:]
    frames, _, read, written, parsed = by_zone[zone][2:]
    assert frames[:3] == ["2013-01-01 01:30:00"] * 3 and read[:2] == ["2013-01-01 01:30:00"] * 2
    assert written == [AT] and parsed == [AT] * 3


def test_times_are_moments_for_a_spark_session_with_another_zone() -> None:
    naive, nested = pyarrow.timestamp("us"), pyarrow.struct([pyarrow.field("at", pyarrow.list_(pyarrow.timestamp("us")))])
    assert _as_moments(naive) == pyarrow.timestamp("us", "UTC") and _as_moments(pyarrow.int64()) == pyarrow.int64()
    assert str(_as_moments(nested)) == "struct<at: list<item: timestamp[us, tz=UTC]>>"
