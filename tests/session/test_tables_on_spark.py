"""A table of files written by bounded runs and a stream, read by Spark and DuckDB; a record that does not fit is a dead letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

import kstreams_repl as ks

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
DAY_MS = 86_400_000


def to_table(source: str, path: Path) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    orders = builder.stream(source, key_serde="string", value_serde="json")
    orders.to_table_files(str(path), schema={"n": "int64"}, key_column="user", partition_by="event_day", name="orders-table")
    return builder


@pytest.mark.slow
def test_runs_and_a_stream_fill_one_table_that_spark_and_duckdb_read(broker: Any, tmp_path: Path) -> None:
    path = tmp_path / "table"
    with ks.connect(broker.bootstrap_servers, directory=tmp_path, report=lambda line: None) as session:
        name = f"t{tmp_path.name[-6:]}{id(session) % 10_000}"
        source, refused = f"{name}-in", f"{name}-refused"
        for topic in (source, refused):
            session.create_topic(topic, partitions=2)
        settings = {
            "processing.guarantee": "exactly_once_v2",
            "production.exception.handler": "continue",
            "errors.dead.letter.queue.topic.name": refused,
        }

        def produce(first: int) -> None:
            session.produce(source, [(f"u{n % 5}", {"n": n}, n % 3 * DAY_MS) for n in range(first, first + 300)])

        produce(0)
        session.produce(source, [("bad", {"n": "x"}, 0)])
        first = session.run_batch(to_table(source, path), name, config=settings).batch_report
        assert first is not None and (first.records_in, first.records_out, first.dropped) == (301, 300, {"misfit": 1})
        files = list(path.rglob("*.parquet"))
        assert [(table.rows, table.files) for table in first.tables] == [(300, len(files))] and f" {len(files)} files" in repr(first)
        assert first.tables[0].bytes == sum(file.stat().st_size for file in files)
        produce(300)
        second = session.run_batch(to_table(source, path), name, config=settings).batch_report
        assert second is not None and [table.rows for table in second.tables] == [300]
        assert second.tables[0].files == len(list(path.rglob("*.parquet"))) - len(files)
        produce(600)
        app = session.deploy(to_table(source, path), name, config=settings)
        app.wait(60)
        app.stop()
        counts = app.counts.nodes["orders-table"]
        assert (counts.records, counts.given, counts.dropped) == (901, 900, {"misfit": 1})
        noted = session.run_batch(to_table(source, path), name, config=settings).batch_report
        assert noted is not None and (noted.state, noted.is_empty) == ("finished", True), "the stream's last commit named rows on their way"
        nothing = session.run_batch(to_table(source, path), name, config=settings).batch_report
        assert nothing is not None and nothing.state == "nothing new"

        rows = session.spark.read.parquet(str(path)).selectExpr("n", "user", "string(event_day)").orderBy("n").collect()
        assert [tuple(row) for row in rows] == [(n, f"u{n % 5}", f"1970-01-0{n % 3 + 1}") for n in range(900)]
        query = f"SELECT n, user, event_day::VARCHAR FROM read_parquet('{path}/**/*.parquet', hive_partitioning = true) ORDER BY n"
        assert duckdb.sql(query).fetchall() == [tuple(row) for row in rows]
        assert [record.value for record in session.read(refused)] == [{"n": "x"}]
        assert [found.name for found in path.rglob("*") if found.suffix in (".arrow", ".staged", ".open")] == []
