"""What an application holds, and lets go of."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.spark.hosting import Host, counting, numbered, passing, processed, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def holders(directory: Path) -> list[int]:
    """Processes with a file of the directory open or mapped."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(
                str(directory) in link
                for link in (*(m.path for m in process.memory_maps()), *(f.path for f in process.open_files()))
            ):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("pause_first", [False, True])
def test_stopped_application_holds_no_store(host: Host, pause_first: bool) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(100))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, 100)
    tasks = deployment.state_root / deployment.application_id / "tasks"
    assert holders(tasks)
    if pause_first:
        deployment.pause()
    deployment.stop()
    settle(lambda: not holders(tasks), "the workers to let go of the stores")


@pytest.mark.slow
def test_slots_are_free_again_after_a_stop(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    for _ in range(3):
        deployment = host.deploy(passing(source, sink), num_stream_threads=4)
        running(deployment)
        deployment.stop()


@pytest.mark.slow
def test_idle_application_commits_nothing(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(100))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, 100)
    before = {slot: report.commits for slot, report in deployment.reports.instances.items()}
    deployment.wait(1.0)
    assert {slot: report.commits for slot, report in deployment.reports.instances.items()} == before
