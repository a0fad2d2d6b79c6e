"""`./kstreams bench nexmark`: the queries of the Nexmark benchmark deployed on Spark; optionally compared with their twins on Kafka
Streams, over the same topics (`query_cases`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from kstreams_repl.engine.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from workshop.bench.rig import nexmark_events, nexmark_values
from workshop.bench.rig.comparison import Case, compare, comparison_options
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.nexmark_queries import OWN, QUERIES
from workshop.bench.rig.nexmark_values import JSON, Values
from workshop.bench.rig.query_cases import QueryCase, query_case
from workshop.bench.rig.testbed import Testbed
from workshop.bench.rig.workloads import Row

BENCH = "nexmark"


@click.command(help="Nexmark's queries deployed on Spark: records/s, also per core; --peer kafka-streams also runs their twins on the JVM.")
@click.option("--query", "names", multiple=True, type=click.Choice(list(QUERIES)), help="Only these; default: all.")
@click.option("--events", type=click.IntRange(50), default=1_000_000, show_default=True, help="q3, q8: ten times, our own: twice.")
@click.option(
    "--values", "format", type=click.Choice(nexmark_values.FORMATS), default=JSON, show_default=True, help="Format of the topics' values."
)
@click.option("--guarantee", type=click.Choice([EXACTLY_ONCE_V2, AT_LEAST_ONCE]), default=EXACTLY_ONCE_V2, show_default=True)
@comparison_options(runs=1)
def main(
    names: tuple[str, ...],
    events: int,
    format: str,
    guarantee: str,
    instances: int,
    commit_ms: int,
    max_seconds: int,
    **comparison: Any,
) -> None:
    """Print a line after each run, and one per query with the ratio. Exit status 1 when outputs differ, or cannot be compared."""
    chosen = names or tuple(name for name, query in QUERIES.items() if format == JSON or query.reads != OWN)
    if format != JSON and (others := [name for name in chosen if QUERIES[name].reads == OWN]):
        raise click.BadParameter(f"{', '.join(others)} read a topic of JSON values", param_hint="--values")
    settings = Settings(guarantee, instances, commit_ms, max_seconds=max_seconds)

    def cases(testbed: Testbed) -> Iterator[Case]:
        with nexmark_values.opened(format, testbed) as (values, shared):
            for name in chosen:
                yield case_of(shared, settings, name, events * QUERIES[name].scale, values)

    compare(BENCH, cases, repeat="--query", **comparison)


def case_of(testbed: Testbed, settings: Settings, name: str, events: int, values: Values) -> QueryCase:
    kept_in = "" if values.format == JSON else f"{values.format}-"
    prefix = f"nexmark-{kept_in}{events}"
    first_ms = int(time.time() * 1000) // 60_000 * 60_000 - events // nexmark_events.EVENTS_PER_MS

    def rows(kind: str) -> tuple[int, Iterable[Row]]:
        made = nexmark_events.rows_of(kind, events, first_ms=first_ms)
        return nexmark_events.records_of(kind, events), values.encoded(kind, f"{prefix}-{kind}", made)

    options = {"values": values.format, "registry": values.registry}
    label = name if values.format == JSON else f"{name} {values.format}"
    return query_case(
        testbed, settings, BENCH, name, QUERIES[name], prefix, rows, values=values, twin_options=options, label=label
    )
