"""How long a new user waits for the first result: the README's first topology, pasted into a new Python process.

Each run is a separate process with its own embedded broker in an empty directory. The broker's jars are on disk already, as are
the class archives if ``./kstreams prepare`` has written them. The clock of *first SQL result* starts with the process, that of
*deploy to first result* with the call of `deploy`; both stop when all input is processed and committed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

import click

from kstreams_repl.system.errors import KStreamsError
from workshop.bench.rig import json_output

BENCH = "first-result"
SQL, DEPLOY = "process start to first SQL result", "deploy to first result"
_MOST_SECONDS = 300
_PROGRAM = """
import json, time
import psutil
import kstreams_repl as ks

session = ks.connect(report=lambda line: None)
session.produce("words", ["to be or not to be", "that is the question"])
builder = ks.StreamsBuilder()
words = builder.stream("words", value_serde=ks.serdes.string).flat_map_values(str.split)
words.group_by(lambda key, word: word, key_serde=ks.serdes.string, value_serde=ks.serdes.string).count(store="counts")
called = time.time()
app = session.deploy(builder, "word-count", processing_guarantee="exactly_once_v2")
assert app.wait(240)
done = time.time()
rows = session.sql("SELECT key AS word, value AS count FROM counts ORDER BY count DESC, word LIMIT 3").fetchall()
assert rows == [("be", 2), ("to", 2), ("is", 1)], rows
answered = time.time()
print(json.dumps({"sql": answered - psutil.Process().create_time(), "deploy": done - called}))
session.close()
"""


@click.command(help="Seconds until the README's first topology has its first result, in a process that has just started; medians.")
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True)
def main(runs: int) -> None:
    """Print one line per case."""
    json_output.emit_machine()
    taken = [_run() for _ in range(runs)]
    for case, name in ((SQL, "sql"), (DEPLOY, "deploy")):
        values = [seconds[name] for seconds in taken]
        json_output.emit(BENCH, case, json_output.median(values, digits=2), "s", **json_output.spread(values, digits=2))


def _run() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="kstreams-first-result-") as directory:
        command = [sys.executable, "-P", "-c", _PROGRAM]
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=_MOST_SECONDS)
        if done.returncode:
            raise KStreamsError(f"the first topology failed: {done.stderr[-2000:]}", hint="./kstreams doctor shows what is missing")
        seconds: dict[str, float] = json.loads(done.stdout)
        return seconds
