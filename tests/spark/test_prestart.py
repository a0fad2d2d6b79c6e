"""Spark that is started while a session is set up: in a process of its own, for this one has a Spark session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(240)]

ROOT = Path(__file__).resolve().parents[2]

GIVEN_UP_THEN_USED_BY_THE_FIRST_DEPLOY = """
import time, psutil
import kstreams_repl as ks
from kstreams_repl.host.spark.slots import worker_pools
from kstreams_repl.host.spark.startup import spark_session as hosting

def jvms():
    return [p for p in psutil.Process().children(recursive=True) if p.name() == "java"]

session = ks.connect(directory="state", prestart=True)
started = session.client.spark.prestart
while not jvms():
    time.sleep(0.02)
assert started.running
session.close()
assert not started.running and not jvms()

session = ks.connect(directory="state", prestart=True)     # nothing is left that a second one would trip over
assert session.client.spark.prestart.wait(120) and len(jvms()) == 1
assert hosting.runs_already()
pool, = worker_pools._pools
session.produce("words", ["a b", "b"])
builder = ks.StreamsBuilder()
words = builder.stream("words", value_serde="string").flat_map_values(str.split)
words.group_by(lambda key, word: word, key_serde="string", value_serde="string").count(store="counts")
app = session.deploy(builder, "word-count")
assert app.wait(120)
print(session.sql("SELECT key, value FROM counts ORDER BY key").fetchall())
assert list(worker_pools._pools) == [pool] and worker_pools._pools[pool].name == "word-count"
session.close()
assert not hosting.runs_already() and not jvms()
"""


@pytest.mark.slow
def test_spark_that_is_started_ahead_ends_with_the_session_and_is_used_by_the_first_deploy_of_the_next_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", GIVEN_UP_THEN_USED_BY_THE_FIRST_DEPLOY],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.stdout, done.returncode) == ("[('a', 1), ('b', 2)]\n", 0), done.stderr
    assert "Traceback" not in done.stderr and "py4j" not in done.stderr
