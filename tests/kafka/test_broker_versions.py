"""The newest broker of each minor version from 3.9 on: an application killed, restored, queried, reset and removed, and the journal.

Each broker is of its version's jars (`jvm/brokers.lock`, fetched on first use) with the other libraries of the embedded broker, formatted
by its own tool. The embedded broker's own version, 4.2, is that of all other tests.
"""

from __future__ import annotations

import os
import shutil
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import kstreams_repl as ks
from kstreams_repl.host.instance.state.state_directory import application_directory, state_root
from kstreams_repl.host.journal.journal import JournalControl, JournalReader, JournalReports, ensure_journal
from kstreams_repl.host.journal.journal_records import Assignment, Claim, DesiredState
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from kstreams_repl.host.kafka.embedded.jars import locked_jars, parse_lock
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.types import TopicPartition
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

LOCK = parse_lock((Path(__file__).parent / "jvm" / "brokers.lock").read_text(encoding="utf-8"))
VERSIONS = [jar.version for jar in LOCK if jar.artifact == "kafka_2.13"]
LOSES_MARKERS = ("4.3.1", "4.4.0")
"""KAFKA-20734: if the broker dies while it writes a transaction's markers, it does not write the rest when it is back."""
ANNOUNCED = "Kafka version: {} ("
KEYS = 7


@pytest.fixture(params=VERSIONS)
def broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """One for each test, because a test may restart it."""
    own = [jar for jar in LOCK if jar.group != "org.apache.kafka" or jar.version == request.param]
    with EmbeddedBroker(jars=[*own, *(jar for jar in locked_jars() if jar.group != "org.apache.kafka")]) as running:
        assert ANNOUNCED.format(request.param) in running.log_path.read_text(encoding="utf-8")
        yield running


@pytest.fixture
def session(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        yield session


@pytest.fixture
def name() -> str:
    return f"app-{uuid.uuid4().hex[:8]}"


class Words:
    """An application that counts words by another key than its input's (a repartition topic and a changelog), and what it was fed."""

    def __init__(self, session: ks.Session, name: str, guarantee: str) -> None:
        self.session, self.name, self.guarantee, self.fed = session, name, guarantee, 0
        for topic in ("in", "out"):
            session.create_topic(f"{name}-{topic}", partitions=2)
        builder = ks.StreamsBuilder()
        words = builder.stream(f"{name}-in", key_serde="string", value_serde="string")
        counts = words.group_by(lambda key, word: word, key_serde="string", value_serde="string").count(store="counts")
        counts.to_stream().to(f"{name}-out", key_serde="string", value_serde="long")
        self.feed(300)
        config = {"processing.guarantee": guarantee, "commit.interval.ms": 50, "num.stream.threads": 2}
        self.app = session.deploy(builder, name, config=config)

    def feed(self, count: int) -> None:
        rows = [(str(number), f"w{number % KEYS}") for number in range(self.fed, self.fed + count)]
        assert self.session.produce(f"{self.name}-in", rows, value_serde="string") == count
        self.fed += count

    def check(self) -> None:
        """The store by SQL and by key, the changelog and the output agree with what was fed; with at-least-once nothing is missing."""
        assert self.app.wait(120)
        wanted = Counter(f"w{number % KEYS}" for number in range(self.fed))
        stored = dict(self.session.sql("SELECT key, value FROM counts").fetchall())
        assert stored == {key: self.app.store("counts").get(key) for key in wanted}
        for topic in (f"{self.name}-out", f"{self.name}-counts-changelog"):
            records = self.session.read(topic, None, key_serde="string", value_serde="long")
            assert {record.key: record.value for record in records} == stored
        if self.guarantee == "exactly_once_v2":
            assert stored == wanted
        else:
            assert stored.keys() == wanted.keys() and all(stored[key] >= count for key, count in wanted.items())
        assert self.session.sql(f'SELECT count(*), count(DISTINCT value) FROM "{self.name}-in"').fetchall() == [(self.fed, KEYS)]

    def kill_a_worker(self) -> None:
        os.kill(next(iter(self.app.reports.instances.values())).pid, signal.SIGKILL)


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_an_application_survives_kills_of_its_worker_and_of_the_broker_and_restores(
    broker: EmbeddedBroker, session: ks.Session, name: str, guarantee: str
) -> None:
    words = Words(session, name, guarantee)
    words.check()
    words.feed(300)
    words.kill_a_worker()
    words.feed(300)
    words.check()
    words.feed(300)
    log = broker.log_path.read_text(encoding="utf-8")
    if any(ANNOUNCED.format(version) in log for version in LOSES_MARKERS):
        words.check()
    broker.kill()
    broker.start()
    words.feed(300)
    words.check()
    words.app.stop()
    shutil.rmtree(application_directory(state_root(words.app.config), name) / "tasks")
    words.feed(100)
    words.app.resume()
    words.check()
    assert sum(report.restored for report in words.app.reports.instances.values()) > 0
    words.app.stop()
    internal = {f"{name}-counts-changelog", f"{name}-counts-repartition"}
    assert internal <= set(session.admin.topics()) and name in session.admin.groups()
    assert session.reset(name).applied
    assert not internal & set(session.admin.topics())
    assert session.cleanup(name).applied
    assert name not in session.admin.groups()
    assert f"{name}-in" in [row[0] for row in session.topics().rows]


def test_topics_are_described_changed_emptied_and_deleted(session: ks.Session, name: str) -> None:
    admin, zero = session.admin, TopicPartition(name, 0)
    admin.create_topic(name, 2, configs={"cleanup.policy": "compact"})
    admin.add_partitions(name, 3)
    admin.alter_topic_configs(name, {"cleanup.policy": "delete"})
    assert admin.describe_topics([name])[name].partitions == 3
    assert admin.topic_configs([name])[name]["cleanup.policy"] == "delete"
    session.produce(name, [(str(number), number, 1_000 + number) for number in range(60)])
    end = admin.end_offsets([zero])[zero]
    assert end > 1 and admin.settled_end_offsets([zero]) == {zero: end}
    assert admin.offsets_for_time({zero: 0}) == {zero: 0} and admin.offsets_for_time({zero: 5_000}) == {zero: None}
    admin.delete_records({zero: 1})
    assert admin.beginning_offsets([zero]) == {zero: 1}
    admin.commit_offsets(f"{name}-group", {zero: 1})
    assert admin.committed_offsets(f"{name}-group", [zero])[zero].offset == 1
    assert admin.delete_groups([f"{name}-group"]) == (f"{name}-group",)
    assert admin.delete_topics([name]) == (name,)
    settle(lambda: name not in admin.topics(), f"{name} to be gone")


def test_the_journal_is_written_and_read(session: ks.Session, name: str) -> None:
    ensure_journal(session.admin, name)
    control, reports = JournalControl(session.settings, name), JournalReports(session.settings, name)
    reader = JournalReader(session.settings, name)
    control.write(DesiredState(1, "running", 1, 2), Assignment(1, {"0": ("0_0",)}))
    reports.send(Claim(1, 0, epoch=3, owner="host:1:2"))
    assert reports.flush()
    state = reader.catch_up(session.admin)
    assert state.desired == DesiredState(1, "running", 1, 2) and getattr(state.claim_of(0, 3), "owner", None) == "host:1:2"
    control.close()
    reports.close()
    reader.close()
