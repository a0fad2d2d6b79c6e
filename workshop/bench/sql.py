"""How long a query over a large topic takes: a count, conditions on offset and time, a LIMIT, one column, and a mistyped column."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from kstreams_repl.system.errors import SqlError
from workshop.bench.rig import json_output
from workshop.bench.rig.testbed import open_testbed, where
from workshop.bench.rig.workloads import Row

BENCH = "sql"
START_MS = 1_356_998_400_000
"""2013-01-01; one record per second from then on."""
CASES = {
    "count(*)": "SELECT count(*) FROM {topic}",
    "one partition, from an offset": 'SELECT count(*), avg(price) FROM {topic} WHERE partition = 1 AND "offset" >= {late}',
    "from a time": "SELECT count(*), avg(price) FROM {topic} WHERE timestamp >= make_timestamp_ms({last_percent})",
    "LIMIT 20": "SELECT key, price FROM {topic} LIMIT 20",
    "LIMIT 20 with a condition": "SELECT key, price FROM {topic} WHERE number % 100 = 7 LIMIT 20",
    "one field": "SELECT avg(price) FROM {topic}",
    "all columns": "SELECT * FROM {topic}",
    "a mistyped column": "SELECT avg(prise) FROM {topic}",
}


@click.command(help="Seconds of queries over a large topic; medians.")
@click.option("--records", type=click.IntRange(1000), default=600_000, show_default=True, help="Records of the topic.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@where
def main(records: int, runs: int, bootstrap: str | None, directory: Path | None) -> None:
    """Print one line per query."""
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as bed:
        topic = f"bench-sql-{records}"
        bed.fill(topic, records, _rows(records))
        names = {"topic": f'"{topic}"', "late": records // 4 * 99 // 100, "last_percent": START_MS + records * 990}
        for case, query in CASES.items():
            taken = []
            for _ in range(runs):
                started = time.perf_counter()
                with suppress(SqlError):  # the mistyped column
                    bed.session.sql(query.format(**names)).count()
                taken.append(time.perf_counter() - started)
            spread = json_output.spread(taken, digits=3)
            json_output.emit(BENCH, case, json_output.median(taken, digits=3), "s", **spread, records=records)


def _rows(records: int) -> Iterator[Row]:
    for number in range(records):
        value = b'{"number": %d, "price": %d.5, "customer": "customer-%d", "note": "%s"}' % (number, number % 997, number % 5000, b"x" * 60)
        yield b"order-%d" % (number % 1000), value, START_MS + number * 1000
