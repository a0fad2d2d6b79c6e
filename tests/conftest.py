"""What all tests share: a scratch directory of their own, the leak check, the embedded broker.

The leak check runs around every test marked ``kafka``, ``spark``, ``integration`` or ``browser``. Everything that the test run starts
carries one environment variable, so that a process is found wherever it has gone, also when it left its parent; everything written
to a temporary directory lands in one folder. What lived before the test (a session's broker, Spark) may stay and may have
children; what the test itself started has a few seconds to go away and then fails it.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from kstreams_repl.system import log_context
from kstreams_repl.system.log_context import write_to_stderr
from tests.daily_share import DAY, waits

RUN_VARIABLE = "KSTREAMS_TEST_RUN"
CHECKED_MARKERS = ("kafka", "spark", "integration", "browser")
SECONDS_TO_GO_AWAY = 30.0
LIBRARY_THREADS = ("py4j", "pyspark", "hypothesis", "pytest_timeout", "pydevd", "concurrent.futures")

PROFILES = {"default": 10, "all": 100}
"""Examples of each property test that sets no number of its own; every run draws others."""
for _name, _examples in PROFILES.items():
    hypothesis.settings.register_profile(  # no verdict may hang on how busy the machine is
        _name, deadline=None, print_blob=True, max_examples=_examples, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )


def pytest_configure(config: pytest.Config) -> None:
    """How many examples, one folder for everything temporary, and the mark that our processes carry."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what runs in its background so, and Ctrl-C is tested
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.load_profile("default" if config.option.markexpr == "not slow" else "all")
    folder = Path(tempfile.mkdtemp(prefix="kstreams-tests-"))
    config.stash[_SCRATCH] = folder
    config.stash[_OLD_TMPDIR] = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    os.environ["SPARK_LOCAL_DIRS"] = str(folder)  # a JVM does not ask TMPDIR
    os.environ[RUN_VARIABLE] = uuid.uuid4().hex
    os.environ["KSTREAMS_PRESTART"] = "0"  # most tests that connect deploy nothing
    os.environ.setdefault(DAY, str(date.today().toordinal()))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a run of all tests but the slow ones, those of another day are slow, too (`tests.daily_share`)."""
    if config.option.markexpr == "not slow" and [Path(argument).name for argument in config.args] == ["tests"]:
        for item in items:
            if waits(item.path):
                item.add_marker(pytest.mark.slow)


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_SCRATCH, None)
    if folder is None:
        return
    tempfile.tempdir = None
    old = config.stash[_OLD_TMPDIR]
    if old is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = old
    shutil.rmtree(folder, ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``-n``: see `tests.by_file`."""
    from tests.by_file import ByFile

    return ByFile(config, log)


_SCRATCH: pytest.StashKey[Path] = pytest.StashKey()
_OLD_TMPDIR: pytest.StashKey[str | None] = pytest.StashKey()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of ours exists at one moment: processes, threads of this one, its listening ports, entries of the scratch folder."""

    processes: dict[int, psutil.Process]
    threads: frozenset[threading.Thread]
    ports: frozenset[int]
    files: frozenset[str]

    @classmethod
    def now(cls) -> Surroundings:
        listening = (c.laddr.port for c in psutil.Process().net_connections("inet") if c.status == psutil.CONN_LISTEN)
        files = frozenset(os.listdir(tempfile.gettempdir()))
        return cls(_processes_of_this_run(), frozenset(threading.enumerate()), frozenset(listening), files)

    def leaks(self, now: Surroundings) -> list[str]:
        """What is there now, was not before, and belongs to nothing that was."""
        started = [process for pid, process in now.processes.items() if pid not in self.processes]
        found = [f"process {_story(process)}" for process in started if not self._adopts(process)]
        found += [f"thread {t.name} ({_target_module(t)})" for t in now.threads - self.threads if not _is_library_thread(t)]
        found += [f"listening port {port}" for port in sorted(now.ports - self.ports)]
        # pytest's own tmp_path folders live there too; pytest keeps the last few on purpose.
        found += [f"temporary {name}" for name in sorted(now.files - self.files) if not name.startswith("pytest-of-")]
        return found

    def _adopts(self, process: psutil.Process) -> bool:
        """True for a child of something that lived before, such as a worker of the session's Spark; this process does not count."""
        try:
            return any(p.pid in self.processes and p.pid != os.getpid() for p in process.parents())
        except psutil.Error:
            return False


def _processes_of_this_run() -> dict[int, psutil.Process]:
    mark = os.environ[RUN_VARIABLE]
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_VARIABLE) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
        except (psutil.Error, OSError):
            continue
    return found


def _story(process: psutil.Process) -> str:
    """Return its command line, its age and what it hangs from, up to the first process: the parent tells a worker from an orphan."""
    try:
        age = time.time() - process.create_time()
        parents = " < ".join(f"{parent.pid} {parent.name()}" for parent in process.parents()) or "nothing"
        return f"{process.pid}: {' '.join(process.cmdline())[:200]} ({process.status()}, {age:.1f} s old, child of {parents})"
    except psutil.Error as error:
        return f"{process.pid} ({error})"


def _target_module(thread: threading.Thread) -> str:
    run = getattr(thread, "_target", None) or type(thread).run
    return str(getattr(run, "__module__", ""))


def _is_library_thread(thread: threading.Thread) -> bool:
    modules = (_target_module(thread), type(thread).__module__)
    return not thread.is_alive() or any(module.startswith(LIBRARY_THREADS) for module in modules)


@pytest.fixture(autouse=True)
def log_check() -> Iterator[None]:
    """Fails a test that leaves the package's log at another level, or going elsewhere: the next test would read other lines."""
    log = logging.getLogger("kstreams_repl")
    nothing = log_context._ABOUT.set((None, None))  # an instance that runs in the test's thread leaves its name there
    yield
    log_context._ABOUT.reset(nothing)
    left = (log.level, log.propagate)
    write_to_stderr("OFF")
    assert left == (logging.NOTSET, True), "left behind by this test: a level of the log"


@pytest.fixture(autouse=True)
def leak_check(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a marked test that leaves a process, thread, port or temporary file behind."""
    if not any(request.node.get_closest_marker(name) for name in CHECKED_MARKERS):
        yield
        return
    before = Surroundings.now()
    yield
    deadline = time.monotonic() + SECONDS_TO_GO_AWAY
    while leaks := before.leaks(Surroundings.now()):
        if time.monotonic() > deadline:
            pytest.fail("left behind by this test:\n  " + "\n  ".join(leaks), pytrace=False)
        time.sleep(0.05)


@pytest.fixture
def surroundings() -> Callable[[], Surroundings]:
    """Takes a picture of what of ours exists; for tests that compare by themselves."""
    return Surroundings.now


@pytest.fixture(scope="session")
def broker() -> Iterator[object]:
    """A real Kafka broker, shared by the whole run: use topic and application names of your own."""
    from kstreams_repl.host.kafka.embedded import EmbeddedBroker

    with EmbeddedBroker() as running:
        yield running
