"""An application in a session, on a real broker and real Spark."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.startup.spark_session import spark_log
from kstreams_repl.pictures import svg_of
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import DeployError, SessionFileError, StreamsProcessingError, TopologyError
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50}


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = (
            "-1"  # timestamps of tests are of 1970; a cluster's default would delete such records
        )
        yield session


@pytest.fixture
def name() -> str:
    return f"app-{uuid.uuid4().hex[:8]}"


def counting(topic: str, keep: Any = lambda key, value: True) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string").filter(keep, name="kept")
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    return builder


def counts(app: ks.Application) -> dict[str, int]:
    return dict(app.sql("counts").df()[["key", "value"]].itertuples(index=False, name=None))


def test_life_of_an_application(session: ks.Session, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Deploy returns at once, counts are exact, pause and resume go on, state outlives the session object's application."""
    topic = f"{name}-in"
    session.produce(topic, [(f"k{i % 5}", "word", 1000 + i) for i in range(1000)])
    caplog.set_level(logging.INFO, "kstreams_repl")
    app = session.deploy(counting(topic), name, config={**EXACTLY_ONCE, "repl.log.level": "INFO"})
    assert app.status in ("starting", "running")
    assert app.wait(120)
    assert counts(app) == {f"k{i}": 200 for i in range(5)}
    assert app.store("counts").get("k1") == 200 and app.store("counts").get("nobody") is None
    with pytest.raises(DeployError, match="already"):
        session.deploy(counting(topic), name)
    app.pause()
    assert app.status == "paused" and app.pause().status == "paused"
    assert app.metrics.total("records-consumed-total") == 1000 and app.node_rates()["KSTREAM-SOURCE-0000000000"].records == 1000
    measured = session.sql("SELECT application, sum(value) FROM metrics WHERE name = 'records-consumed-total' GROUP BY ALL")
    assert measured.fetchall() == [(name, 1000.0)]
    session.produce(topic, [("k0", "word", 5000)])
    time.sleep(0.5)
    assert counts(app)["k0"] == 200
    app.resume()
    assert app.wait(60)
    assert counts(app)["k0"] == 201
    picture = app._repr_mimebundle_()
    assert "running" in picture["text/plain"] and "data:image/svg+xml" in picture["text/html"]
    app.stop()
    assert app.status == "stopped"
    told = [text for text in caplog.messages if text.startswith(f"{name}: ")]
    assert [text.removeprefix(f"{name}: ").partition(" (")[0] for text in told if " -> " in text] == [
        "created -> running", "running -> paused", "paused -> running", "running -> stopped",
    ]  # fmt: skip
    closed = re.compile(rf"{re.escape(name)}\[0\] 0_0: running -> closed")
    settle(lambda: closed.search(spark_log().read_text(encoding="utf-8")) is not None, "what workers write to stderr, by Spark's JVM")
    lines = spark_log().read_text(encoding="utf-8")
    assert f"INFO kstreams_repl.host.instance {name}[0]: restoring -> running" in lines
    assert re.search(rf"{re.escape(name)}\[0\]: assigned 0_0\b.*; 0 records restored", lines)


def test_an_edit_keeps_counts_and_a_rollback_goes_back(session: ks.Session, name: str) -> None:
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000 + i) for i in range(100)])
    app = session.deploy(counting(topic), name, config=EXACTLY_ONCE)
    assert app.wait(120)
    plan = app.edit(counting(topic, lambda key, value: value != "skip"), dry_run=True)
    assert plan.diff.code_only and not plan.applied
    assert "code only" in repr(plan) and "kept" in repr(plan)
    app.apply(plan)
    session.produce(topic, [("a", "skip", 2000), ("a", "word", 2001)])
    assert app.wait(60)
    assert counts(app) == {"a": 101}
    assert [version.number for version in app.versions] == [1, 2]
    app.rollback()
    session.produce(topic, [("a", "skip", 3000)])
    assert app.wait(60)
    assert counts(app) == {"a": 102}


@pytest.mark.slow
def test_an_edit_that_would_read_rows_wrongly_is_refused(session: ks.Session, name: str) -> None:
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000)])
    app = session.deploy(counting(topic), name, config=EXACTLY_ONCE)
    assert app.wait(120)
    other = ks.StreamsBuilder()
    words = other.stream(topic, key_serde="bytes", value_serde="string").filter(lambda key, value: True, name="kept")
    words.group_by_key(key_serde="bytes", value_serde="string").count(store="counts")
    with pytest.raises(TopologyError, match="counts"):
        app.edit(other)
    assert app.status == "running" and counts(app) == {"a": 1}


@pytest.mark.slow
def test_structure_can_change_under_a_kept_store(session: ks.Session, name: str) -> None:
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000)])
    app = session.deploy(counting(topic), name, config=EXACTLY_ONCE)
    assert app.wait(120)
    session.create_topic(f"{name}-out")
    builder = counting(topic)
    builder.stream(f"{name}-out", value_serde="string").group_by_key().count(store="second")
    app.edit(builder)
    session.produce(topic, [("a", "word", 2000)])
    session.produce(f"{name}-out", [("x", "word", 2000)])
    assert app.wait(60)
    assert counts(app) == {"a": 2}
    assert app.sql("SELECT count(*) FROM second").fetchall() == [(1,)]


@pytest.mark.slow
def test_an_application_is_found_again_with_its_state(session: ks.Session, name: str, broker: Any, tmp_path: Path) -> None:
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000)])
    app = session.deploy(counting(topic), name, config=EXACTLY_ONCE)
    assert app.wait(120)
    app.stop()
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as other:
        again = other.attach(name, counting(topic), config=EXACTLY_ONCE)
        other.produce(topic, [("a", "word", 2000)], key_serde="string", value_serde="string")
        again.resume()
        assert again.wait(120)
        assert counts(again) == {"a": 2}


@pytest.mark.slow  # test_detached.py and test_counts.py control an application from another kernel in the fast tier
def test_versions_and_program_outlive_the_kernel(session: ks.Session, name: str, broker: Any, tmp_path: Path) -> None:
    """Attach without the topology: from the session file that the journal confirms, and from nothing else."""
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000), ("b", "long", 1000)])
    app = session.deploy(counting(topic), name, config=EXACTLY_ONCE)
    assert app.wait(120)
    app.edit(counting(topic, lambda key, value: key == "a"))
    app.pause()
    path = session.files.path(name)
    text = path.read_text()
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as other:
        path.write_text(text.replace("key == 'a'", "key == 'b'").replace('key == \\"a\\"', "key == 'b'"))
        assert path.read_text() != text
        with pytest.raises(SessionFileError, match="hash"):
            other.attach(name)
        path.write_text(text)
        path.chmod(0o644)
        with pytest.raises(SessionFileError, match="0644"):
            other.attach(name)
        path.chmod(0o600)
        path.rename(path.with_suffix(".gone"))
        with pytest.raises(SessionFileError, match="no session file") as caught:
            other.attach(name)
        assert "builder" in (caught.value.hint or "")
        assert other.attach(name, trust=True).topology.describe() == app.topology.describe()
        other._applications.clear()
        path.with_suffix(".gone").rename(path)
        again = other.attach(name)
        assert (again.status, [version.number for version in again.versions]) == ("paused", [1, 2])
        assert again.config["processing.guarantee"] == "exactly_once_v2"
        assert counts(again) == {"a": 1, "b": 1}
        other.produce(topic, [("a", "word", 2000), ("b", "long", 2000)], key_serde="string", value_serde="string")
        again.resume()
        assert again.wait(120)
        assert counts(again) == {"a": 2, "b": 1}
        again.rollback()
        other.produce(topic, [("b", "long", 3000)], key_serde="string", value_serde="string")
        assert again.wait(120)
        assert counts(again) == {"a": 2, "b": 2}
        assert [version.number for version in again.versions] == [1, 2, 3]


W12 = """
session.produce(topic, [(f"k{j}", f"v{j}") for j in range(3)], key_serde="string", value_serde="string")
builder = ks.StreamsBuilder()
q = builder.stream(topic, key_serde="string", value_serde="string")
for j in range(2):
    q = q.map_values(lambda v, j=j: f"{v}{j}")
q.to(topic + "-out", key_serde="string", value_serde="string")
app = session.deploy(builder, name, create_topics=True)
"""


@pytest.mark.slow
def test_an_attach_produces_nothing_again(session: ks.Session, name: str, broker: Any, tmp_path: Path) -> None:
    """The cell's `session.produce` ran again in the attach, and the data were doubled."""
    topic, file = f"{name}-in", tmp_path / "cells.py"
    file.write_text(W12)
    space = {"__name__": "__main__", "ks": ks, "session": session, "topic": topic, "name": name}
    exec(compile(W12, str(file), "exec"), space)
    app: Any = space["app"]
    assert app.wait(120)
    app.stop()
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as other:
        again = other.attach(name)
        again.resume()
        assert again.wait(120)
        assert len(other.read(topic, None)) == 3
        found = {record.key: record.value for record in other.read(f"{topic}-out", None, key_serde="string", value_serde="string")}
        assert found == {f"k{j}": f"v{j}01" for j in range(3)}
        again.stop()


@pytest.mark.slow  # tests/spark/test_deployment.py and test_failed_record.py have the fast ones
def test_an_error_of_the_users_function_names_its_node_and_line(session: ks.Session, name: str) -> None:
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000)])
    builder = ks.StreamsBuilder()
    builder.stream(topic, key_serde="string", value_serde="string").map_values(lambda word: 1 / len(word[9:]), name="broken")
    app = session.deploy(builder, name)
    with pytest.raises(StreamsProcessingError, match="ZeroDivisionError") as caught:
        app.wait(120)
    assert caught.value.node == "broken"
    assert "1 / len(word[9:])" in str(caught.value)
    assert app.status == "failed"
    assert "✖ failed" in svg_of(app.picture())


ORPHAN = """
import sys, time
import kstreams_repl as ks
session = ks.connect(directory="temporary")
session.produce("words", [("a", "word", 1000)])
builder = ks.StreamsBuilder()
builder.stream("words", key_serde="string", value_serde="string").group_by_key().count(store="counts")
app = session.deploy(builder, "orphan")
assert app.wait(120)
print("running", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.integration
def test_killing_the_process_leaves_no_process_port_or_directory() -> None:
    """R16: the leak check around this test is the second half of it."""
    process = subprocess.Popen([sys.executable, "-c", ORPHAN], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "running"
    below = psutil.Process(process.pid).children(recursive=True)
    assert any("java" in child.name() for child in below)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    _, alive = psutil.wait_procs(below, timeout=10)
    assert alive == []
