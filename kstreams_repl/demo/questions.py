"""The demo's queries, run twice: on the running application by SQL, and on the source files by DuckDB alone.

`mismatches` compares the results row by row, without a tolerance, because all sums are of whole minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kstreams_repl.demo.topology import HEAVY_DELAY_MINUTES

Rows = list[tuple[object, ...]]

ASKED_OF_APPLICATION = {
    "delay per airline": """
        SELECT key AS carrier, value.airline AS airline, CAST(value.flights AS BIGINT) AS flights,
               CAST(value.delay_minutes AS BIGINT) AS delay_minutes, CAST(value.mean_delay AS DOUBLE) AS mean_delay
        FROM "airline-delays" ORDER BY carrier""",
    "flights per origin and day": """
        SELECT key AS origin, CAST(epoch_ms(window_start) AS BIGINT) AS day_ms, CAST(value AS BIGINT) AS flights
        FROM "flights-per-day" ORDER BY origin, day_ms""",
    "heavily delayed flights": """
        SELECT key AS carrier, CAST(value.flight AS BIGINT) AS flight, value.origin AS origin,
               CAST(value.scheduled_ms AS BIGINT) AS scheduled_ms,
               CAST(value.dep_delay AS BIGINT) AS dep_delay, value.airline AS airline
        FROM "delayed-flights" ORDER BY ALL""",
}

ASKED_OF_FILES = {
    "delay per airline": """
        SELECT carrier, name, count(*), CAST(sum(dep_delay) AS BIGINT), sum(dep_delay)::DOUBLE / count(*)
        FROM flights JOIN airlines USING (carrier) WHERE dep_time IS NOT NULL GROUP BY carrier, name ORDER BY carrier""",
    "flights per origin and day": """
        SELECT origin, CAST(epoch_ms(date_trunc('day', make_timestamp_ms(scheduled_ms))) AS BIGINT) AS day_ms, count(*)
        FROM flights JOIN airlines USING (carrier) WHERE dep_time IS NOT NULL GROUP BY ALL ORDER BY origin, day_ms""",
    "heavily delayed flights": f"""
        SELECT carrier, CAST(flight AS BIGINT), origin, CAST(scheduled_ms AS BIGINT), CAST(dep_delay AS BIGINT), name
        FROM flights JOIN airlines USING (carrier) WHERE dep_time IS NOT NULL AND dep_delay > {HEAVY_DELAY_MINUTES} ORDER BY ALL""",
}


def ask_files(files: Mapping[str, Path]) -> dict[str, Rows]:
    """Return the results of the same queries on the source files."""
    import duckdb

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET enable_progress_bar = false")
        for name in ("flights", "airlines"):
            path = str(files[name]).replace("'", "''")
            extra = ", epoch_ms(time_hour) + minute * 60000 AS scheduled_ms" if name == "flights" else ""
            database.execute(f"CREATE VIEW {name} AS SELECT *{extra} FROM read_csv('{path}', nullstr=['NA', ''])")
        return {question: database.execute(query).fetchall() for question, query in ASKED_OF_FILES.items()}


def ask_application(sql: Callable[[str], Rows]) -> dict[str, Rows]:
    """Return the results of the queries on the application's stores and topics."""
    return {question: sql(query) for question, query in ASKED_OF_APPLICATION.items()}


def mismatches(answers: Mapping[str, Rows], truth: Mapping[str, Rows]) -> list[str]:
    """Return one line per row that is wrong, missing or unexpected."""
    found = []
    for question, want in truth.items():
        got = answers.get(question, [])
        wrong = set(got) ^ set(want)
        found += [f"{question}: {'unexpected' if row in set(got) else 'missing'} {row}" for row in sorted(wrong, key=str)]
        if not wrong and len(got) != len(want):
            found.append(f"{question}: {len(got)} rows instead of {len(want)}")
    return found
