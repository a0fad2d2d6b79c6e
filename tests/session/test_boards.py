"""The board and the alerts of deploy/, asked of a real Prometheus that scrapes a real service."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from kstreams_repl.host.kafka.embedded.broker import free_port
from tests.session.test_detached import connected
from tests.session.test_service import EXACT, MODULE, ROOT, family, service
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]
VERSION = "v0.316.0"
SHORTER = {"1m": "5s", "2m": "5s", "5m": "10s", "10m": "20s", "15m": "5s"}
"""Durations of the rules, as long as the test has time for."""


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """Of the path, or built from its Go module, once for all clones."""
    if (there := shutil.which("prometheus")) is not None:
        return Path(there)
    if shutil.which("go") is None:
        pytest.skip("neither prometheus nor go is here")
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kstreams-tests"
    built = folder / f"prometheus-{VERSION}" / "prometheus"
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        (built.parent / "go.mod").write_text("module built\n")
        for command in (["get", f"github.com/prometheus/prometheus@{VERSION}"], ["build", "-tags", "remove_all_sd", "-o", ".", *PARTS]):
            subprocess.run(["go", *command], cwd=built.parent, env=os.environ | {"GOFLAGS": "-mod=mod"}, check=True, timeout=1500)
    return built


PARTS = ["github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool"]


class Monitor:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api/v1"

    def query(self, expression: str) -> list[Any]:
        answer = httpx.get(f"{self.url}/query", params={"query": expression}).json()
        assert answer["status"] == "success", (expression, answer)
        return [each for each in answer["data"]["result"] if each["value"][1] != "NaN"]

    def firing(self) -> set[str]:
        alerts = httpx.get(f"{self.url}/alerts").json()["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


@contextmanager
def watching(prometheus: Path, folder: Path, target: str, token: Path) -> Iterator[Monitor]:
    """Run Prometheus with the files of deploy/, for one target and with shorter durations."""
    given = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    given = given.replace("/etc/prometheus/kstreams.token", str(token)).replace("127.0.0.1:8080", target).replace("10s", "1s")
    (folder / "prometheus.yml").write_text("global: {evaluation_interval: 1s}\n" + given)
    rules = (ROOT / "deploy/prometheus/rules.yml").read_text()
    (folder / "rules.yml").write_text(re.sub(r"(?<=for: )\d+m|(?<=\[)\d+m(?=\])", lambda found: SHORTER[found[0]], rules))
    port = free_port()
    place = ["--config.file=prometheus.yml", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    log = folder / "prometheus.log"
    with log.open("wb") as file, subprocess.Popen([prometheus, *place], cwd=folder, stdout=file, stderr=file) as process:
        try:
            settle(lambda: _answers(port), "Prometheus", 60, story=lambda: log.read_text()[-2000:])
            yield Monitor(port)
        finally:
            process.terminate()
            process.wait()


def _answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def without_data(monitor: Monitor) -> list[str]:
    """The panels of the board of which a query finds nothing."""
    board = json.loads((ROOT / "deploy/grafana/kstreams.json").read_text())
    asked = [(panel["title"], target["expr"].replace("$application", ".*")) for panel in board["panels"] for target in panel["targets"]]
    return [title for title, expression in asked if not monitor.query(expression)]


def test_each_panel_has_data_and_alerts_fire_when_they_should(broker: Any, tmp_path: Path, prometheus: Path) -> None:
    name = f"watched-{uuid.uuid4().hex[:6]}"
    (tmp_path / "jobs.py").write_text(MODULE.format(name=name))
    log = tmp_path / "log"

    def fires(alert: str) -> Callable[[], bool]:
        return lambda: alert in monitor.firing()

    with connected(broker, tmp_path) as session, service(tmp_path, name, broker, "jobs:counted", *EXACT, "--http", "127.0.0.1:0") as run:
        session.produce(f"{name}-in", [("a", "word", 1000)], key_serde="string", value_serde="string")
        settle(lambda: "token in" in log.read_text(), "the server", 120, story=log.read_text)
        found = re.search(r"http://(\S+), token in (\S+)", log.read_text())
        assert found is not None
        token = tmp_path / "look"
        token.write_text(json.loads(Path(found[2]).read_text())["look"])
        with watching(prometheus, tmp_path, found[1], token) as monitor:
            feed = iter(range(2000, 10_000_000))

            def full() -> bool:
                session.produce(f"{name}-in", [("a", "word", next(feed))], key_serde="string", value_serde="string")
                return not without_data(monitor)

            settle(full, "data in every panel", 120, story=lambda: str(without_data(monitor)))
            assert monitor.firing() == set()
            session.produce(f"{name}-in", [(None, "word", next(feed))], key_serde="string", value_serde="string")
            settle(fires("KStreamsRecordsDropped"), "the alert of dropped records", 60)
            worker = _worker(run)
            worker.suspend()
            try:
                settle(fires("KStreamsInstanceSilent"), "the alert of an instance that is stopped", 60, story=lambda: str(monitor.firing()))
            finally:
                worker.resume()
            settle(lambda: "KStreamsInstanceSilent" not in monitor.firing(), "its end", 60)
            run.send_signal(signal.SIGTERM)
            run.wait(60)
            settle(fires("KStreamsDown"), "the alert of a service that has ended", 60)


def test_the_rules_are_what_prometheus_takes(prometheus: Path) -> None:
    tool = prometheus.with_name("promtool")
    for words in (["rules", "deploy/prometheus/rules.yml"], ["config", "--syntax-only", "deploy/prometheus/prometheus.yml"]):
        checked = subprocess.run([tool, "check", *words], cwd=ROOT, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout + checked.stderr


def _worker(run: subprocess.Popen[bytes]) -> psutil.Process:
    """The Python worker of the service's only instance: the process that has its stores open."""
    return next(each for each in family(run) if any(file.path.endswith(".mdb") for file in each.open_files()))
