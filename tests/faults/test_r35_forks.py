"""R35: whatever dies while a fork is made, promoted or dropped: the application is the old one or the new one, each input came out of it
once, and nothing of the fork stays.

The output says which version a record went through. It is counted by a plain consumer and plain Python.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer

import kstreams_repl as ks
from kstreams_repl.engine.commit.failpoints import VARIABLE, hook
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.repl.session.application.starting.journal_lookup import journal_of
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import BrokerUnavailableError, KStreamsError
from tests.faults.fork_process import SETTINGS
from tests.faults.kernel_process import tagging
from tests.faults.reliability import note
from tests.spark.hosting import settle, spark

__all__ = ["spark"]
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(3000)]
ROOT = Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("KSTREAMS_SEED", "35"))
RUNS = 12


class Died(Exception):
    """What a failpoint raises in the place of a death."""


class Output:
    """One application's input and output, looked at from outside.

    Attributes:
        sent: how many records were put in; each has its number as value.
    """

    def __init__(self, session: ks.Session, name: str) -> None:
        self.session, self.name = session, name
        session.create_topic(f"{name}-in", partitions=2)
        session.create_topic(f"{name}-out", partitions=2)
        self.sent = 0

    def put(self, count: int) -> None:
        rows = [(f"k{n % 7}", str(n)) for n in range(self.sent, self.sent + count)]
        self.session.produce(f"{self.name}-in", rows, key_serde="string", value_serde="string")
        self.sent += count

    def read(self) -> list[tuple[int, str]]:
        """Number and tag of every committed record, by a plain consumer."""
        topic = f"{self.name}-out"
        consumer = Consumer({
            "bootstrap.servers": self.session.bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
            "isolation.level": "read_committed", "auto.offset.reset": "earliest", "enable.partition.eof": True,
        })  # fmt: skip
        consumer.subscribe([topic])
        found: list[tuple[int, str]] = []
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        while len(ended) < 2:
            assert time.monotonic() < deadline
            message = consumer.poll(1.0)
            if message is not None and message.error() is not None:
                ended.add(message.partition())
            elif message is not None:
                value, _, tag = message.value().decode().partition(":")
                found.append((int(value), tag))
        consumer.close()
        return found

    def check(self, app: ks.Application) -> str:
        """Each record came out once, of the old version or of the new one, in that order; return the tag of those that come now."""
        self.put(20)
        assert app.wait(120), app
        found = self.read()
        assert sorted(number for number, _ in found) == list(range(self.sent)), Counter(
            number for number, _ in found
        ).most_common(3)
        tags = dict(found)
        now = {tags[number] for number in range(self.sent - 20, self.sent)}
        assert len(now) == 1 and set(tags.values()) <= {"v1", "v2"}
        counts = Counter(f"k{n % 7}" for n in range(self.sent))
        assert {key: app.store("counts").get(key) for key in counts} == counts
        desired = journal_of(self.session.client, self.name).desired
        assert desired is not None and desired.version == app.versions[-1].number
        return now.pop()

    def assert_no_trace(self) -> None:
        fork, session = f"{self.name}.next", self.session
        assert not session.forks
        assert not [topic for topic in session.admin.topics() if topic.startswith(fork)]
        assert fork not in session.admin.groups() and fork not in session.files.names()
        left = [str(path) for path in session.directory.path.rglob(f"{fork}*")]
        assert not left and not (session.directory.path / "forks").exists(), left


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def dies(name: str, error: Exception | None = None) -> None:
    def die() -> None:
        hook(name, None)
        raise error or Died(name)

    hook(name, die)


def test_a_drop_and_a_promotion_that_die_in_the_middle_are_finished_or_undone(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    output = Output(session, name)
    output.put(100)
    app = session.deploy(tagging(f"{name}-in", f"{name}-out", "v1"), name, config=SETTINGS)
    assert app.wait(120)
    fork = app.fork("next", tagging(f"{name}-in", f"{name}-out", "v2"))
    output.put(50)
    dies("K2")
    with pytest.raises(Died):
        fork.drop()
    assert list(session.forks) == [fork.id]
    fork.drop()
    output.assert_no_trace()
    assert output.check(app) == "v1"
    # before the transaction: both go on
    fork = app.fork("next", tagging(f"{name}-in", f"{name}-out", "v2"))
    output.put(50)
    dies("K5")
    with pytest.raises(Died):
        fork.promote()
    assert app.status == "running" and fork.status == "running" and len(app.versions) == 1
    assert output.check(app) == "v1"
    # the answer to its commit is lost: the journal says that it was committed
    dies("K6", BrokerUnavailableError("no answer"))
    fork.promote()
    assert output.check(app) == "v2" and app.versions[-1].promoted == "next"
    output.assert_no_trace()


def killed_kernel(session: ks.Session, output: Output, verb: str, failpoints: str, seconds: float | None = None) -> list[str]:
    """Run a kernel until it dies at a failpoint, or is killed so long after it has begun the verb; return what it said."""
    environment = {**os.environ, VARIABLE: failpoints, "PYTHONPATH": str(ROOT)}
    arguments = [session.bootstrap_servers, str(session.directory.path), output.name, verb]
    kernel = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.faults.fork_process", *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
    )  # fmt: skip
    said: list[str] = []
    assert kernel.stdout is not None
    feeding = threading.Event()

    def feed() -> None:
        while not feeding.wait(0.1):
            output.put(10)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        family = psutil.Process(kernel.pid)
        for line in kernel.stdout:
            said.append(line.strip())
            if seconds is not None and line.startswith(f"begin {verb}"):
                time.sleep(seconds)
                break
            if line.startswith(f"done {verb}"):
                break
        children = family.children(recursive=True) if kernel.poll() is None else []
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
        psutil.wait_procs(children, timeout=20)
    finally:
        feeding.set()
        feeder.join()
        kernel.stdout.close()
    return said


def survives(session: ks.Session, verb: str, failpoints: str, seconds: float | None = None) -> str:
    name = f"app-{uuid.uuid4().hex[:8]}"
    output = Output(session, name)
    output.put(100)
    killed_kernel(session, output, verb, failpoints, seconds)
    settle(lambda: not session.forks, "the orphan to be dropped")
    output.assert_no_trace()
    app = session.attach(name)
    app.resume()
    tag = output.check(app)
    app.stop()
    session.cleanup(name)
    return tag


def test_a_kernel_that_is_killed_in_a_promotion_leaves_the_old_application_or_the_new_one(session: ks.Session) -> None:
    assert survives(session, "promote", "K6=kill") == "v2"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "failpoint", "tag"),
    [("drop", f"K{n}", "v1") for n in (1, 2, 3, 4)] + [("promote", "K7", "v1"), ("promote", "K5", "v1"), ("promote", "K6", "v2")],
)
def test_a_kernel_is_killed_at_each_failpoint(session: ks.Session, verb: str, failpoint: str, tag: str) -> None:
    assert survives(session, verb, f"{failpoint}=kill") == tag
    note("R35", f"the kernel is killed at {failpoint} of a {verb}", 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["fork", "promote", "drop"])
def test_a_kernel_is_killed_at_any_moment(session: ks.Session, verb: str) -> None:
    chance, tags = random.Random(f"{SEED} {verb}"), Counter[str]()
    for _ in range(RUNS):
        tags[survives(session, verb, "", chance.random() * 4)] += 1
    note("R35", f"the kernel is killed in a {verb}, at any moment", RUNS, 0, left=dict(tags))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("verb", ["fork", "promote"])
def test_a_worker_is_killed_meanwhile(session: ks.Session, tmp_path: Path, verb: str, number: int) -> None:
    """At each point of the commit, of whichever of the two comes to it first."""
    survives(session, verb, f"F{number}=kill@{3 * number}!{tmp_path / 'once'}")
    note("R35", f"a worker is killed at F{number} beside a {verb}", 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["fork", "promote", "drop"])
def test_a_broker_is_killed_meanwhile_and_comes_back(spark: Any, tmp_path: Path, verb: str) -> None:
    chance = random.Random(f"{SEED} broker {verb}")
    broker = EmbeddedBroker(tmp_path / "broker").start()

    def bounce() -> None:
        time.sleep(chance.random() * 2)
        broker.kill()
        time.sleep(1)
        broker.start()

    try:
        directory = SessionDirectory(tmp_path / "session")
        with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=directory) as session:
            name = f"app-{uuid.uuid4().hex[:8]}"
            output = Output(session, name)
            output.put(100)
            app = session.deploy(tagging(f"{name}-in", f"{name}-out", "v1"), name, config=SETTINGS)
            assert app.wait(120)
            begin = partial(app.fork, "next", tagging(f"{name}-in", f"{name}-out", "v2"))
            fork = None if verb == "fork" else begin()
            output.put(50)
            bouncing = threading.Thread(target=bounce)
            bouncing.start()
            with suppress(KStreamsError):  # it may be refused, and then changed nothing
                begin() if fork is None else fork.promote() if verb == "promote" else fork.drop()
            bouncing.join()

            def dropped() -> bool:
                with suppress(KStreamsError):
                    for left in session.forks.values():
                        left.drop()
                    return True
                return False

            settle(dropped, "the fork to be dropped", 120)
            output.assert_no_trace()
            app.resume()
            tag = output.check(app)
            assert tag == f"v{app.versions[-1].number}"
            note("R35", f"the broker is killed and started in a {verb}", 1, 0)
    finally:
        broker.stop()
