"""Tables of files: records per second of a bounded run that writes a topic of small JSON to a table, next to plain Spark that writes the
same rows from files."""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.engine.topology.table_files import FORMATS
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import json_output
from workshop.bench.rig.record_files import SCHEMA, write_files
from workshop.bench.rig.testbed import Testbed, open_testbed, where

BENCH = "tables"
_COLUMNS = {"user": "int64", "amount": "int64", "item": "string", "ts": "int64"}
_SPARK_COLUMNS = "user long, amount long, item string, ts long"


@click.command(help="A bounded run that writes a topic of small JSON to a table of each format, next to plain Spark writing Parquet.")
@click.option("--records", type=click.IntRange(1), default=4_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@click.option("--format", "formats", multiple=True, type=click.Choice(FORMATS), help="Only these; default: all.")
@where
def main(
    records: int, keys: int, instances: int, runs: int, formats: tuple[str, ...], bootstrap: str | None, directory: Path | None
) -> None:
    """Print one line per format and one for Spark."""
    json_output.emit_machine()
    chosen = formats or FORMATS
    with open_testbed(bootstrap, directory) as testbed, TemporaryDirectory(dir=testbed.scratch) as scratch:
        topic = testbed.input_topics(records, keys).input
        files = write_files(testbed, topic, Path(scratch) / "spark-files", "parquet")
        testbed.session.spark  # noqa: B018 (Spark starts before the first measured run)
        rates: dict[str, list[float]] = {name: [] for name in (*chosen, "spark")}
        for number in range(runs):
            for format in chosen:
                rates[format].append(_ours(testbed, topic, records, format, instances, Path(scratch) / f"table-{format}-{number}"))
            rates["spark"].append(_spark(testbed, files, records, Path(scratch) / f"table-spark-{number}"))
            click.echo(f"run {number + 1}: " + ", ".join(f"{name} {found[-1]:,.0f}/s" for name, found in rates.items()), err=True)
        for name, found in rates.items():
            case = "plain Spark, Parquet files to a Parquet table" if name == "spark" else f"topic to a {name} table"
            json_output.emit(BENCH, case, json_output.median(found), "records/s", **json_output.spread(found), records=records)
        ratio = round(statistics.median(rates[chosen[0]]) / statistics.median(rates["spark"]), 2)
        json_output.emit(BENCH, f"{chosen[0]} to plain Spark ratio", ratio, "x", records=records)


def _ours(testbed: Testbed, topic: str, records: int, format: str, instances: int, path: Path) -> float:
    """Return the rate from the first record processed to the return of the call: all rows are in the table then."""
    name = f"bench-{path.name}"
    builder = StreamsBuilder()
    stream = builder.stream(topic, key_serde="string", value_serde="json")
    stream.to_table_files(str(path), format, schema=_COLUMNS)
    app = testbed.session.run_batch(
        builder, name, config={"processing.guarantee": EXACTLY_ONCE_V2, "num.stream.threads": instances}
    )
    ended = time.time()
    began = min(one.first_at for one in app.reports.instances.values() if one.first_at is not None)
    testbed.session.cleanup(name)
    _check(path, records)
    shutil.rmtree(path)
    return records / (ended - began)


def _spark(testbed: Testbed, files: Path, records: int, path: Path) -> float:
    """Return the rate of Spark parsing the same JSON texts and writing the same columns."""
    began = time.time()
    rows = testbed.session.spark.read.schema(SCHEMA).parquet(str(files))
    rows.selectExpr(f"from_json(value, '{_SPARK_COLUMNS}') AS row").select("row.*").write.parquet(str(path))
    ended = time.time()
    _check(path, records)
    shutil.rmtree(path)
    return records / (ended - began)


def _check(path: Path, records: int) -> None:
    import pyarrow.parquet as pq

    names = [file for file in path.rglob("*.parquet") if not {"_delta_log", "_kstreams"} & set(file.parts)]
    found = sum(pq.read_metadata(name).num_rows for name in names)
    if found != records:
        raise KStreamsError(f"the table has {found:,} rows, not {records:,}", path=str(path))
