"""`./kstreams bench report FILE...`: render the measured lines of one or more files as docs/reference/benchmarks.md.

A file holds what benchmarks printed. A line with the name of a benchmark and a `note` puts this text below the benchmark's table.
"""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig.deployed import DEFAULTS
from workshop.bench.rig.json_output import Line
from workshop.bench.rig.record_schemas import FORMATS
from workshop.bench.rig.targets import judged
from workshop.bench.rig.timeline import STEPS

TITLE = "# Benchmarks"
_RATIO, _PEER, _CORES = " ratio", " kafka-streams", "_cores"
_INTRODUCTION = """Each command below prints one JSON line per measurement. This page renders the lines of `docs/measurements/`, which
have more fields (numbers of records, processor time, lag, percentiles) than the tables show.

    ./kstreams bench NAME --peer kafka-streams > docs/measurements/NAME.jsonl
    ./kstreams bench report docs/measurements/*.jsonl \\
        --output docs/reference/benchmarks.md

Compare only within a table: broker, Spark, workers and the process that sends or reads share two cores. *Load*: the machine's
one-minute load before the command began. *(min-max)*: of the runs, whose median is the value. *Target*: the bound for the value, or
for the named field, and whether it is met (`--strict`: the exit status is 1 if one is missed).

The peer, unless a table names another, is Kafka Streams 4.3.1 on the JVM (`workshop/bench/peers/`): same broker (Kafka 4.3.1
until 2026-11-26, 4.2.2 since), topics, commit
interval, linger (50 ms) and compression (lz4), as many threads as we have instances, else its defaults; runs alternate.
*Defaults* (`--clients defaults`): each system's own linger and compression, 100 ms and none for both; ours at least once 10 ms."""
_METHODS: Mapping[str, tuple[str, str]] = {
    "throughput": (
        "Throughput",
        """`./kstreams bench throughput`: workloads deployed on Spark, all records (ten million by default) on the topic before the start (4
partitions). From the first record processed to the commit of the last, epochs end and begin meanwhile; the peer's time includes the
warm-up of its JVM and excludes its last commit. Ours / Kafka Streams. *Peak MB*: the largest sum of resident sets of driver, JVM,
workers and broker / the peer's JVM alone. *Same output*: the committed output of both was read and was equal; NO also if the peer
did not finish.""",
    ),
    "nexmark": (
        "Nexmark",
        """`./kstreams bench nexmark` (*avro*, *protobuf*: with `--values`), exactly once, both systems over the same topics
([the queries](nexmark.md)); ours / Kafka Streams, JSON values except in the last two columns. *Defaults*: each system's own linger and
compression, 100 ms and none, medians of three runs in turns; else 50 ms and lz4 for both (the note says which are of one run).
*State MB*: local stores on disk at the end.""",
    ),
    "theodolite": (
        "Theodolite and ShuffleBench",
        """`./kstreams bench theodolite`, exactly once, all records on the topic before the start ([the queries](theodolite.md));
columns as for Nexmark.""",
    ),
    "lag-trend": (
        "Loads held",
        """`./kstreams bench theodolite --load R --doublings N`, exactly once: the largest of the tried loads, in records/s, whose lag
does not grow ([criterion](theodolite.md)). *Next*: the load that was not held, and whether the lag or the producer was the limit; empty
if all were held.""",
    ),
    "scale": (
        "More instances",
        """`./kstreams bench scale --peer kafka-streams`, exactly once: queries of Nexmark's benchmark with 1, 2, 4, ... instances, ours /
as many threads of Kafka Streams. *Efficiency*: the rate divided by that of one instance times their number. *Busy*: the poll loops and
stream threads; *no processor*: the share of time in which they could run and had none, because broker, driver or others had it;
*without that*: records/s without this time, an estimate for a machine with free processors. *Processors*: kept busy by each part.""",
    ),
    "python-peers": (
        "Compared with other Python stream processors",
        """`./kstreams bench python-peers --python PATH`, records/s: Quix Streams, Bytewax and Faust on the same topics, as many processes
as we have instances, each with its defaults for commits. A peer's time runs to the last record processed, ours to the last commit.
Bytewax keeps its state in memory without recovery. Outputs are not compared. *Ratio*: the slower of our two guarantees to the fastest
of all peers.""",
    ),
    "engine": (
        "Engine alone",
        """`./kstreams bench engine`: one thread, in-memory stores, serdes, changelog and commits included; no Kafka, no Spark. *avro*,
*protobuf* (`--case`): four fields are read, one is changed, all are written; *serde alone*: in a plain loop, in Python and
on the JVM (`--peer kafka-streams`).

*functions*, *sql*, *map_batches*: the same filter and projection of JSON objects of 4 and of 20 fields (`--fields`).
*groups*: the same aggregate by key by a function and by `sql` with GROUP BY (`--keys`). *to functions*: median of the ratios to
the functions' run of the same turn.""",
    ),
    "costs": (
        "Cost per record",
        """`./kstreams bench costs`: Nexmark's queries deployed with one instance, exactly once, default clients:
microseconds of processor time per record of the input. The polling thread by samples of its stacks (py-spy): *consume* with the
conversion to columns, *decode* and *encode* (serdes), *user* (functions), *engine* (loops and operators), *store* (caches, overlay,
LMDB), *produce* (calls of the client), *commit*. *Librdkafka*: its own threads. *Floor*: a loop that does only this, for
reading the input once and writing the output once; repartition topics and changelogs are not in it.""",
    ),
    "latency": (
        "Latency",
        """`./kstreams bench latency --peer kafka-streams --timeline`, exactly once unless a row says otherwise: from the call that sends a
record to its arrival at a `read_committed` consumer in the same process, in ms. The first second is excluded (of the peer: five, at the
fast pace). *Epoch turns*: epochs of 2 s, that many of them. *A bare client's transaction*, the floor: begin, produce, flush, offsets,
commit, by confluent-kafka alone, to the same reader; *of floor*: p50 as a multiple of it; of at least once: of a bare client's record, of
which every application needs two. *Of peer*: p50 (at the fast pace p99) as a multiple of Kafka Streams' with the same commit interval and
no linger.""",
    ),
    "control": (
        "Control",
        """`./kstreams bench control`: the caller's wait, in a session that has deployed before. *First record*: until a committed record
has reached a `read_committed` consumer. *Edit*: one changed function, 200 records per second arriving, until a record passed the
new code. *After 75 s*: Spark ends workers idle for more than a minute. *New processes*: instances in another process than before.""",
    ),
    "first-result": (
        "The first result",
        """`./kstreams bench first-result`: the README's first topology in a Python process that has just started, with its own embedded
broker in an empty directory, after `./kstreams prepare`, until all input is processed and committed.""",
    ),
    "many-applications": (
        "Several applications in one session",
        """`./kstreams bench many-applications`: eight counts of two instances each (exactly once), deployed one after the other before
Spark runs. *All run*: until all have committed what was waiting. *Idle processor*: of driver, JVM and workers, the broker's apart, while no
record arrives. *Memory*: proportional set sizes, so that shared pages count once. *Pool*: `repl.worker.pool`.""",
    ),
    "notebook": (
        "Waiting times in a notebook",
        """`./kstreams bench notebook`: one application with a store of many keys (exactly once). *Edit* as above, and the store stays
intact. *Values undeployed*: `session.values` at the count of a topology that is not deployed. *SQL over a store*:
count, sum and max of all rows. *Picture update*: all nodes of a running application at `metrics.recording.level=DEBUG`.""",
    ),
    "past": (
        "The past",
        """`./kstreams bench past`: a count (exactly once, two instances, a snapshot every 5 s, 20 kept) whose records are all
processed; one row is asked for as of a commit, without a copy that an earlier question made. *Causes*: `app.why` for other keys
and records each time. *Live*: seconds for five million more records, in turns with no question and with three (as of, debug, why).""",
    ),
    "fork": (
        "Forks",
        """`./kstreams bench fork --rate 40000`: a count (exactly once, one instance) to which that many records/s come; *full load*
(`--rate 0`): they are all there, and the application and the broker keep both processors busy. *Until the fork runs*: from the call of
`app.fork` until its instance has its state and processes. *Without output*: the longest gap between two records at a
`read_committed` consumer while the fork is promoted, at 400 records/s. *Of before*: the application's own speed, relative
to that before the fork.""",
    ),
    "queries": (
        "Queries of state",
        """`./kstreams bench queries --peer kafka-streams`: a count with one row per key (exactly once, two instances) and its server.
*HTTP*: random keys over 8 connections (multi-get: 4, 1,000 keys each) from another process; the peer is Kafka Streams' own store behind
the JDK's HTTP server. *Per core*: answers, or keys, per second of the server's processor time. *Subscription*, 200 records per second:
until the event at the subscriber. *Processing*: records/s with and without queries, in turn; *processors of their own*: server and load
have half of the processors; *without load*: the loss if the processors that the load used had been the application's; *cores* and *us per
record* (processor time of workers, Spark's JVM and broker): without, with queries.""",
    ),
    "sql": (
        "SQL over a topic",
        """`./kstreams bench sql`: queries over a topic of 4 partitions with JSON values of about 140 bytes, one record per second of
event time, from the call of `session.sql` until the number of rows is known. *From an offset*, *from a time*: the last
percent of one partition, of all.""",
    ),
    "batch": (
        "Bounded runs",
        """`./kstreams bench batch`, exactly once: the same count as a stream (`commit.interval.ms` 100) and as a bounded run (2,000, its
default), from the first record processed to the last committed; and from the call of `run_batch` to its return, next to Spark's own
`groupBy("key").count()` with `Trigger.AvailableNow` in the same warm session, which reads files and appends to Parquet files: it is
spared Kafka, transactions and changelogs. The last counts are compared.
*Empty run*: nothing new since the last run.""",
    ),
    "tables": (
        "Tables of files",
        """`./kstreams bench tables`, exactly once: a topic of small JSON (4 columns, about 60 bytes) to an unpartitioned table, from
the first record processed to the return of `run_batch`, when all rows are in the table. Plain Spark parses the same texts from
Parquet files and writes Parquet; it is spared Kafka, and repeats or loses rows after a crash.""",
    ),
    "async": (
        "Asynchronous calls",
        """`./kstreams bench async --peer parallel-consumer`: `map_values_async` in key order, one partition, one instance, exactly once
with a commit every 100 ms; each result is in the output exactly once, or the run is an error. From the first call to the end of the last.
*Of ideal*: a machine on which nothing costs anything. *Event loop alone*: asyncio with neither order nor Kafka. *Table*:
parallel-consumer's own, random waits between 0 and 5 ms. The peer (on the JVM, at least once, no output) has as many threads.""",
    ),
    "restore": (
        "Restore",
        """`./kstreams bench restore`: an empty key-value store restored from its changelog, per instance, according to its reports.""",
    ),
    "memory": (
        "Memory over time",
        """`./kstreams bench memory`: a count over 100,000 keys at 20,000 records/s, exactly once; each process's memory once a second.
Value: the slope of the line fitted to *private* memory (without file pages, so without memory-mapped stores), over
the whole and the second half of the time. A Java heap grows until it is collected.""",
    ),
    "state-growth": (
        "Growth of state",
        """`./kstreams bench state-growth`: a count under exactly once over uniform keys, two instances, measured once every key is in the
store; ours / Kafka Streams. *rekeyed* (`--case`): by another key, behind a repartition; *window*: by key and window; *stores*: so many
counts of the stream; *nodes*: `map_values` before it. *Disk bytes per key*: of the local store's files; *ms per commit*: on average.
*kill -9 to ready*: all workers are killed at once while 20,000 records per second arrive, until every instance runs again; `restored`:
changelog records that they read.""",
    ),
}
_SKIPPED = ("bench", "case", "value", "unit")
_BESIDE = {_PEER: "Kafka Streams", " parallel-consumer": "parallel-consumer", " event loop alone": "event loop alone"}
"""What a case's name ends with, and the column in which its value stands in the row of the case without it."""
_SPREAD = ("min", "max")
_ONLY_IN_THE_LINES = frozenset(
    "samples sent processed workload pace pool seconds sizes server_cores load_cores queries_per_s refused changes epoch_ms".split()
    + ["records_per_second", "sending", "clients", "p50s", "p99s"]
    + [f"{process}_{what}" for process in ("driver", "jvm", "workers", "broker") for what in ("cpu_seconds", "mb", "percent")]
)
"""Fields that the tables leave out."""
_NOTE = {"bench", "note"}
_NEXMARK_MEANS = {"": 3.0, f" {DEFAULTS}": 4.0}
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
    names = {where: f"Machine {chr(ord('A') + number)}" for number, where in enumerate(_distinct_machines(sections))}
    parts = [TITLE, _INTRODUCTION, "\n".join(f"- {name}: {where}." for where, name in names.items())]
    for bench in [*(name for name in _METHODS if name in sections), *(name for name in sections if name not in _METHODS)]:
        title, method = _METHODS.get(bench, (bench, ""))
        section = sections[bench]
        machines = _measured(section.machines.values(), names)
        table = _TABLES.get(bench, _table)(section.cases) if section.cases else ""
        parts += [text for text in (f"## {title}", method, machines, table, *section.notes) if text]
    return "\n\n".join(parts) + "\n"


def _distinct_machines(sections: Mapping[str, _Section]) -> dict[str, None]:
    return dict.fromkeys(_machine(line) for section in sections.values() for line in section.machines.values())


def _machine(line: Line) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in line.get("versions", {}).items())
    return f"{line['case']}, {line['value']} cores, {line['memory_gb']} GB, {line['system']}" + (f"; {versions}" if versions else "")


def _measured(machines: Iterable[Line], names: Mapping[str, str]) -> str:
    """Return the machines of a section by name, each with the days of the measurements and the load before them."""
    by_machine: dict[str, list[Line]] = defaultdict(list)
    for line in machines:
        by_machine[names[_machine(line)]].append(line)
    texts = []
    for name, lines in by_machine.items():
        days = sorted({line["at"][:10] for line in lines})
        loads = sorted({f"{line['load'][0]:.2f}" for line in lines if "load" in line}, key=float)
        load = f", load {' to '.join(dict.fromkeys((loads[0], loads[-1])))}" if loads else ""
        texts.append(f"{name}, {', '.join(days)}{load}")
    return f"Measured: {'; '.join(texts)}." if texts else ""


def _comparison(cases: Mapping[str, Line]) -> str:
    """Return a table of this package and the peer, one row per workload and guarantee."""
    rows = []
    for case, line in cases.items():
        if case.endswith((_RATIO, _PEER)):
            continue
        peer, ratio = cases.get(case + _PEER), cases.get(case + _RATIO)
        both = (line,) if peer is None else (line, peer)
        rows.append(
            [
                case,
                " / ".join(map(_with_spread, both)),
                *(["", ""] if ratio is None else [_graded(ratio), _target(ratio)]),
                " / ".join(f"{each['cpu_seconds']:g}" for each in both),
                " / ".join(_number(each["peak_rss_mb"]) for each in both),
            ]
        )
    return _markdown(["case", "records/s (min-max)", "ratio", "target", "CPU s", "peak MB"], rows)


def _nexmark(cases: Mapping[str, Line]) -> str:
    """Return the table of queries, and the geometric mean of the ratios of Nexmark's own."""
    parts = [_queries(cases)]
    for which, least in _NEXMARK_MEANS.items():
        ratios = [line["value"] for case, line in cases.items() if re.fullmatch(rf"q\d+{which}{_RATIO}", case)]
        if ratios:
            mean = statistics.geometric_mean(ratios)
            verdict = "met" if mean >= least else "NOT met"
            name = f"{len(ratios)} queries{',' * bool(which)}{which}"
            parts.append(f"Geometric mean of the ratios of {name}: {mean:.2f} (target >= {least:g}, {verdict}).")
    return "\n\n".join(parts)


def _queries(cases: Mapping[str, Line]) -> str:
    """Return a table of queries: this package / the peer in each column; of other formats only the ratio."""
    formats = [format for format in (DEFAULTS, *FORMATS) if any(case.endswith(f" {format}{_RATIO}") for case in cases)]
    defaults = DEFAULTS in formats
    rows = []
    for case, line in cases.items():
        if case.endswith((_RATIO, _PEER, DEFAULTS, *FORMATS)):
            continue
        others = [_graded(cases.get(f"{case} {format}{_RATIO}", {})) for format in formats]
        columns = [_pair(cases, case, "value"), _graded(cases.get(case + _RATIO, {})), _pair(cases, case, "state_mb")]
        rows.append([f"{case}: {line['what']}", *columns, *([_pair(cases, f"{case} {DEFAULTS}", "value")] if defaults else []), *others])
    head = ["query", "records/s", "ratio", "state MB", *([f"records/s, {DEFAULTS}"] if defaults else [])]
    table = _markdown([*head, *(f"ratio, {format}" for format in formats)], rows)
    targets = dict.fromkeys(line["target"] for line in cases.values() if "target" in line)
    return table + (f"\n\nTargets of the ratios: {' or '.join(targets)}; a ratio that misses its own is marked." if targets else "")


def _pair(cases: Mapping[str, Line], case: str, name: str) -> str:
    found = (cases.get(case, {}).get(name), cases.get(case + _PEER, {}).get(name))
    return " / ".join(_number(each) for each in found if each is not None)


def _graded(ratio: Line) -> str:
    """Return a ratio; different outputs and a missed target are in capitals."""
    if not ratio:
        return ""
    same = " NO: other output" if ratio.get("same_output") is False else ""
    return f"{ratio['value']:.2f}{same}" + (f" NO: {ratio['target']}" if ratio.get("met") is False else "")


def _scale(cases: Mapping[str, Line]) -> str:
    """Return a table of numbers of instances: this package / the peer in each column, and the processors of each part."""
    rows = []
    for case, line in cases.items():
        if case.endswith((_RATIO, _PEER)):
            continue
        both = [found for found in (line, cases.get(case + _PEER)) if found is not None]
        ratio = cases.get(case + _RATIO, {})

        def pair(name: str, both: list[Line] = both) -> str:
            return " / ".join(_number(found[name]) for found in both if name in found)

        names = ("efficiency", "busy_percent", "queued_percent", "without_queue")
        free = _number(ratio["ratio_without_queue"]) if ratio else ""
        parts = " / ".join(", ".join(_parts(found)) for found in both)
        rows.append([case, pair("value"), _graded(ratio), *map(pair, names), free, parts])
    head = ["query", "records/s", "ratio", "efficiency", "busy %", "no processor %", "without that", "ratio", "processors"]
    return _markdown(head, rows)


def _parts(line: Line) -> list[str]:
    parts = {name.removesuffix(_CORES).replace("_", " "): value for name, value in line.items() if name.endswith(_CORES)}
    return [f"{name} {parts[name]:g}" for name in sorted(parts, key=parts.__getitem__, reverse=True) if parts[name] >= 0.02]


def _growth(cases: Mapping[str, Line]) -> str:
    """Return a table of costs with a column for each number of keys, this package / the peer, and a table of the other lines."""
    found: dict[str, dict[int, tuple[Line, ...]]] = defaultdict(dict)
    shown = set()
    for case, line in cases.items():
        keys = f", {line.get('keys', 0):,} keys"
        if line["unit"] == "us/record" and keys in case and not case.endswith(_PEER) and not case.startswith("Kafka"):
            both = tuple(cases[name] for name in (case, case + _PEER) if name in cases)
            found[case.replace(keys, "")][line["keys"]] = both
            shown |= {each["case"] for each in both}
    if not found:
        return _table(cases)
    sizes = sorted({keys for lines in found.values() for keys in lines})
    rows = []
    for shape, lines in found.items():
        for name, what in (("value", "us/record"), ("disk_bytes_per_key", "disk bytes per key"), ("commit_ms", "ms per commit")):
            cells = [" / ".join(_number(each[name]) for each in lines.get(keys, ()) if name in each) for keys in sizes]
            if any(cells):
                rows.append([f"{shape}, {what}", *cells])
    table = _markdown(["keys", *map(_number, sizes)], rows)
    judged_lines = [lines[0] for each in found.values() for lines in each.values() if "target" in lines[0]]
    targets = "\n".join(f"Target of {line['case']}: {_target(line)}." for line in judged_lines)
    others = {case: line for case, line in cases.items() if case not in shown}
    return "\n\n".join(text for text in (table, targets, _table(others) if others else "") if text)


def _loads_held(cases: Mapping[str, Line]) -> str:
    """Return a table of the loads that were held; the loads that were tried, if none was."""
    held = {case.removesuffix(" load held"): line for case, line in cases.items() if case.endswith(" load held")}
    if not held:
        return _table(cases)
    rows = []
    for query, line in held.items():
        peer, ratio = (cases.get(f"{query} load held{suffix}", {}) for suffix in (_PEER, _RATIO))
        values = [_number(found.get("value", "")) for found in (line, peer, ratio)]
        rows.append([query, *values, _next_load(line), _next_load(peer)])
    return _markdown(["query", "ours", "Kafka Streams", "ratio", "next, ours", "next, Kafka Streams"], rows)


def _next_load(line: Line) -> str:
    return f"{_number(line['not_held'])} ({line['limited_by']})" if "not_held" in line else ""


def _latency(cases: Mapping[str, Line]) -> str:
    """Return the table of latencies, and that of the steps of a record: a row for each step, a column for each case."""
    steps = {case: line for case, line in cases.items() if ", steps" in case}
    table = _table({case: line for case, line in cases.items() if case not in steps})
    if not steps:
        return table
    names = [case.replace(", steps of the", ", the").removesuffix(", steps") for case in steps]
    rows = [[step, *(_number(line.get(step, "")) for line in steps.values())] for step in STEPS[1:]]
    return f"{table}\n\nThe steps of a record, each from the one before, medians in ms:\n\n{_markdown(['step', *names], rows)}"


def _python_peers(cases: Mapping[str, Line]) -> str:
    """Return a table with a row for each workload and a column for each system and guarantee."""
    by_workload: dict[str, dict[str, Line]] = defaultdict(dict)
    for case, line in cases.items():
        workload, _, system = case.partition(" ")
        by_workload[workload][system] = line
    systems = [name for name in dict.fromkeys(name for lines in by_workload.values() for name in lines) if name != "ratio"]
    rows = []
    for workload, lines in by_workload.items():
        ratio = lines.get("ratio", {})
        values = [_number(lines[name]["value"]) if name in lines else "" for name in systems]
        rows.append([workload, *values, _number(ratio.get("value", "")), _target(ratio)])
    return _markdown(["workload", *(" ".join(reversed(name.split(" "))) for name in systems), "ratio", "target"], rows)


def _with_spread(line: Line) -> str:
    if line.get("runs", 1) < 2 or "min" not in line:
        return _number(line["value"])
    return f"{_number(line['value'])} ({_number(line['min'])}-{_number(line['max'])})"


def _table(cases: Mapping[str, Line]) -> str:
    """Return a table: case, value, target and verdict if any line has them, the fields that all lines have, and the others as details.

    What most rows have stands once, above the table; a field that the case names is left out.
    """
    beside = {case: [case + suffix for suffix in _BESIDE if case + suffix in cases] for case in cases}
    moved = {other for others in beside.values() for other in others}
    peers = [suffix for suffix in _BESIDE if any(other.endswith(suffix) for other in moved)]
    lines = [line for case, line in cases.items() if case not in moved]
    names = dict.fromkeys(name for line in lines for name in line if name not in _ONLY_IN_THE_LINES and not _in_the_value(name, line))
    common = {name: value for name in names if (value := _usual(name, lines)) is not None}
    columns = [name for name in names if name not in common and all(name in line for line in lines)]
    details = [[name for name in names if name in line and name not in columns and not _is(common, name, line)] for line in lines]
    with_target = any("target" in line for line in lines)
    rows = []
    for line, more in zip(lines, details, strict=True):
        row = [line["case"], f"{_with_spread(line)} {line['unit']}", *([_target(line)] if with_target else [])]
        row += [_peer(cases.get(line["case"] + suffix), line, common) for suffix in peers]
        row += [_value(name, line[name]) for name in columns]
        if any(details):
            row.append(_named(more, line))
        rows.append(row)
    head = ["case", "value", *(["target"] if with_target else []), *(_BESIDE[suffix] for suffix in peers)]
    head += [name.replace("_", " ") for name in columns]
    above = f"Unless a row says otherwise: {_named(common, common)}.\n\n" if common else ""
    return above + _markdown([*head, *(["details"] if any(details) else [])], rows)


def _in_the_value(name: str, line: Line) -> bool:
    return name in (*_SKIPPED, *_JUDGED) or (name in _SPREAD and all(bound in line for bound in _SPREAD))


def _usual(name: str, lines: Sequence[Line]) -> Any:
    """Return the value that more than half of the lines, and several, have in this field; else None."""
    values = [_hashable(line[name]) for line in lines if name in line]
    value, times = Counter(values).most_common(1)[0] if values else (None, 0)
    return value if times > max(1, len(lines) / 2) else None


def _is(common: Mapping[str, object], name: str, line: Line) -> bool:
    return name in common and common[name] == _hashable(line[name])


def _hashable(value: object) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _named(names: Iterable[str], line: Line) -> str:
    fields = ((name.replace("_", " "), _value(name, line[name])) for name in names if name in line)
    return ", ".join(f"{name} {value}" for name, value in fields if f"{value} {name}" not in line.get("case", ""))


def _peer(peer: Line | None, line: Line, common: Mapping[str, object]) -> str:
    """Return the value and details of a peer's line, without what stands in the row or above the table."""
    if peer is None:
        return ""
    skipped = {name for name in peer if name == "records" or peer[name] == line.get(name) or _is(common, name, peer)}
    names = [name for name in peer if name not in skipped | _ONLY_IN_THE_LINES and not _in_the_value(name, peer)]
    more = _named(names, peer)
    return _with_spread(peer) + (f" ({more})" if more else "")


def _target(line: Line) -> str:
    return f"{line['target']}: {_verdict(line.get('met'))}" if "target" in line else ""


_TABLES: Mapping[str, Callable[[Mapping[str, Line]], str]] = {
    "throughput": _comparison,
    "nexmark": _nexmark,
    "theodolite": _queries,
    "lag-trend": _loads_held,
    "scale": _scale,
    "state-growth": _growth,
    "latency": _latency,
    "python-peers": _python_peers,
}


def _value(name: str, value: object) -> str:
    return _verdict(value) if name in ("met", "held") else _number(value)


def _verdict(met: Any) -> str:
    """Return the verdict; a missed target is in capitals, so that it is noticed."""
    return {True: "yes", False: "NO"}.get(met, "")


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ", ".join(map(_number, value)) if isinstance(value, list) else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"


def _markdown(head: list[str], rows: list[list[Any]]) -> str:
    first, *others = ("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in (head, *rows))
    return "\n".join([first, f"|---|{'---:|' * len(head[1:])}", *others])
