"""``./kstreams run`` as a supervisor starts it, and what notebooks and the other commands see of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from kstreams_repl.host.kafka.embedded.broker import free_port
from tests.session.test_detached import connected, counts
from tests.spark.hosting import settle
from tests.unit.serving.test_server_limits import certificate

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
EXACT = ("--config", "processing.guarantee=exactly_once_v2")
MODULE = '''
import kstreams_repl as ks

def counted(keep=lambda key, value: value != "skip"):
    builder = ks.StreamsBuilder()
    words = builder.stream("{name}-in", key_serde="string", value_serde="string").filter(keep, name="kept")
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    return builder

def mended():
    return counted(lambda key, value: value[:1] != "s")

def unlike():
    return counted(lambda key, value: True)

def otherwise():
    builder = ks.StreamsBuilder()
    numbers = builder.stream("{name}-in", key_serde="string", value_serde="string").map_values(lambda value: 1.5)
    numbers.group_by_key(key_serde="string", value_serde="double").reduce(max, store="counts")
    return builder
'''


def command(folder: Path, name: str, broker: Any, *words: str) -> list[str]:
    place = ["--name", name, "--broker", broker.bootstrap_servers, "--directory", str(folder)]
    return [sys.executable, "-m", "kstreams_repl.cli", *words, *place]


def ended(folder: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command(folder, *arguments), cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@contextmanager
def service(folder: Path, name: str, broker: Any, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KSTREAMS_CONFIG_NUM_STREAM_THREADS": "1"}
    log = (folder / "log").open("wb")
    process = subprocess.Popen(command(folder, name, broker, "run", *options), cwd=folder, env=environment, stderr=log, stdout=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        log.close()


def family(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    driver = psutil.Process(process.pid)
    return [driver, *driver.children(recursive=True)]


@pytest.mark.slow
def test_a_service_is_watched_edited_drained_upgraded_and_ended_at_once(broker: Any, tmp_path: Path) -> None:
    name = f"service-{uuid.uuid4().hex[:6]}"
    (tmp_path / "jobs.py").write_text(MODULE.format(name=name))
    here = (tmp_path, name, broker)
    with connected(broker, tmp_path) as session:
        session.produce(f"{name}-in", [("a", "word", 1000), ("b", "skip", 1000)], key_serde="string", value_serde="string")
        planned = ended(*here, "plan", "jobs:counted")
        assert planned.returncode == 2 and f"{name}-counts-changelog" in planned.stdout
        with service(*here, "jobs:counted", *EXACT, "--http", "127.0.0.1:0", "--log", "json") as run:
            settle(lambda: "token in" in (tmp_path / "log").read_text(), "the server", 120, story=lambda: (tmp_path / "log").read_text())
            lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
            assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
            url = next(line["message"].partition(",")[0] for line in lines if "token in" in line["message"])
            ready = f"{url}/health/ready"
            settle(lambda: httpx.get(ready).status_code == 200, "ready", 60, story=lambda: httpx.get(ready).text)
            assert httpx.get(f"{url}/health/live").json() == {"live": True} and httpx.get(f"{url}/metrics").status_code == 401
            second = ended(*here, "run", "jobs:counted")
            assert second.returncode == 2 and f"driven by process {run.pid}" in second.stderr
            same = ended(*here, "plan", "jobs:counted", *EXACT, "--config", "num.stream.threads=1")
            assert same.returncode == 0, same.stdout
            apart = ended(*here, "plan", "jobs:otherwise", "--json")
            assert apart.returncode == 1 and any("counts" in change["name"] for change in json.loads(apart.stdout)["changes"])
            app = session.attach(name)
            assert app.wait(60) and counts(app) == {"a": 1} and app.status == "running"
            like_it = ended(*here, "compare", "jobs:mended", "--fail-on", "changed")
            assert like_it.returncode == 0 and "2 input records from" in like_it.stdout, (like_it.stdout, like_it.stderr)
            unlike = ended(*here, "compare", "jobs:unlike", "--json")
            assert unlike.returncode == 2 and json.loads(unlike.stdout)["first"]["node"] == "kept", (unlike.stdout, unlike.stderr)
            app.pause()
            settle(lambda: httpx.get(ready).status_code == 503, "not ready", 30)
            app.resume()
            processes = family(run)
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 0, (tmp_path / "log").read_text()
            _, alive = psutil.wait_procs(processes, timeout=30)
            assert alive == []
        assert ended(*here, "run", "jobs:otherwise").returncode == 2  # rows of another type: refused, nothing is started
        with service(*here, "jobs:mended", *EXACT) as run:  # an upgrade keeps the state
            session.produce(f"{name}-in", [("a", "word", 2000), ("b", "some", 2000)])
            settle(lambda: session.detached.get(name) == "running", "the upgrade", 120, story=lambda: (tmp_path / "log").read_text())
            app = session.attach(name)
            assert app.wait(60) and counts(app) == {"a": 2} and [version.number for version in app.versions] == [1, 2]
            processes = family(run)
            run.send_signal(signal.SIGTERM)
            run.send_signal(signal.SIGINT)
            assert run.wait(60) in (0, 130, 143)
            _, alive = psutil.wait_procs(processes, timeout=30)
            assert alive == []
        with service(*here, "jobs:mended", *EXACT) as run:
            session.produce(f"{name}-in", [("a", None, 3000)])  # the function raises on it
            assert run.wait(120) == 1
            told = (tmp_path / "log").read_text()
            assert "kept" in told and "it is safe to run it again" in told
        assert session.attach(name).status == "failed"


@pytest.mark.slow
def test_a_standby_elsewhere_and_a_take_over_go_on_from_the_last_commit(broker: Any, tmp_path: Path) -> None:
    """Each folder is a host of its own: they share the broker alone."""
    name = f"service-{uuid.uuid4().hex[:6]}"
    first, second, third = (tmp_path / each for each in ("first", "second", "third"))
    for folder in (first, second, third):
        folder.mkdir()
        (folder / "jobs.py").write_text(MODULE.format(name=name))

    def says(folder: Path, text: str) -> None:
        settle(lambda: text in (folder / "log").read_text(), text, 120, story=lambda: (folder / "log").read_text())

    with connected(broker, first) as session:
        given = {"key_serde": "string", "value_serde": "string"}
        session.produce(f"{name}-in", [("a", "word", 1000), ("b", "skip", 1000)], **given)
        with service(first, name, broker, "jobs:counted", *EXACT, "--standby") as primary, contextlib.ExitStack() as later:
            says(first, "runs, version 1")
            refused = ended(second, name, broker, "run", "jobs:counted")
            assert refused.returncode == 2 and f"{name} is driven by a process on 127.0.0.1" in refused.stderr
            own, port = certificate(tmp_path, "own"), free_port()
            front = ("--http", f"127.0.0.1:{port}", "--certfile", str(own[0]), "--keyfile", str(own[1]))
            standby = later.enter_context(service(second, name, broker, "jobs:counted", *EXACT, "--standby", *front))
            says(second, "standby:")
            trusted = ssl.create_default_context(cafile=own[0])
            probes = later.enter_context(httpx.Client(base_url=f"https://127.0.0.1:{port}/health", verify=trusted, trust_env=False))
            assert probes.get("/live").status_code == 200 and probes.get("/ready").status_code == 503
            workers = family(primary)
            primary.kill()
            says(second, "runs, version")
            says(second, "token in")
            settle(lambda: probes.get("/ready").status_code == 200, "ready", 60, story=lambda: probes.get("/ready").text)
            assert psutil.wait_procs(workers, timeout=30)[1] == []
            session.produce(f"{name}-in", [("a", "word", 2000), ("b", "some", 2000)], **given)
            settle(lambda: _counts(session, name) == {"a": 2, "b": 1}, "the counts", 60, story=lambda: _counts(session, name))
            elsewhere = later.enter_context(service(third, name, broker, "jobs:mended", *EXACT, "--take-over"))
            says(third, "runs, version")
            assert standby.wait(60) == 3 and "took" in (second / "log").read_text()
            (third / "log").rename(third / "log-before")
            upgrade = later.enter_context(service(third, name, broker, "jobs:counted", *EXACT, "--take-over"))
            says(third, "runs, version")
            assert elsewhere.wait(60) == 0
            session.produce(f"{name}-in", [("a", "word", 3000), ("b", "some", 3000)], **given)
            settle(lambda: _counts(session, name) == {"a": 3, "b": 2}, "the counts", 60, story=lambda: _counts(session, name))
            bad = ended(third, name, broker, "run", "jobs:otherwise", "--take-over")
            assert bad.returncode == 2 and upgrade.poll() is None, bad.stderr  # refused before anything stops


def _counts(session: Any, name: str) -> dict[str, int]:
    """Of the changelog, by a plain consumer."""
    return {record.key: record.value for record in session.read(f"{name}-counts-changelog", key_serde="string", value_serde="long")}
