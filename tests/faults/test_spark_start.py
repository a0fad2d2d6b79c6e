"""Whoever starts Spark is killed or interrupted while its JVM starts: no process and no directory is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from kstreams_repl.host.spark.startup.jvm import start_jvm
from kstreams_repl.system.errors import DeployError
from kstreams_repl.system.java import spark_environment
from tests.spark.hosting import settle

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
STARTING = "from kstreams_repl.host.spark.startup.spark_session import get_session as s; print(flush=True); s(); print('ready', flush=True)"


def started(directory: Path) -> subprocess.Popen[str]:
    """A driver that begins to start Spark now."""
    driver = subprocess.Popen(
        [sys.executable, "-c", STARTING],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory), "SPARK_LOCAL_DIRS": str(directory), "PYTHONPATH": str(ROOT)},
    )
    assert driver.stdout is not None
    driver.stdout.readline()
    return driver


@pytest.mark.parametrize(
    ("number", "after"),
    [
        (signal.SIGKILL, 0.3),
        (signal.SIGINT, 1.2),
        *(
            pytest.param(number, n * 0.15, marks=pytest.mark.slow)
            for n in range(20)
            for number in (signal.SIGKILL, signal.SIGINT)
        ),
    ],
)
def test_a_driver_that_ends_while_spark_starts_leaves_nothing(tmp_path: Path, number: signal.Signals, after: float) -> None:
    driver = started(tmp_path)
    time.sleep(after)
    below = psutil.Process(driver.pid).children(recursive=True)
    driver.send_signal(number)
    driver.communicate(timeout=30)
    _, alive = psutil.wait_procs(below, timeout=60)
    assert alive == []
    settle(lambda: not any(tmp_path.iterdir()), "its directories to go", story=lambda: list(tmp_path.iterdir()))


def test_a_jvm_that_ends_at_once_is_told_with_where_it_said_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    log = tmp_path / "log" / "spark.log"
    with pytest.raises(DeployError, match="ended with exit code") as refused:
        start_jvm({"spark.driver.memory": "much"}, {**os.environ, **spark_environment()}, log)
    assert str(log) in (refused.value.hint or "")
    assert "much" in log.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
