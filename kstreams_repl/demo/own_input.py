"""`./kstreams demo --input FILE --topic NAME`: the user's own rows through a broker, a deployed count, and SQL."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from kstreams_repl.demo.demo_directory import OWN, refuse_running
from kstreams_repl.demo.flights import Hold
from kstreams_repl.demo.screen import Screen
from kstreams_repl.system.errors import KStreamsError, SerializationError
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    from kstreams_repl import Session, StreamsBuilder

APPLICATION = "own-input"
COUNTS = "rows-per-key"


def read_rows(file: Path, key: str | None) -> Iterator[tuple[str | None, JsonObject]]:
    """Yield (key, row) of a CSV file (with a header line) or of JSON lines, depending on the file's name.

    Raises:
        KStreamsError: the file does not exist, a line cannot be read (with its number), or the column does not exist.
    """
    if not file.is_file():
        raise KStreamsError(f"no file {file}", hint="--input takes a .csv, .jsonl or .ndjson file", path=str(file))
    rows = _json_lines(file) if file.suffix.lower() in (".jsonl", ".ndjson", ".json") else _csv_rows(file)
    for number, row in enumerate(rows, 1):
        if key is not None and key not in row:
            raise KStreamsError(
                f"row {number} of {file.name} has no column {key!r}",
                hint=f"its columns: {', '.join(map(str, row))}",
                path=str(file),
            )
        yield (None if key is None or row[key] is None else str(row[key])), row


def _json_lines(file: Path) -> Iterator[JsonObject]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
            except ValueError as error:
                why = str(error).partition(": line ")[0]  # without the parser's own position inside this line
                raise SerializationError(
                    f"line {number} of {file.name} is not valid JSON: {why}",
                    hint="write one JSON object per line",
                    path=str(file),
                    line=number,
                ) from error
            if not isinstance(row, dict):
                raise SerializationError(
                    f"line {number} of {file.name} is not a JSON object", hint="write one JSON object per line", path=str(file), line=number
                )
            yield row


def _csv_rows(file: Path) -> Iterator[JsonObject]:
    import duckdb

    quoted = str(file).replace("'", "''")
    with duckdb.connect() as database:
        database.execute("SET enable_progress_bar = false")
        database.execute("SET TimeZone = 'UTC'")
        try:
            reader = database.sql(f"SELECT to_json(r) FROM read_csv('{quoted}') r").to_arrow_reader(10_000)
            for batch in reader:
                yield from (orjson.loads(text) for text in batch.column(0).to_pylist())
        except duckdb.Error as error:
            raise SerializationError(
                f"{file.name} cannot be read as CSV: {error}", hint="write a header line, then the rows", path=str(file)
            ) from error


def build(topic: str) -> StreamsBuilder:
    """Return the topology: rows counted per key, or all together without a key."""
    from kstreams_repl import StreamsBuilder, serdes

    builder = StreamsBuilder()
    rows = builder.stream(topic, key_serde=serdes.string, value_serde=serdes.json)
    grouped = rows.group_by(lambda row_key, row: row_key or "", key_serde=serdes.string, value_serde=serdes.json)
    grouped.count(store=COUNTS, key_serde=serdes.string)
    return builder


def run(
    file: Path, topic: str, key: str | None, *, directory: Path, instances: int, show: Screen, hold: Hold | None = None
) -> JsonObject:
    """Produce the rows, count them per key on Spark, and compare with a count of the file.

    Args:
        directory: the demo's directory; all files are in its folder ``own``.
        hold: called when every number is right, with the application running again; None: the demo ends.
    """
    from kstreams_repl import connect, serdes

    started = time.monotonic()
    truth = Counter(row_key if row_key is not None else "" for row_key, _ in read_rows(file, key))
    directory = directory.expanduser().absolute()
    refuse_running(directory)
    own = directory / OWN
    if own.exists():
        shutil.rmtree(own)
    with connect(directory=own / "session", report=show.line, config={"num.stream.threads": instances}) as session:
        session.start()
        count = session.produce(topic, read_rows(file, key), key_serde=serdes.string, value_serde=serdes.json)
        show.line(f"{count:,} rows of {file.name} are in topic {topic}")
        app = session.deploy(build(topic), APPLICATION, processing_guarantee="exactly_once_v2")
        records, seconds = show.progress(app, count)
        app.pause()
        got = dict(session.sql(f'SELECT key, value FROM "{COUNTS}"').fetchall())
        wrong = {name for name in truth.keys() | got.keys() if truth.get(name) != got.get(name)}
        result = session.sql(f'SELECT key, value AS "rows" FROM "{COUNTS}" ORDER BY 2 DESC LIMIT 10')
        show.rows(f"rows per {key}" if key else "rows", result.columns, result.fetchall())
        show.line(
            f"checked {len(truth):,} counts against the file: " + ("all equal" if not wrong else f"{len(wrong)} MISMATCHES")
        )
        verdict = {
            "ok": not wrong,
            "records": records,
            "mismatches": len(wrong),
            "seconds": round(time.monotonic() - started, 2),
            "records_per_second": round(records / seconds) if seconds else None,
        }
        if hold is not None and not wrong:
            app.resume()
            hold(app, verdict, _query_instructions(session, topic, own))
        app.stop()
    shutil.rmtree(own, ignore_errors=True)
    return verdict


def _query_instructions(session: Session, topic: str, own: Path) -> str:
    """Return instructions for queries from another process."""
    return f"""\
  import kstreams_repl as ks
  from kstreams_repl.demo import own_input
  session = ks.connect("{session.bootstrap_servers}", directory="{own / "session"}")
  session.sql('SELECT * FROM "{topic}" LIMIT 5')
  session.produce("{topic}", [{{"more": "rows"}}])
  app = session.attach("{APPLICATION}", own_input.build("{topic}"))
  app.sql("{COUNTS}")"""
