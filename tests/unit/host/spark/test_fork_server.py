"""The fork server: who gets a daemon from it, how daemons and server end. The processes speak as Spark's JVM does with them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kstreams_repl.host.spark.startup.fork_server import DAEMON_MODULE, PATH_VARIABLE, forking
from kstreams_repl.system.process_info import EXECUTOR_VARIABLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are followed in /proc")

SECONDS = 30.0


class Started:
    """A process that was started as a daemon, and the socket where a daemon answers for it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [environment["PYSPARK_PYTHON"], "-m", DAEMON_MODULE, "pyspark.worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        length = int.from_bytes(self.process.stdout.read(4), "big")
        self.path = self.process.stdout.read(length).decode()
        self.connection = socket.socket(socket.AF_UNIX)

    def worker(self) -> psutil.Process:
        """Let the daemon fork a worker, which stays as long as the daemon."""
        self.connection.settimeout(SECONDS)
        self.connection.connect(self.path)
        return psutil.Process(int.from_bytes(self.connection.recv(4), "big"))

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(SECONDS)
        self.process.stdout.close()
        self.connection.close()


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="ks-", dir="/tmp") as sockets:  # the path of a socket must be short
        yield environment_of(sockets)


def environment_of(sockets: str) -> dict[str, str]:
    return {
        **os.environ,
        PATH_VARIABLE: f"{sockets}/fork-server",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONHASHSEED": "0",
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets,
        "PYTHON_WORKER_FACTORY_SECRET": "x",
    }


@contextmanager
def server(environment: dict[str, str], log: Path) -> Iterator[psutil.Process]:
    before = set(psutil.Process().children())
    with log.open("wb") as stderr, forking(environment, stderr):
        (process,) = set(psutil.Process().children()) - before
        wait_for(Path(environment[PATH_VARIABLE]))
        yield process
    process.wait(SECONDS)


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_daemons_of_all_pools_are_forks_of_the_server_with_their_own_environment(environment: dict[str, str], tmp_path: Path) -> None:
    with server(environment, tmp_path / "log") as forks:
        pools = [Started({**environment, "KSTREAMS_POOL": name, "SPARK_REUSE_WORKER": "1"}) for name in ("a", "b")]
        workers = [pool.worker() for pool in pools]
        assert [worker.parents()[1] for worker in workers] == [forks, forks]
        assert len({worker.ppid() for worker in workers}) == 2
        assert [thread.id for thread in forks.threads()] == [forks.pid]
        for pool in pools:
            pool.end()
        psutil.wait_procs(workers, SECONDS)
        assert not any(worker.is_running() for worker in workers)
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.slow
def test_spark_ends_a_daemon_through_the_process_that_stands_in_for_it(environment: dict[str, str], tmp_path: Path) -> None:
    with server(environment, tmp_path / "log"):
        pool = Started(environment)
        worker = pool.worker()
        daemon = worker.parent()
        assert daemon is not None and daemon.pid != pool.process.pid
        pool.process.terminate()
        psutil.wait_procs([worker, daemon], SECONDS)
        assert not worker.is_running() and not daemon.is_running()
        pool.end()


@pytest.mark.slow
def test_a_daemon_outlives_the_server(environment: dict[str, str], tmp_path: Path) -> None:
    with server(environment, tmp_path / "log"):
        pool = Started(environment)
    assert pool.worker().is_running()
    pool.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    "other", [{"PYTHONPATH": "/elsewhere"}, {"PYTHONHASHSEED": "1"}, {"PYTHONUTF8": "1"}, {"MKL_NUM_THREADS": "4"}]
)
def test_a_process_that_would_import_or_hash_otherwise_is_its_own_daemon(
    environment: dict[str, str], tmp_path: Path, other: dict[str, str]
) -> None:
    with server(environment, tmp_path / "log"):
        pool = Started({**environment, **other})
        assert pool.worker().ppid() == pool.process.pid
        pool.end()


def test_a_process_without_a_server_is_its_own_daemon(environment: dict[str, str]) -> None:
    pool = Started(environment)
    worker = pool.worker()
    assert worker.ppid() == pool.process.pid
    pool.end()


def test_an_environment_that_names_no_socket_gets_no_server(environment: dict[str, str], tmp_path: Path) -> None:
    del environment[PATH_VARIABLE]
    before = psutil.Process().children()
    with (tmp_path / "log").open("wb") as stderr, forking(environment, stderr) as held:
        assert held == () and psutil.Process().children() == before


def test_workers_know_the_process_that_started_their_daemon(environment: dict[str, str], tmp_path: Path) -> None:
    """With a server neither the worker's parent nor the parent of that is Spark's JVM."""
    script = tmp_path / "asks.py"
    script.write_text(
        "from kstreams_repl.host.instance.process.executor_directory import executor_process\n"
        f"import os\nos.environ['{EXECUTOR_VARIABLE}'] = '17'\nprint(executor_process())\n"
    )
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "17"
