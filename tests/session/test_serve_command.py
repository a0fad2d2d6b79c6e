"""`./kstreams serve APPLICATION` as a user calls it: a process of its own, while another one runs the application."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]


KERNEL = """
import sys
import kstreams_repl as ks

session = ks.connect({bootstrap!r}, directory={directory!r}, report=lambda line: None)
builder = ks.StreamsBuilder()
words = builder.stream({topic!r}, key_serde="string", value_serde="string")
words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
app = session.deploy(builder, {name!r}, config={{"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50}})
assert app.wait(120), app
print(app.status, flush=True)
for line in sys.stdin:
    print(app.status, flush=True)
session.close()
"""


class Running:
    """An application that another process runs. `status` asks that process."""

    def __init__(self, session: ks.Session, directory: Path) -> None:
        self.session, self.directory, self.name = session, directory, f"app-{uuid.uuid4().hex[:8]}"
        self.topic = f"{self.name}-in"
        session.topic_configs["retention.ms"] = "-1"
        self.write(500)
        bootstrap = session.client.settings.bootstrap_servers
        script = directory / "kernel.py"
        script.write_text(KERNEL.format(bootstrap=bootstrap, directory=str(directory / "session"), topic=self.topic, name=self.name))
        self.kernel = subprocess.Popen([sys.executable, str(script)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.kernel.stdout is not None
        assert self.kernel.stdout.readline() == "running\n"

    @property
    def status(self) -> str:
        assert self.kernel.stdin is not None and self.kernel.stdout is not None
        self.kernel.stdin.write("\n")
        self.kernel.stdin.flush()
        return self.kernel.stdout.readline().strip()

    def close(self) -> None:
        self.kernel.communicate(timeout=60)

    def write(self, count: int) -> None:
        self.session.produce(self.topic, [(f"k{n % 50}", "word") for n in range(count)], key_serde="string", value_serde="string")

    @contextmanager
    def served(self, *options: str) -> Iterator[Served]:
        """The command while it serves."""
        command = [sys.executable, "-P", "-m", "kstreams_repl.cli", "serve", self.name]
        bootstrap = self.session.client.settings.bootstrap_servers
        process = subprocess.Popen(
            [*command, "--bootstrap-servers", bootstrap, *options], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stderr is not None
        try:
            line = process.stdout.readline()
            assert ", token in " in line, process.stderr.read()
            url, _, path = line.strip().partition(", token in ")
            served = Served(url, path)
            yield served
            process.send_signal(signal.SIGINT)
            served.said = process.communicate(timeout=30)[1]
            assert process.returncode == 0, served.said
            with pytest.raises(httpx.ConnectError):
                served.get("/health")
        finally:
            process.kill()
            process.communicate()


class Served:
    """The server that the command has started."""

    def __init__(self, url: str, token_path: str) -> None:
        self.url, self.token_path, self.said = url, token_path, ""
        self.token = json.loads(Path(token_path).read_text())["look"]

    def get(self, path: str, token: str | None = None, **query: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        return httpx.get(self.url + path, params=query, headers=headers, trust_env=False, timeout=30)


@pytest.fixture
def running(broker: Any, tmp_path: Path) -> Iterator[Running]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path / "own")) as session:
        made = Running(session, tmp_path)
        yield made
        made.close()


def expect_routes(running: Running, served: Served) -> None:
    """Every kind of route answers as the application's own server does, and follows what it commits."""
    assert served.get("/state/stores/counts/k1").json()["value"] == 10
    assert served.get("/state/stores/counts/k1", token="wrong").status_code == 401
    assert httpx.get(f"{served.url}/state/stores/counts/k1", trust_env=False).status_code == 401
    assert served.get("/sql", q="SELECT count(*) AS n, sum(value) AS s FROM counts").json()["rows"] == [[50, 500]]
    assert served.get("/sql", q="SELECT * FROM read_csv('/etc/passwd')").status_code == 400
    assert len(served.get("/state/range/counts", limit="1000").json()["rows"]) == 50
    assert served.get("/health").json()["running"] is True
    assert served.get("/metadata").json()["stores"]["counts"].keys() == {"0", "1", "2", "3"}
    page = httpx.get(served.url, auth=("me", served.token), trust_env=False)
    assert page.status_code == 200 and "<html" in page.text
    with ks.queries.connect(served.url, token=served.token_path) as state:
        events = state.subscribe("counts")
        assert sum(next(events)["event"] == "row" for _ in range(50)) == 50 and next(events)["event"] == "snapshot"
        running.write(50)
        changes = [next(events) for _ in range(50)]
        assert {(change["event"], change["value"]) for change in changes} == {("change", 11)}
        events.close()
    settle(lambda: served.get("/state/stores/counts/k1").json()["value"] == 11, "the new value")


def test_it_serves_what_another_process_runs_with_the_text_of_its_topology(running: Running, tmp_path: Path) -> None:
    with running.served("--directory", str(tmp_path / "session")) as served:
        expect_routes(running, served)
        with httpx.stream("GET", f"{served.url}/page/changes", auth=("me", served.token), trust_env=False) as events:
            state = json.loads(next(line for line in events.iter_lines() if line.startswith("data: "))[6:])
        assert "<svg" in state["svg"] and state["status"] == "running"
    assert served.said == ""
    assert running.status == "running"  # the end of its server does not stop it


def test_it_serves_by_the_catalogue_where_the_text_is_not(running: Running, tmp_path: Path) -> None:
    with running.served("--directory", str(tmp_path / "other"), "--state-dir", str(tmp_path / "session" / "state")) as served:
        expect_routes(running, served)
    (tmp_path / "session" / "sessions").rename(tmp_path / "sessions")
    with running.served("--directory", str(tmp_path / "session")) as served:
        assert served.get("/state/stores/counts/k1").json()["value"] == 11
    assert "the stores are those of the catalogue" in served.said
    assert running.status == "running"


def test_its_health_says_that_the_kernel_was_killed(running: Running, tmp_path: Path) -> None:
    """The last order in the journal still says running."""
    with running.served("--directory", str(tmp_path / "session")) as served:
        assert served.get("/health").json()["running"] is True
        running.kernel.kill()
        settle(lambda: served.get("/health").status_code == 503, "the silence to be noticed", 60)
        health = served.get("/health").json()
        assert health["running"] is False and health["last_report_seconds"] >= 15
        assert served.get("/state/stores/counts/k1").status_code in (200, 503)
