"""A notebook's application as a package: its own test passes, and its main deploys it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.application.application import handle_on
from kstreams_repl.repl.session.application.edits.versions import VersionHistory
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.source.source_slice import program_of

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path / "session")) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def counting(topic: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string").filter(lambda key, word: word != "x", name="kept")
    counts = words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    counts.to_stream().to(f"{topic}-out", key_serde="string", value_serde="long")
    return builder


def kept_application(session: ks.Session, name: str, builder: ks.StreamsBuilder) -> ks.Application:
    """An application with its text kept, not started."""
    config = session.client.application_config(name, {"commit.interval.ms": 50})
    history = VersionHistory(session.files, name)
    topology = builder.build(config)
    topic = f"{name}-in"
    program = program_of(counting(topic), topology)
    if program.missing:  # the call above is no deploy; say what a deploy would say
        from kstreams_repl.repl.session.source.source_slice import deployed_as

        with deployed_as("counting(topic)"):
            program = program_of(builder, topology)
    history.keep(program, topology, config)
    return handle_on(session._applications.create(name, topology, config, history))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


@pytest.fixture
def package(session: ks.Session, tmp_path: Path) -> tuple[str, Path]:
    name = f"exp-{uuid.uuid4().hex[:8]}"
    session.produce(f"{name}-in", [(f"k{i % 3}", "x" if i % 5 == 0 else f"w{i}", 1000 + i) for i in range(100)])
    session.create_topic(f"{name}-in-out")
    app = kept_application(session, name, counting(f"{name}-in"))
    return name, app.export(tmp_path / "package")


@pytest.mark.slow
def test_the_exported_test_passes_and_fails_when_behaviour_changes(package: tuple[str, Path]) -> None:
    name, folder = package
    passed = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    text = (folder / "app.py").read_text()
    (folder / "app.py").write_text(text.replace("word != 'x'", "word != 'y'").replace('word != "x"', 'word != "y"'))
    assert (folder / "app.py").read_text() != text
    assert run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider").returncode == 1


@pytest.mark.spark
@pytest.mark.slow
def test_the_exported_main_deploys(package: tuple[str, Path], session: ks.Session) -> None:
    name, folder = package
    done = run(folder, "app.py", "--broker", session.bootstrap_servers, "--directory", str(folder / "state"), "--until-caught-up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "80 records" in done.stdout or "100 records" in done.stdout
    finals = {record.key: record.value for record in session.read(f"{name}-in-out", None, key_serde="string", value_serde="long")}
    assert sum(finals.values()) == 80


@pytest.mark.spark
@pytest.mark.slow
def test_the_exported_main_makes_bounded_runs_with_exit_status_and_report(package: tuple[str, Path], session: ks.Session) -> None:
    name, folder = package
    report = folder / "out.json"

    def batch(*more: str) -> tuple[int, dict[str, Any]]:
        common = ("--broker", session.bootstrap_servers, "--directory", str(folder / "state"), "--report", str(report))
        done = run(folder, "app.py", "--batch", *common, *more)
        return done.returncode, json.loads(report.read_text()) if report.exists() else {"said": done.stderr}

    status, told = batch("--config", "no.such.setting=1")
    assert (status, told["state"]) == (2, "refused"), told
    status, told = batch("--config", "no-value")
    assert (status, told["state"]) == (2, "refused"), told
    status, told = batch("--stop-at", "records:10")
    assert (status, told["state"], told["run"]) == (0, "finished", 1) and 0 < told["records_in"] <= 40, told
    first = told["records_in"]
    status, told = batch()
    assert (status, told["run"], told["records_in"]) == (0, 2, 100 - first), told
    status, told = batch()
    assert (status, told["state"]) == (0, "nothing new"), told
    status, told = batch("--on-end", "close_windows")
    assert (status, told["state"], told["run"], told["records_in"]) == (0, "finished", 3, 0), told  # its windows were kept
