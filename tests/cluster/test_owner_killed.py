"""A cluster whose owner is killed: its processes and its directory are gone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(120)]
OWNER = """
import time
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
cluster = StandaloneCluster(workers=1).start()
print(cluster._directory, flush=True)
time.sleep(100)
"""


def command(process: psutil.Process) -> str:
    """The command line of a process; empty if it has ended meanwhile."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one, too
        return ""


def test_a_cluster_whose_owner_is_killed_leaves_no_process_and_no_directory() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    directory = Path(owner.stdout.readline().strip())
    try:
        started = [process for process in psutil.Process(owner.pid).children(recursive=True) if command(process)]
        assert sum("org.apache.spark.deploy" in command(process) for process in started) >= 2 and directory.is_dir()
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait(10)
        owner.stdout.close()
    left = psutil.wait_procs(started, timeout=30)[1]
    assert not left, [command(process) for process in left]
    deadline = time.monotonic() + 10
    while directory.exists():
        assert time.monotonic() < deadline, list(directory.rglob("*"))
        time.sleep(0.1)
