"""An application whose driver is a process of its own: it outlives the kernel, and every kernel finds it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

import kstreams_repl as ks
from kstreams_repl.cli.apps import main
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.application.detached.mailbox import Mailbox, end
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import DeployError, DetachedApplicationError, KStreamsError, StreamsProcessingError
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


def connected(broker: Any, directory: Path, master: str | None = None) -> ks.Session:
    session = ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(directory), master=master)
    session.topic_configs["retention.ms"] = "-1"
    return session


def counts(app: ks.Application) -> dict[str, int]:
    return dict(app.sql("counts").df()[["key", "value"]].itertuples(index=False, name=None))


def family(app: ks.Application) -> list[psutil.Process]:
    """The driver process and all below it."""
    driver = app._core.driver_process.mailbox.driven  # type: ignore[union-attr]
    assert driver is not None
    process = psutil.Process(driver.pid)
    return [process, *process.children(recursive=True)]


KERNEL = """
import time
import kstreams_repl as ks

def sized(word):
    return len(word) > 0

session = ks.connect({bootstrap!r}, directory={directory!r}, report=lambda line: None)
builder = ks.StreamsBuilder()
words = builder.stream({topic!r}, key_serde="string", value_serde="string").filter(lambda key, value: sized(value), name="kept")
words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
app = session.deploy(builder, {name!r}, detached=True, processing_guarantee="exactly_once_v2", num_stream_threads=1)
assert app.wait(120), app
print("running", flush=True)
time.sleep(600)
"""


def kernel(broker: Any, directory: Path, name: str, topic: str) -> subprocess.Popen[str]:
    script = directory / "kernel.py"
    script.write_text(KERNEL.format(bootstrap=broker.bootstrap_servers, directory=str(directory), name=name, topic=topic))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "running"
    process.stdout.close()
    return process


@pytest.mark.slow
def test_it_goes_on_when_its_kernel_is_killed_and_another_one_controls_it(broker: Any, tmp_path: Path) -> None:
    name = f"apart-{uuid.uuid4().hex[:6]}"
    topic = f"{name}-in"
    with connected(broker, tmp_path) as session:
        session.produce(topic, [("a", "word", 1000), ("b", "word", 1000)], key_serde="string", value_serde="string")
        first = kernel(broker, tmp_path, name, topic)
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert session.detached == {name: "running"}
        with pytest.raises(DeployError, match="running, driven by process"):
            session.deploy(ks.StreamsBuilder(), name)
        with pytest.raises(KStreamsError, match="driven by process"):
            session.cleanup(name)
        session.produce(topic, [("a", "word", 2000)])
        app = session.attach(name)
        assert app._core.detached and "running, detached" in repr(app)
        assert app.wait(60) and counts(app) == {"a": 2, "b": 1}
        processes = family(app)
        assert any("java" in process.name() for process in processes)
        app.pause()
        session.produce(topic, [("b", "word", 3000)])
        assert app.status == "paused" and counts(app) == {"a": 2, "b": 1}
        app.resume()
        assert app.wait(60) and counts(app) == {"a": 2, "b": 2}
        # its counts, in all and of an edit; what a failure leaves when it is stopped
        app.edit(counting(topic, lambda key, value: 1 / len(value[3:]) > 0))
        session.produce(topic, [("a", "word", 3000)])
        assert app.wait(60) and counts(app) == {"a": 3, "b": 2}
        settle(lambda: app.counts.records == 5, "the counts")
        settle(lambda: app.counts.this_version is not None, "the counts of this version")
        mine = app.counts.this_version
        assert mine is not None and (mine.records, mine.nodes["kept"].given) == (1, 1)
        assert app.restarts == []
        session.produce(topic, [("a", "wor", 4000)])
        settle(lambda: app.status == "failed", "the failure")
        app.stop()
        assert app.status == "failed" and isinstance(app.error, StreamsProcessingError) and app.error.fields["node"] == "kept"
        settle(lambda: "5 records (1 since version 2) committed, lag 1" in repr(app), "the counts", story=lambda: app)
        assert session.applications[name].standing == "failed, detached"
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert alive == [] and session.detached == {}
        session._applications.clear()
        assert session.attach(name).status == "failed"  # another kernel sees it, too


def counting(topic: str, keep: Any = lambda key, value: True) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string").filter(keep, name="kept")
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    return builder


@pytest.mark.slow
def test_every_kernel_can_edit_it_and_knows_when_another_one_has(broker: Any, tmp_path: Path) -> None:
    name = f"apart-{uuid.uuid4().hex[:6]}"
    topic = f"{name}-in"
    with connected(broker, tmp_path) as here, connected(broker, tmp_path) as there:
        here.produce(topic, [("a", "word", 1000)])
        app = here.deploy(counting(topic), name, detached=True, processing_guarantee="exactly_once_v2", num_stream_threads=1)
        assert app.wait(120) and counts(app) == {"a": 1}
        other = there.attach(name)
        plan = other.edit(counting(topic, lambda key, value: value != "skip"))
        assert plan.applied and [version.number for version in other.versions] == [1, 2]
        here.produce(topic, [("a", "skip", 2000), ("a", "word", 2000)])
        assert other.wait(60) and counts(other) == {"a": 2}
        with pytest.raises(DetachedApplicationError, match="at version 2 by now"):
            app.edit(counting(topic, lambda key, value: value != "word"))
        app = here.attach(name)
        assert [version.number for version in app.versions] == [1, 2]
        app.rollback()
        here.produce(topic, [("a", "skip", 3000)])
        assert app.wait(60) and counts(app) == {"a": 3}
        assert other.status == "running" and other._core.outdated
        app.edit(counting(topic, lambda key, value: 1 / len(value[9:]) > 0))
        here.produce(topic, [("a", "word", 4000)])
        settle(lambda: app.status == "failed", "the failure", 60)
        assert isinstance(app.error, StreamsProcessingError) and app.error.fields["node"] == "kept"
        assert "1 / len(value[9:])" in str(app.error)
        app.rollback()
        assert app.wait(60) and app.error is None and counts(app) == {"a": 4}, "a failed one is resumed with the edit"
        processes = family(app)
        told = CliRunner().invoke(main, ["stop", "--state", str(tmp_path / "state"), name])
        assert told.exit_code == 0 and app.status == "stopped", told.output
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert alive == []


@pytest.mark.slow
def test_a_killed_driver_leaves_nothing_and_an_edit_starts_another(broker: Any, tmp_path: Path) -> None:
    name = f"apart-{uuid.uuid4().hex[:6]}"
    topic = f"{name}-in"
    with connected(broker, tmp_path) as session:
        session.produce(topic, [("a", "word", 1000)])
        app = session.deploy(counting(topic), name, detached=True, processing_guarantee="exactly_once_v2", num_stream_threads=1)
        assert app.wait(120)
        processes = family(app)
        processes[0].kill()
        _, alive = psutil.wait_procs(processes, timeout=30)
        assert alive == []
        assert app.status == "failed" and isinstance(app.error, DetachedApplicationError)
        with pytest.raises(DetachedApplicationError, match="ended by itself"):
            app.wait(5)
        session.produce(topic, [("a", "skip", 2000), ("a", "word", 2000)])
        app.edit(counting(topic, lambda key, value: value != "skip"))  # starts another process, with the new version
        assert app.wait(120) and counts(app) == {"a": 2}
        session.close()
        assert Mailbox(tmp_path / "state", name).driven is not None  # closing the session is not the end of it
        assert end(Mailbox(tmp_path / "state", name))


@pytest.mark.slow
def test_what_cannot_start_detached_is_told_and_leaves_no_process(broker: Any, tmp_path: Path) -> None:
    name = f"apart-{uuid.uuid4().hex[:6]}"
    topic = f"{name}-in"
    with connected(broker, tmp_path, "local[1]") as session:
        session.produce(topic, [("a", "word", 1000)])
        app = session.deploy(counting(topic), name, detached=True, num_stream_threads=4)
        with pytest.raises(DeployError, match="slots"):
            app.resume()
        assert app.status == "failed" and session.detached == {}
        assert session.cleanup(name).applied
