"""R36: a process that is forked from the one with the session ends, closes, crashes: the parent's broker and application do not notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

PARENT = """
import gc, multiprocessing, os, sys, time
import kstreams_repl as ks
from kstreams_repl.system.errors import ForkedProcessError
from kstreams_repl.repl.session.connection import current_session

session = ks.connect(directory="temporary", prestart=False, config={"commit.interval.ms": 50})
session.produce("words", [("a", "x")], partitions=1)
session.sql("SELECT count(*) FROM words").df()
builder = ks.StreamsBuilder()
builder.stream("words").group_by_key().count(store="n")
app = session.deploy(builder, "counts")
assert app.wait(120)


def use():
    deploy, produce = (lambda: session.deploy(builder, "counts")), (lambda: session.produce("words", ["y"]))
    for call in (session.topics, app.stop, app.pause, app.resume, deploy, produce):
        try:
            call()
        except ForkedProcessError as error:
            assert str(os.getppid()) in error.message and "connect(" in error.hint, error
            continue
        raise AssertionError(call)


def leave():
    with session:
        sys.exit(7)


def forget():
    global session, app
    del session, app
    gc.collect()


def connect():
    again = ks.connect(directory="temporary", prestart=False)
    assert again is not session and session.closed and current_session() is again


kinds = {"ends": lambda: None, "closes": session.close, "leaves the block": leave, "uses": use, "forgets": forget}
kinds |= {"connects": connect, "crashes": os.abort}
for count, (kind, call) in enumerate(kinds.items(), 2):
    pid = os.fork()
    if pid == 0:
        call()
        sys.exit(7)  # with all exit handlers and finalizers
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == (-6 if kind == "crashes" else 7), (kind, code)
    session.produce("words", [("a", "x")])
    assert app.wait(60) and app.status == "running" and app.error is None, (kind, app)
    assert app.store("n").get("a") == count, (kind, app.store("n").get("a"), count)
child = multiprocessing.get_context("fork").Process(target=session.close)
child.start()
child.join()
assert child.exitcode == 0 and app.pause().resume().status == "running"
session.close()
print("the parent is well")
"""


@pytest.mark.slow
def test_children_of_a_fork_leave_the_parents_broker_and_application_alone(tmp_path: Path) -> None:
    environment = {**os.environ, "KSTREAMS_PRESTART": "0", "PYTHONWARNINGS": "ignore"}
    ran = subprocess.run([sys.executable, "-P", "-c", PARENT], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0 and "the parent is well" in ran.stdout, ran.stdout + ran.stderr
