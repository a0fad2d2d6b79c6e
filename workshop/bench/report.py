"""`./kstreams bench report FILE...`: render the measured lines of one or more files as docs/reference/benchmarks.md.

A file holds what benchmarks printed. A line with the name of a benchmark and a `note` puts this text below the benchmark's table.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.json_output import Line
from workshop.bench.targets import judged

TITLE = "# Benchmarks"
_RATIO, _PEER = " ratio", " kafka-streams"
_INTRODUCTION = """Generated from the lines in `docs/measurements/`: each command below prints one JSON line per measurement, and the report
renders them as tables.

    ./kstreams bench throughput --peer kafka-streams > docs/measurements/throughput.jsonl
    ./kstreams bench report docs/measurements/*.jsonl --output docs/reference/benchmarks.md

The figures are of the machine and time named below each heading: compare only within a table. Broker, Spark, workers and the process
that sends or reads share the same processors. *Load*: the machine's one-minute load before the command began.

*Target*: the bound for the value (the median, if there are several runs) in the line's unit, or for the named field; *met*: whether
all bounds hold. With `--strict` the exit status is 1 if a target is missed."""
_METHODS: Mapping[str, tuple[str, str]] = {
    "throughput": (
        "Throughput",
        """`./kstreams bench throughput`: workloads deployed on Spark, all records on the topic before the start (4 partitions,
lz4). The clock starts when the first instance begins to process its first records and stops with the commit after which
every record is committed; epochs end and begin meanwhile. Value: median of the runs. Memory: the largest sum of resident sets
of driver, JVM, workers (including idle ones of earlier cases) and broker.

The peer is Kafka Streams 4.3.1 on the JVM (`workshop/bench/peers/StreamsPeer.java`), in the same run, alternating
with ours: same broker, same topic, same commit interval, linger (50 ms) and compression (lz4), as many threads
as we have instances. Its clock covers the records *processed*, so its last commit is not in it, and it includes the
warm-up of its JVM; its other settings are its defaults, and so are ours. *Same output*: after the last run the last
value of each key (count, sum, window) or all records in any order (stateless, join) were read from both output
topics, committed records only, and were equal; NO also if the peer did not finish, so that nothing was compared.
The target is one for the ratio.""",
    ),
    "nexmark": (
        "Nexmark",
        """`./kstreams bench nexmark` (*avro*, *protobuf*: with `--values`), exactly once, both systems over the same topics
([the queries](nexmark.md)); ours / Kafka Streams.
*Records*: on the topics that the query reads. *Peak MB*: driver, Spark's JVM, workers and broker / the peer's JVM alone. *State MB*: what
the local stores occupy on the disk at the end.""",
    ),
    "theodolite": (
        "Theodolite and ShuffleBench",
        """`./kstreams bench theodolite`, exactly once, all records on the topic before the start ([the queries](theodolite.md));
columns as for Nexmark.""",
    ),
    "lag-trend": (
        "Loads held",
        """`./kstreams bench theodolite --load R --doublings N`: records arrive at R per second. Value: the slope of the straight line
fitted to the lag (what the group has not committed of input and repartition topics), one sample a second after a warm-up. *Held*: the
slope is *below* a hundredth of the load; empty if the producer *reached* less than 98 % of it. *Load held*: the largest of the loads
that were tried, in ascending order, until one was *not held*; *limited by*: the lag or the producer, empty if all were held.""",
    ),
    "python-peers": (
        "Compared with other Python stream processors",
        """`./kstreams bench python-peers --python PATH`: Quix Streams, Bytewax and Faust on the same topics, as many processes as
we have instances, each with its own defaults for commits (exactly once: 100 ms, as ours). A peer's clock runs from the
first record processed to the last one processed within its time limit; ours to the last commit. Bytewax
keeps its state in memory without recovery; Faust is at least once. Their outputs are not compared. *Ratio*: the slower
of our two guarantees to the fastest of all peers.""",
    ),
    "engine": (
        "Engine alone",
        """`./kstreams bench engine`: one thread, in-memory stores, serdes, record queues, changelog and commits included; no
Kafka, no Spark. *avro*, *protobuf* (`--case`): values of four fields are read, one field is changed, and they are written. *Serde alone*:
the same in a plain loop; *JVM* (`--peer kafka-streams`): that loop in Java, after a warm-up, which writes the same bytes
(`workshop/bench/peers/SchemaPeer.java`).

With `--case functions --case sql --case map_batches`: the same filter and projection of JSON objects by Python functions, by `sql` and
by `map_batches`, which read three fields of them, of 4, and with `--fields 20` of 20. With `--case groups-functions --case groups-sql
--keys 100 --keys 10000 --keys 100000`: the same aggregate by key (count, sum, max) by a function and by `sql` with GROUP BY. Runs
take turns; *to functions*: median of the ratios of records/s to those of the functions' run of the same turn.""",
    ),
    "latency": (
        "Latency",
        """`./kstreams bench latency`, exactly once: from the call that sends a record to its arrival at a `read_committed`
consumer in the same process. Epoch turns: epochs of 2 s. *Turns*: the number of epochs that ended meanwhile, by the numbers of Spark's
micro-batches; the case continues until the number in its name is reached (for at most twice its time). The first second is
excluded.""",
    ),
    "control": (
        "Control",
        """`./kstreams bench control`: seconds that the caller waits. *First record*: until a committed record of the application
has reached a `read_committed` consumer. Warm session: another application was deployed and stopped before. *Edit*: from the
call of `app.edit` with one changed function, while 200 records per second arrive, until a record that passed the
new code. *After ... s*: the pause before the resume. Every ten seconds Spark ends the workers that were idle for more than a minute, so a
worker may live for 70 s. *New processes*: the number of instances that run in another process than before the pause, the largest of
all runs; after a minute's pause all of them, if Spark had ended the workers.""",
    ),
    "first-result": (
        "The first result",
        """`./kstreams bench first-result`: the README's first topology in a Python process that has just started, with its own embedded
broker in an empty directory, after `./kstreams prepare`. Both cases end when all input is processed and committed.""",
    ),
    "many-applications": (
        "Several applications in one session",
        """`./kstreams bench many-applications`: eight counts of two instances each (exactly once), deployed one after the other in a
session whose Spark does not run yet. *All run*: until every application has committed all records that were waiting on its input. *Idle
processor*: processor time of driver, JVM, Python daemons and workers while no record arrives; the broker's is listed
separately. *Memory*: proportional set sizes, so pages that forked workers share count once. *Pool*:
`repl.worker.pool`; in a shared pool Spark gives an epoch any idle worker.""",
    ),
    "notebook": (
        "Waiting times in a notebook",
        """`./kstreams bench notebook`: one application with a store of many keys (exactly once). *Edit to first record*:
from the call of `app.edit` with one changed function, while 200 records per second arrive, until a committed record that
passed the new code has reached a `read_committed` consumer; at the end the store is checked to be intact.
*Values undeployed*: `session.values` at the count of a topology that is not deployed, over the topic that filled the store.
*SQL over a store*: count, sum and max of all rows. *Picture update*: marks of every node of a running application at
`metrics.recording.level=DEBUG`, and the drawing if its shapes changed (the kernel's part).""",
    ),
    "queries": (
        "Queries of state",
        """`./kstreams bench queries --peer kafka-streams`: a count with one row per key (exactly once, two instances) and its server.
*HTTP*: random keys over 8 connections (multi-get: 4, 1,000 keys each), each with one request open, from another process, whose use
of processors is in *load cores*: well below 1, it is not the bottleneck. *Per core*: answers, or keys, per second of processor time of
the server. The peer is Kafka Streams' own store behind the JDK's HTTP server (`workshop/bench/peers/QueriesPeer.java`), asked by
the same load. *Subscription*: 200 records per second; *commit to change*: from the commit of the task's store, milliseconds after the
broker's, to the event at the subscriber; *record to change*: from the call that sends the record, the wait for the commit included.
*Processing*: records per second over the middle four fifths of the records that wait after a pause, the best of the runs with and
without queries, in turn; *queries on processors of their own*: the server and the load have half of the processors, application and
broker the other half, in both runs.""",
    ),
    "sql": (
        "SQL over a topic",
        """`./kstreams bench sql`: queries over a topic of 4 partitions with JSON values of about 140 bytes, one record per second of
event time, from the call of `session.sql` until the number of rows is known. *From an offset*, *from a time*: the last
percent of one partition, of all.""",
    ),
    "batch": (
        "Bounded runs",
        """`./kstreams bench batch`, exactly once: the same count over the same topic as a stream (`commit.interval.ms` 100, its
default) and as a bounded run (2,000, its default there), from the first record processed to the last one committed; and from the
call of `run_batch` to its return, next to Spark's own `groupBy("key").count()` with `Trigger.AvailableNow`, in the same warm
session, alternating. Spark's Kafka connector is not part of its Python package: its query reads the same records from files and
appends its counts to Parquet files, so it is spared fetching from Kafka, transactions, changelogs and an output topic. From Parquet
it reads nothing but the column of keys; from JSON lines it reads whole records, as from a topic. The last counts are compared.
*Empty run*: nothing new since the last run.""",
    ),
    "tables": (
        "Tables of files",
        """`./kstreams bench tables`, exactly once: a topic of small JSON (4 columns, about 60 bytes) to an unpartitioned table, from
the first record processed to the return of `run_batch`: all rows are in the table then. Plain Spark parses the same texts from
Parquet files and writes Parquet; it is spared Kafka, and repeats or loses rows after a crash.""",
    ),
    "async": (
        "Asynchronous calls",
        """`./kstreams bench async --peer parallel-consumer`: `map_values_async` with an `async def`, in key order, one partition, one
instance, exactly once with a commit every 100 ms; the output has each record's result exactly once, or the run is an error. The
clock runs from the beginning of the first call to the end of the last. *Of ideal*: against a machine on which nothing costs
anything. *Event loop alone*: the same function in an asyncio loop that does nothing else, neither order nor Kafka: its timers
have a resolution of 1 ms, so waits of 2.5 ms take longer, and no Python reaches the ideal of the table. The table is parallel-
consumer's own: 10,000 records, random waits between 0 and 5 ms, 100 in flight. The peer (confluent's parallel-consumer on the
JVM, at least once, no output) has as many threads.""",
    ),
    "restore": (
        "Restore",
        """`./kstreams bench restore`: an empty key-value store restored from its changelog, per instance, according to its reports.""",
    ),
    "memory": (
        "Memory over time",
        """`./kstreams bench memory`: an application over uniform keys at an even pace, exactly once; each process's memory once per
second after a warm-up. Value: the slope of the line fitted to the samples of *private* memory (without file pages, so
without those of memory-mapped stores), over the whole and over the second half of the time. `peak rss` is all resident memory. A Java
heap grows until it is collected.""",
    ),
    "state-growth": (
        "Growth of state",
        """`./kstreams bench state-growth`: a count under exactly once over uniform keys, measured once every key is in the store
and a warm-up is over. *Worker private*: memory of the largest worker, without file pages such as those of the memory-mapped store,
which the system reclaims when it needs them; *peak rss* is all resident memory, including the broker (the peer's: its JVM alone). The
peer runs as above; its clock starts after the same number of records.
*kill -9 to ready*: all workers are killed at once while 20,000 records per second arrive, until every instance runs again;
`restored` is the number of changelog records that they read; if it reaches an instance's share of the keys, its store was deleted, and the
benchmark fails.
*Peer ratio*: the peer's *largest to smallest*; the target is that ours is below it. *Kafka clients alone* (`--clients`): as many processes
as instances send two records for each one read, in transactions of the same interval, and do nothing else; *times smallest*: their
cost relative to a count of the fewest keys.""",
    ),
}
_SKIPPED = ("bench", "case", "value", "unit")
_NOTE = {"bench", "note"}
_NEXMARK_MEAN = 2.2
_JUDGED = ("target", "met")


@click.command(help="Render measured lines as docs/reference/benchmarks.md: ./kstreams bench report FILE... > docs/reference/benchmarks.md")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of printing.")
def main(files: tuple[Path, ...], output: Path | None) -> None:
    """Render measurements; later lines of the same bench and case replace earlier ones."""
    page = render(read_lines(files))
    if output is None:
        click.echo(page, nl=False)
    else:
        output.write_text(page, encoding="utf-8")


def read_lines(files: Iterable[Path]) -> list[Line]:
    """Return all measurements and notes of the files, in order; other lines (progress, warnings) are skipped.

    Raises:
        KStreamsError: a file has no measurement.
    """
    found: list[Line] = []
    for file in files:
        before = len(found)
        for text in file.read_text(encoding="utf-8").splitlines():
            if text.startswith("{"):
                line = json.loads(text)
                if all(name in line for name in _SKIPPED) or set(line) == _NOTE:
                    found.append(line)
        if len(found) == before:
            raise KStreamsError(f"{file} contains no measurements", hint="./kstreams bench NAME > FILE", path=str(file))
    return found


@dataclass(slots=True)
class _Section:
    """What was measured by one benchmark: its lines by case, the machine of each, and notes."""

    cases: dict[str, Line] = field(default_factory=dict)
    machines: dict[str, Line] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def render(measured: Iterable[Line]) -> str:
    """Return the page."""
    sections: dict[str, _Section] = defaultdict(_Section)
    machine: Line | None = None
    for line in measured:
        if line["bench"] == "machine":
            machine = line
            continue
        section = sections[line["bench"]]
        if "note" in line:
            section.notes.append(line["note"])
            continue
        section.cases[line["case"]] = {name: value for name, value in line.items() if name not in _JUDGED} | judged(line)
        if machine is not None:
            section.machines[line["case"]] = machine
    parts = [TITLE, _INTRODUCTION]
    for bench in [*(name for name in _METHODS if name in sections), *(name for name in sections if name not in _METHODS)]:
        title, method = _METHODS.get(bench, (bench, ""))
        section = sections[bench]
        machines = _machines(section.machines.values())
        table = _TABLES.get(bench, _table)(section.cases) if section.cases else ""
        parts += [text for text in (f"## {title}", method, machines, table, *section.notes) if text]
    return "\n\n".join(parts) + "\n"


def _machines(machines: Iterable[Line]) -> str:
    """Return the machines of a section, each with the times at which commands began on it."""
    times: dict[str, dict[str, None]] = defaultdict(dict)
    for line in machines:
        versions = ", ".join(f"{name} {version}" for name, version in line.get("versions", {}).items())
        where = f"{line['case']}, {line['value']} cores, {line['memory_gb']} GB, {line['system']}" + (f"; {versions}" if versions else "")
        times[where][line["at"] + (f" (load {line['load'][0]:.2f})" if "load" in line else "")] = None
    return "  \n".join(f"Measured {', '.join(when)}: {where}." for where, when in times.items())


def _comparison(cases: Mapping[str, Line]) -> str:
    """Return a table of this package and the peer, one row per workload and guarantee."""
    rows = []
    for case, line in cases.items():
        if case.endswith((_RATIO, _PEER)):
            continue
        peer, ratio = cases.get(case + _PEER), cases.get(case + _RATIO)
        same = None if ratio is None else ratio.get("same_output")
        rows.append(
            [
                case,
                _number(line["records"]),
                line["runs"],
                _with_spread(line),
                "" if peer is None else _with_spread(peer),
                "" if ratio is None else f"{ratio['value']:.2f}",
                {True: "yes", False: "NO", None: ""}[same],
                *([""] * 2 if ratio is None else [ratio.get("target", ""), _verdict(ratio.get("met"))]),
                f"{line['cpu_seconds']:g}",
                "" if peer is None else f"{peer['cpu_seconds']:g}",
                _number(line["peak_rss_mb"]),
                "" if peer is None else _number(peer["peak_rss_mb"]),
            ]
        )
    head = ["case", "records", "runs", "records/s (min-max)", "Kafka Streams (min-max)", "ratio", "same output"]
    head += ["target", "met", "CPU s", "its CPU s", "peak MB, broker too", "its MB alone"]
    return _markdown(head, rows)


def _nexmark(cases: Mapping[str, Line]) -> str:
    """Return the table of queries, and the geometric mean of the ratios of Nexmark's own."""
    ratios = [line["value"] for case, line in cases.items() if re.fullmatch(rf"q\d+{_RATIO}", case)]
    if not ratios:
        return _queries(cases)
    mean = statistics.geometric_mean(ratios)
    verdict = "met" if mean >= _NEXMARK_MEAN else "NOT met"
    return f"{_queries(cases)}\n\nGeometric mean of the ratios of q0 to q22: {mean:.2f} (target >= {_NEXMARK_MEAN}, {verdict})."


def _queries(cases: Mapping[str, Line]) -> str:
    """Return a table of queries: this package / the peer in each column."""
    rows = []
    for case, line in cases.items():
        if case.endswith((_RATIO, _PEER)):
            continue
        peer, ratio = cases.get(case + _PEER, {}), cases.get(case + _RATIO, {})
        pairs = [
            " / ".join(_number(found[name]) for found in (line, peer) if found.get(name) is not None)
            for name in ("value", "per_core_second", "peak_rss_mb", "state_mb")
        ]
        verdict = [_verdict(ratio.get("same_output")), ratio.get("target", ""), _verdict(ratio.get("met"))]
        rows.append([f"{case}: {line['what']}", _number(line["records"]), pairs[0], ratio.get("value", ""), *verdict, *pairs[1:]])
    head = ["query", "records", "records/s", "ratio", "same output", "target", "met", "per core-second", "peak MB", "state MB"]
    return _markdown(head, rows)


def _with_spread(line: Line) -> str:
    if line.get("runs", 1) < 2:
        return _number(line["value"])
    return f"{_number(line['value'])} ({_number(line['min'])}-{_number(line['max'])})"


def _table(cases: Mapping[str, Line]) -> str:
    """Return a table: case, value, unit, target and verdict if any line has them, and all other fields that any line has."""
    lines = list(cases.values())
    judged_first = [name for name in _JUDGED if any(name in line for line in lines)]
    names = dict.fromkeys([*judged_first, *(name for line in lines for name in line if name not in _SKIPPED)])
    rows = [[line["case"], _number(line["value"]), line["unit"], *(_value(name, line.get(name, "")) for name in names)] for line in lines]
    return _markdown(["case", "value", "unit", *(name.replace("_", " ") for name in names)], rows)


_TABLES: Mapping[str, Callable[[Mapping[str, Line]], str]] = {"throughput": _comparison, "nexmark": _nexmark, "theodolite": _queries}


def _value(name: str, value: Any) -> str:
    return _verdict(value) if name in ("met", "held") else _number(value)


def _verdict(met: Any) -> str:
    """Return the verdict; a missed target is in capitals, so that it is noticed."""
    return {True: "yes", False: "NO"}.get(met, "")


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ", ".join(map(_number, value)) if isinstance(value, list) else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def _markdown(head: list[str], rows: list[list[Any]]) -> str:
    aligned = ["---", *("---:" for _ in head[1:])]
    cells = [head, aligned, *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in cells)
