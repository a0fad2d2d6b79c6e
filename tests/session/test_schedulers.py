"""The examples of docs/tasks/batch.md, run by Airflow and Dagster themselves, in an environment of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from tests.environments import installed

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
PACKAGES = ("apache-airflow==3.3.2", "dagster==1.13.29")
MODULE = """
import kstreams_repl as ks

def daily():
    builder = ks.StreamsBuilder()
    flights = builder.stream("{name}-in", key_serde="string", value_serde="string")
    counts = flights.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    counts.to_stream().to("{name}-out", key_serde="string", value_serde="long")
    return builder
"""


class Site:
    """The directory of the examples: a module with the topology, and `./kstreams` of this checkout."""

    def __init__(self, folder: Path, servers: str, name: str) -> None:
        self.folder, self.servers = folder, servers
        folder.mkdir()
        (folder / "flights.py").write_text(MODULE.format(name=name))
        command = folder / "kstreams"
        command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m kstreams_repl.cli "$@" --directory state\n')
        command.chmod(0o755)

    def example(self, word: str) -> str:
        """Return the example of the page that has this word, for this directory and broker."""
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tasks" / "batch.md").read_text(), re.DOTALL)
        (found,) = [block for block in blocks if word in block]
        assert "/srv/flights" in found and "localhost:9092" in found
        return str(found).replace("/srv/flights", str(self.folder)).replace("localhost:9092", self.servers)

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return found


def run(command: list[Any], folder: Path, **variables: str) -> tuple[int, str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=clean | variables, capture_output=True, text=True)
    print(done.stdout + done.stderr)  # -s shows what the tools say
    return done.returncode, done.stdout + done.stderr


def test_airflow_and_dagster_run_the_examples(broker: Any, tmp_path: Path) -> None:
    tools = installed(tmp_path / "tools", *PACKAGES).parent
    name = f"plan{os.getpid()}"
    site = Site(tmp_path / "site", broker.bootstrap_servers, name)
    airflow = {"AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    dagster = {"DAGSTER_HOME": str(tmp_path / "dagster"), "DAGSTER_DISABLE_TELEMETRY": "1"}
    (tmp_path / "airflow" / "dags").mkdir(parents=True)
    (tmp_path / "dagster").mkdir()
    (tmp_path / "airflow" / "dags" / "flights_dag.py").write_text(site.example("airflow"))
    (tmp_path / "dagster" / "flights_assets.py").write_text(site.example("dagster"))

    def by_airflow() -> tuple[int, str]:
        return run([tools / "airflow", "dags", "test", "flights"], tmp_path, **airflow)

    def by_dagster() -> tuple[int, str]:
        job = [tools / "dagster", "job", "execute", "-f", tmp_path / "dagster" / "flights_assets.py", "-j", "nightly"]
        return run(job, tmp_path, **dagster)

    with ks.connect(broker.bootstrap_servers, directory=tmp_path / "mine", prestart=False) as session:
        for topic in (f"{name}-in", f"{name}-out"):
            session.create_topic(topic, partitions=2)
        session.produce(f"{name}-in", [(key, key) for key in "abcab"])
        assert run([tools / "airflow", "db", "migrate"], tmp_path, **airflow)[0] == 0
        status, said = by_airflow()
        assert status == 0 and "state=success" in said, said
        assert (site.report()["state"], site.report()["run"], site.report()["records_in"]) == ("finished", 1, 5), said

        session.produce(f"{name}-in", [(key, key) for key in "ab"])
        status, said = by_dagster()
        assert status == 0 and "RUN_SUCCESS" in said, said
        assert (site.report()["state"], site.report()["run"], site.report()["records_in"]) == ("finished", 2, 2), said

        status, said = by_airflow()
        assert status == 0 and "nothing new" in said, said
        last = {record.key: record.value for record in session.read(f"{name}-out", None, key_serde="string", value_serde="long")}
        assert last == {"a": 3, "b": 3, "c": 1}

        (site.folder / "flights.py").write_text("import kstreams_repl as ks\n")
        status, said = by_dagster()
        assert status != 0 and "exit status 2" in said, "a refused run is a failed one, without a retry"
        assert site.report()["state"] == "refused" and "UP_FOR_RETRY" not in said, said
