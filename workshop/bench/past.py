"""How long the past of an application takes: its store as of earlier commits, the first step of a debugger, and the causes of rows; and
what the application loses by such questions.

An application has counted `records` records of `keys` keys, with snapshots at intervals. Each moment is asked for once without a copy that
could help (`from the changelog`), once where a snapshot is near, and once again. Then it processes half as many records in turns, with no
question and while it is asked one of each kind (`live`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.engine.config import EXACTLY_ONCE_V2
from kstreams_repl.host.instance.state.state_directory import application_directory, state_root
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.repl.session.views.past.state.state_builder import FOLDER
from workshop.bench.rig import json_output, workloads
from workshop.bench.rig.probe import await_running
from workshop.bench.rig.testbed import Testbed, open_testbed, produce, where
from workshop.bench.rig.workloads import Topics

BENCH = "past"
_SNAPSHOT_MS = 5_000
_AFTER_SNAPSHOT_SECONDS = 2.0


@click.command(help="Seconds until a store is there as of an earlier commit, and until a debugger has made its first step.")
@click.option("--records", type=click.IntRange(1000), default=10_000_000, show_default=True)
@click.option("--keys", type=click.IntRange(1), default=1_000_000, show_default=True)
@click.option("--instances", type=click.IntRange(1), default=2, show_default=True)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
@where
def main(records: int, keys: int, instances: int, runs: int, bootstrap: str | None, directory: Path | None) -> None:
    """Print one line per case."""
    json_output.emit_machine()
    with open_testbed(bootstrap, directory) as testbed:
        topics = testbed.input_topics(records, keys)
        testbed.fresh_topic(topics.output)
        config = {
            "processing.guarantee": EXACTLY_ONCE_V2,
            "num.stream.threads": instances,
            "repl.snapshot.dir": str(testbed.scratch / "snapshots"),
            "repl.snapshot.interval.ms": _SNAPSHOT_MS,
            "repl.snapshot.retention": 20,
        }
        began = time.time()
        app = testbed.session.deploy(workloads.topology("count", topics), "bench-past", config=config)
        try:
            await_running(app)
            app.wait(600)
            ended = time.time()
            time.sleep(2 * _SNAPSHOT_MS / 1000)
            committed = testbed.admin.committed_offsets(app.name)
            at = max(committed, key=lambda partition: committed[partition].offset)
            middle = f"commit {decode(committed[at].metadata).commit_id * 2 // 3}"
            facts = {"records": records, "keys": keys, "instances": instances, "processed_s": round(ended - began, 1)}
            _measure("as of the end, from the nearest snapshot", app, runs, int(time.time() * 1000), facts)
            _measure("as of the middle, from the nearest snapshot", app, runs, middle, facts)
            steps = []
            for number in range(runs):
                record = f"{at}@{committed[at].offset // 2 + number}"
                _forget(app)
                _seconds(lambda record=record: app.sql("SELECT count(*) FROM counts", as_of=record))  # type: ignore[misc]
                steps.append(_seconds(lambda record=record: app.debug(record).step()))  # type: ignore[misc]
            _emit("first step of a debugger, state at hand", steps, facts)
            keys_asked = [row[0] for row in app.sql("SELECT key FROM counts LIMIT 20", as_of=middle).fetchall()][:runs]
            _emit("direct causes of a row", [_seconds(lambda key=key: app.why("counts", key)) for key in keys_asked], facts)  # type: ignore[misc]
            outputs = [f"{topics.output}-0@{committed[at].offset // 4 + number}" for number in range(runs)]
            _emit("direct causes of an output record", [_seconds(lambda of=of: app.why(of)) for of in outputs], facts)  # type: ignore[misc]
            _emit("all causes of a row", [_seconds(lambda: app.why("counts", keys_asked[0], all=True))], facts)
            shutil.rmtree(testbed.scratch / "snapshots")
            _measure("as of the middle, from the changelog", app, runs, middle, facts)
            again = [_seconds(lambda: app.store("counts", as_of=middle).get("user-1")) for _ in range(runs)]
            _emit("as of the same moment again", again, facts)
            _live(testbed, app, topics, records // 2, keys, runs, facts)
        finally:
            app.stop()
            testbed.session.cleanup("bench-past")


def _live(testbed: Testbed, app: Application, topics: Topics, records: int, keys: int, runs: int, facts: Mapping[str, object]) -> None:
    """Let it process records in turns, with no question and with one of each kind meanwhile."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    asked: list[float] = []
    for _ in range(runs):
        for with_questions in (False, True):
            app.pause()
            produce(testbed.settings, topics.input, workloads.stream_rows(records, keys, first_ms=int(time.time() * 1000)))
            ends = testbed.admin.committed_offsets(app.name)
            record = next(f"{at}@{committed.offset - 1000}" for at, committed in sorted(ends.items()))
            _forget(app)
            began = time.monotonic()
            app.resume()
            if with_questions:
                asked.append(_seconds(lambda: app.store("counts", as_of="5 seconds ago").get("user-1")))
                asked.append(_seconds(lambda record=record: app.debug(record).step()))  # type: ignore[misc]
                asked.append(_seconds(lambda: app.why("counts", "user-1")))
            app.wait(600)
            seconds[with_questions].append(time.monotonic() - began)
    for with_questions, case in ((False, "live, nobody asks"), (True, "live, while as of, debug and why are asked")):
        _emit(case, seconds[with_questions], {**facts, "live_records": records})
    _emit("a question while it processes", asked, facts)


def _measure(case: str, app: Application, runs: int, moment: object, facts: Mapping[str, object]) -> None:
    seconds = []
    for _ in range(runs):
        _forget(app)
        seconds.append(_seconds(lambda: app.store("counts", as_of=moment).get("user-1")))
    _emit(case, seconds, facts)


def _forget(app: Application) -> None:
    """Remove the copies that were made before."""
    shutil.rmtree(application_directory(state_root(app.config), app.name) / FOLDER, ignore_errors=True)


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def _emit(case: str, seconds: list[float], facts: Mapping[str, object]) -> None:
    json_output.emit(
        BENCH, case, json_output.median(seconds, digits=2), "s", **json_output.spread(seconds, digits=2), **facts
    )
