"""R16: the kernel is interrupted or killed at random moments of deploy, pause and edit: the old state or the new one, never half, and
nothing of a killed kernel is left.

Every version of the topology writes its own tag beside each input, so the output tells which version a record went through, once.
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
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.application.starting.journal_lookup import journal_of
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import KStreamsError
from tests.faults.counts import full
from tests.faults.kernel_process import tagging
from tests.faults.reliability import note
from tests.spark.hosting import settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(3000)]

ROOT = Path(__file__).resolve().parents[2]
SEED = int(os.environ.get("KSTREAMS_SEED", "16"))
SETTINGS = {"processing.guarantee": "exactly_once_v2", "num.stream.threads": 1, "commit.interval.ms": 50}


class Notebook:
    """What one user has: an application whose topology is changed again and again, and all that was put in."""

    def __init__(self, session: ks.Session, name: str) -> None:
        self.session, self.name = session, name
        self.source, self.sink = f"{name}-in", f"{name}-out"
        session.create_topic(self.source, partitions=2)
        session.create_topic(self.sink, partitions=2)
        self.sent = 0

    def put(self) -> str:
        """One more record; its value, which no other has."""
        self.session.produce(self.source, [(f"k{self.sent % 5}", str(self.sent))], key_serde="string", value_serde="string")
        self.sent += 1
        return str(self.sent - 1)

    def outputs(self) -> dict[str, str]:
        """Which tag each input came out with. Committed records only; one that came out twice fails."""
        found: dict[str, str] = {}
        for record in self.session.read(self.sink, None, key_serde="string", value_serde="string"):
            value, tag = record.value.split(":")
            assert value not in found, f"{value} came out twice: {found[value]} and {tag}"
            found[value] = tag
        return found

    def check(self, app: ks.Application, tags: set[str]) -> str:
        """All that was put in came out once; what is put in now comes out with the tag of the version that the application, its session
        file and the journal call the present one. Returns it.
        """
        value = self.put()
        app.resume()
        assert app.wait(120), app
        out = self.outputs()
        assert sorted(out) == sorted(str(n) for n in range(self.sent))
        tag = out[value]
        assert tag in tags, (tag, tags)
        desired = journal_of(self.session.client, self.name).desired
        present = app.versions[-1]
        assert desired is not None and desired.version == present.number
        saved = self.session.files.read(self.name).version(present.number)  # one behind it never reached the journal: it is no version
        assert saved is not None and f"'{tag}'" in saved.text.replace('"', "'")
        return tag


class Interrupted:
    """Runs calls and interrupts them as a kernel does: a KeyboardInterrupt in this thread, at a random moment of the call."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._armed = False
        self._usual = 0.3
        self.hits = 0

    def __enter__(self) -> Interrupted:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def run(self, call: Callable[[], Any]) -> bool:
        """Whether the call was interrupted; otherwise it came to its end."""
        timer = threading.Timer(self._chance.random() * self._usual, lambda: os.kill(os.getpid(), signal.SIGINT))
        began = time.monotonic()
        try:
            self._armed = True
            timer.start()
            call()
            self._armed = False
        except KeyboardInterrupt:
            self.hits += 1
            return True
        finally:
            self._armed = False
            timer.cancel()
            timer.join()
        self._usual = max(self._usual, time.monotonic() - began)
        return False

    def _on_signal(self, number: int, frame: Any) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def at_rest(app: ks.Application) -> None:
    """Wait for what was begun before the interrupt."""
    settle(lambda: app._core.starting is None or app._core.starting.done, "the start")
    with app._core.control:
        return


def deploy(notebook: Notebook, tag: str) -> ks.Application:
    source, sink = notebook.source, notebook.sink
    return notebook.session.deploy(tagging(source, sink, tag), notebook.name, config=SETTINGS).resume()


def edit(app: ks.Application, notebook: Notebook, tag: str) -> None:
    source, sink = notebook.source, notebook.sink
    app.edit(tagging(source, sink, tag))


# Python drops an interrupt that comes inside a weak reference's callback or a destructor, and says so.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("times", [3, pytest.param(full(100), marks=pytest.mark.slow)])
def test_an_interrupted_call_is_done_or_not_begun(session: ks.Session, times: int) -> None:
    chance = random.Random(SEED)
    notebook = Notebook(session, f"r16-{uuid.uuid4().hex[:6]}")
    verbs = ["deploy", "edit", "pause", "edit", "deploy"]
    tag = "v0"
    app = deploy(notebook, tag)
    with Interrupted(chance) as kernel:
        number = 0
        while number < times or (not kernel.hits and number < 10 * times):
            verb = verbs[number % len(verbs)]
            number += 1
            new = f"v{number}"
            if verb == "deploy":
                app.stop()
                kernel.run(partial(deploy, notebook, new))
                app = session.applications[notebook.name]
                at_rest(app)
            elif verb == "edit":
                kernel.run(partial(edit, app, notebook, new))
                at_rest(app)
                assert app.status == "running", (SEED, number, app, app.error)
            else:
                kernel.run(app.pause)
                at_rest(app)
                assert app.status in ("running", "paused"), (SEED, number, app, app.error)
            tag = notebook.check(app, {tag, new})
    assert kernel.hits > 0
    what = f"the kernel is interrupted in deploy, edit and pause{'' if times >= 100 else ' (sample)'}"
    note("R16", what, number, 0, interrupted=kernel.hits)


def kernel_process(directory: Path, bootstrap: str, name: str, first: int) -> subprocess.Popen[str]:
    """A kernel that deploys or attaches, then pauses, resumes and edits until it is killed; a line before and after each."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.kernel_process", bootstrap, str(directory), name, str(first)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory / "tmp"), "SPARK_LOCAL_DIRS": str(directory / "tmp")},
    )


@pytest.mark.integration
@pytest.mark.slow
def test_a_killed_kernel_leaves_the_old_state_or_the_new_one(session: ks.Session, broker: Any, tmp_path: Path) -> None:
    """The sample of the fast tier, which has a broker of its own to lose as well, is in tests/session/test_on_spark.py."""
    times = full(20)
    chance = random.Random(SEED)
    notebook = Notebook(session, f"r16-{uuid.uuid4().hex[:6]}")
    (tmp_path / "tmp").mkdir()
    tags, number = {"none"}, 0
    for trial in range(times):
        kernel = kernel_process(tmp_path, broker.bootstrap_servers, notebook.name, number)
        assert kernel.stdout is not None
        for _ in range(chance.randrange(1, 8)):
            said = kernel.stdout.readline().split()
            assert said, (SEED, trial, kernel.wait())
            if said[0] == "begin":
                tags = tags | {said[2]} if said[1] in ("deploy", "edit") else tags
            else:
                tags = {said[2]}
            number = max(number, int(said[2].removeprefix("v")) + 1)
        time.sleep(chance.random() * 0.3)
        below = psutil.Process(kernel.pid).children(recursive=True)
        kernel.send_signal(signal.SIGKILL)
        kernel.wait()
        tags |= {line.split()[2] for line in kernel.stdout if line.split()[1] in ("deploy", "edit")}
        number = max([number, *(int(tag[1:]) + 1 for tag in tags if tag != "none")])
        kernel.stdout.close()
        _, alive = psutil.wait_procs(below, timeout=10)
        assert alive == [], (SEED, trial)
        ports = [c for c in psutil.net_connections("tcp") if c.pid in {process.pid for process in below}]
        assert ports == []
        settle(lambda: not any((tmp_path / "tmp").iterdir()), "its directories to go", 10, lambda: list((tmp_path / "tmp").iterdir()))
        try:
            app = session.attach(notebook.name)
        except KStreamsError:  # it never got to run: there is no state but the old one, none
            assert "none" in tags, (SEED, trial, tags)
            continue
        tags = {notebook.check(app, tags)}
        app.stop()
        session._applications.clear()
    note("R16", "the kernel is killed in deploy, edit and pause", times, 0)
