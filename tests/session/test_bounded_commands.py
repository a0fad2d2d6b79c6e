"""`./kstreams run --batch` and `./kstreams reset` as a scheduler calls them: processes of their own, and their exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
MODULE = '''
import kstreams_repl as ks

def {name}():
    builder = ks.StreamsBuilder()
    words = builder.stream("{name}-in", key_serde="string", value_serde="string")
    counts = words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    counts.to_stream().to("{name}-out", key_serde="string", value_serde="long")
    return builder

def through():
    builder = ks.StreamsBuilder()
    builder.stream("{name}-in", key_serde="string", value_serde="string").to("{name}-out", key_serde="string", value_serde="string")
    builder.stream("{name}-out", key_serde="string", value_serde="string").to("{name}-in", key_serde="string", value_serde="string")
    return builder

def unmade():
    return ks.NoSuchName()

def table():
    builder = ks.StreamsBuilder()
    words = builder.stream("{name}-in", key_serde="string", value_serde="string")
    words.to_table_files("{name}-files", key_column="word", name="files")
    return builder

def elsewhere():
    builder = ks.StreamsBuilder()
    words = builder.stream("{name}-in", key_serde="string", value_serde="string")
    words.to(lambda key, value, metadata: "{name}-nowhere", key_serde="string", value_serde="string")
    return builder

def broken():
    builder = ks.StreamsBuilder()
    words = builder.stream("{name}-in", key_serde="string", value_serde="string")
    words.map_values(lambda word: 1 / 0, name="broken").to("{name}-out", key_serde="string", value_serde="string")
    return builder
'''


def test_commands_and_their_exit_status(broker: Any, tmp_path: Path) -> None:
    name = f"cmd{os.getpid()}"
    (tmp_path / "jobs.py").write_text(MODULE.format(name=name))
    report = tmp_path / "out.json"
    common = ("--broker", broker.bootstrap_servers, "--directory", str(tmp_path / "state"))

    def command(*arguments: str) -> tuple[int, str, float]:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "kstreams_repl.cli", *arguments, *common],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr, time.monotonic() - began

    def run(what: str, *more: str) -> tuple[int, str, float]:
        return command("run", f"jobs:{what}", "--batch", "--report", str(report), "--config", "processing.guarantee=exactly_once_v2", *more)

    with ks.connect(broker.bootstrap_servers, directory=tmp_path / "mine", prestart=False) as session:
        for topic in (f"{name}-in", f"{name}-out"):
            session.create_topic(topic, partitions=2)
        session.produce(f"{name}-in", [(key, key) for key in "abcab"])
        status, said, _ = run(name)
        told = json.loads(report.read_text())
        assert status == 0 and "run 1: 5 records in" in said, said
        assert (told["state"], told["records_in"], told["run"]) == ("finished", 5, 1), told

        status, said, seconds = run(name)
        assert status == 0 and "nothing new" in said and json.loads(report.read_text())["state"] == "nothing new", said
        assert seconds < 15

        status, said, _ = run("through")
        assert status == 2 and "writes and reads" in said and json.loads(report.read_text())["state"] == "refused", said
        status, said, _ = run("nothing-of-that-name")
        assert status == 2 and "has no" in said, said
        status, said, _ = run("unmade")
        assert status == 2 and "NoSuchName" in said and json.loads(report.read_text())["state"] == "refused", said
        status, said, _ = run("table")
        told = json.loads(report.read_text())
        assert status == 0 and "5 records in, 5 out, " in said, said
        (written,) = told["tables"]
        files = list((tmp_path / f"{name}-files").glob("*.parquet"))
        assert (written["node"], written["rows"], written["files"]) == ("files", 5, len(files)), told
        assert written["bytes"] == sum(file.stat().st_size for file in files)
        status, said, _ = run("broken")
        assert status == 1 and "safe to run it again" in said and json.loads(report.read_text())["state"] == "failed", said

        status, said, _ = run("elsewhere")
        assert status == 1 and f"{name}-nowhere" in said and "safe to run it again" in said, f"not refused before the start: {said}"

        status, said, _ = command("reset", name, "--dry-run")
        assert status == 0 and "delete topic" in said and " -> 0" in said, said
        before = session.admin.committed_offsets(name, stable=False)
        assert sum(at.offset for at in before.values()) == 5
        status, said, _ = command("reset", name, "--to-earliest", "--shift-by", "1")
        assert status == 2, said
        status, said, _ = command("reset", name, "--delete-stopoffsets")
        assert status == 0 and "nothing to reset" in said, said
        assert session.admin.committed_offsets(name, stable=False) == before, "the last run is finished, and nothing else was asked for"
        status, said, _ = command("reset", name, "--input-topics", f"{name}-in")
        assert status == 0 and "is reset" in said, said
        assert sum(at.offset for at in session.admin.committed_offsets(name, stable=False).values()) == 0
        assert f"{name}-counts-changelog" not in session.admin.topics()

        session.produce(f"{name}-in", [("a", "a")])
        status, said, _ = run(name)
        told = json.loads(report.read_text())
        assert status == 0 and (told["records_in"], told["run"]) == (6, 2), (said, told)
        rows = session.sql(f'SELECT key, list(value ORDER BY "offset") FROM "{name}-out" GROUP BY key').fetchall()
        assert {key: int.from_bytes(values[-1], "big") for key, values in rows} == {"a": 3, "b": 2, "c": 1}, "state began again at zero"
