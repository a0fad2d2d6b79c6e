"""kill -9 of the driver: its JVM and workers go with it, and the next driver goes on from what was committed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_killed_driver_leaves_no_process_and_no_gap(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(2_000))
    name, state = f"{host.name}-app", str(host.directory / "state")
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.driver_process", host.bootstrap, source, sink, state, name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert driver.stdout is not None
    line = driver.stdout.readline().split()
    assert line[:1] == ["running"], line
    family = psutil.Process(driver.pid).children(recursive=True)
    assert {int(pid) for pid in line[1:]} <= {process.pid for process in family}
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    settle(
        lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family),
        "its processes to go",
    )
    host.produce(source, numbered(2_000, start=2_000))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, 4_000)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(4_000))
    assert not [path for path in Path(deployment.plan.control_directory).glob("checkpoint-*")]  # type: ignore[union-attr]


@pytest.mark.slow
def test_spark_that_goes_under_an_application_is_told_and_resume_starts_it_anew(host: Host, tmp_path: Path) -> None:
    """Its JVM is killed; then the user stops it. The application had been left "running" for ever, and could not even be stopped."""
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(1_000))
    name, state = f"{host.name}-app", str(host.directory / "state")
    driver = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.driver_without_spark", host.bootstrap, source, sink, state, name],
        cwd=ROOT,
        env=os.environ | {"SPARK_LOCAL_DIRS": str(tmp_path)},  # where a JVM that is killed leaves its own
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout is not None
    try:
        for number, lost in enumerate(("kill_jvm", "stop_spark"), 1):
            line = driver.stdout.readline()
            assert line, driver.communicate()[1]
            what, kind, message, hint = json.loads(line)
            assert (what, kind) == (lost, "ApplicationFailedError")
            assert "Spark was stopped while the application was running, or its JVM ended" in message
            assert "resume" in hint
            host.produce(source, numbered(1_000, start=number * 1_000))
        out, err = driver.communicate(timeout=100)
        assert out == '["end", "stopped"]\n', err
    finally:
        driver.kill()
    assert decoded(host.table(sink)) == expected_counts(numbered(3_000))


def test_interrupt_of_the_terminal_does_not_reach_spark(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(counting(source, sink), num_stream_threads=1)
    host.produce(source, numbered(100))
    processed(deployment, 100)
    workers = [report.pid for report in deployment.reports.instances.values()]
    assert all(os.getsid(pid) != os.getsid(0) for pid in workers)
