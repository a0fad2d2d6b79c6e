"""kill -9 and its relatives: whatever dies, each input record's effect is seen once (exactly once) or at least once."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.system.errors import WorkerDiedError
from kstreams_repl.system.types import TaskId
from tests.faults.kills import kill_at
from tests.spark.hosting import (
    Host,
    counting,
    decoded,
    expected_counts,
    failed,
    kill_worker,
    numbered,
    passing,
    processed,
    running,
    settle,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

TOTAL = 6_000


def check_counts(host: Host, sink: str, application: str, total: int = TOTAL) -> None:
    """The counts are right in the sink and in the changelog, and each key's counts went up by one record at a time or were
    compacted, never back.
    """
    wanted = expected_counts(numbered(total))
    assert decoded(host.table(sink)) == wanted
    assert decoded(host.table(f"{application}-counts-changelog")) == wanted
    last: dict[bytes | None, int] = {}
    for key, value in host.read(sink):
        count = int.from_bytes(value or b"", "big", signed=True)
        assert count > last.get(key, 0), f"{key!r} went from {last.get(key)} to {count}"
        last[key] = count


def killed_at_its_second_commit(host: Host, tmp_path: Path, name: str, **config: Any) -> None:
    """Records come in three parts, so that there is a second commit: an instance may take all that lies on its topic into its first."""
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(TOTAL // 3))
    once = tmp_path / "once"
    deployment = host.deploy(counting(source, sink), failpoints=f"{kill_at(name, 2)}!{once}", **config)
    processed(deployment, TOTAL // 3)
    host.produce(source, numbered(TOTAL // 3, start=TOTAL // 3))
    settle(once.exists, f"the worker to be killed at {name}")
    host.produce(source, numbered(TOTAL // 3, start=2 * TOTAL // 3))
    processed(deployment, TOTAL)
    deployment.stop()
    check_counts(host, sink, deployment.application_id)


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("F1", "F2", "F3", "F4", "F5", "F6", "F8")), "F7"]
)
def test_worker_killed_at_a_failpoint_changes_no_total(host: Host, tmp_path: Path, name: str) -> None:
    killed_at_its_second_commit(host, tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["F2", "F5", "F7"])
def test_worker_with_processing_threads_killed_at_a_failpoint_changes_no_total(host: Host, tmp_path: Path, name: str) -> None:
    killed_at_its_second_commit(host, tmp_path, name, num_processing_threads=3)


def test_worker_killed_while_it_runs_changes_no_total(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    deployment = host.deploy(counting(source, sink))
    for start in range(0, TOTAL, TOTAL // 3):
        host.produce(source, numbered(TOTAL // 3, start=start))
        running(deployment)
        pid = kill_worker(deployment, slot=start % 2)
        settle(lambda pid=pid: all(report.pid != pid for report in deployment.reports.instances.values()), "another worker")
    processed(deployment, TOTAL)
    deployment.stop()
    check_counts(host, sink, deployment.application_id)


@pytest.mark.slow
def test_worker_killed_under_at_least_once_loses_nothing(host: Host, tmp_path: Path) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(TOTAL // 2))
    once = tmp_path / "once"
    deployment = host.deploy(passing(source, sink), processing_guarantee="at_least_once", failpoints=f"F4=kill@2!{once}")
    processed(deployment, TOTAL // 2)
    host.produce(source, numbered(TOTAL // 2, start=TOTAL // 2))
    settle(once.exists, "the worker to be killed")
    processed(deployment, TOTAL)
    deployment.stop()
    assert {int(value or b"") for _, value in host.read(sink)} == set(range(TOTAL))


def test_wiped_state_is_restored_from_the_changelog(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(TOTAL // 2))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, TOTAL // 2)
    deployment.stop()
    for partition in range(4):
        shutil.rmtree(task_directory(deployment.state_root, deployment.application_id, TaskId(0, partition)))
    host.produce(source, numbered(TOTAL // 2, start=TOTAL // 2))
    deployment.start()
    processed(deployment, TOTAL)
    deployment.stop()
    check_counts(host, sink, deployment.application_id)


def test_damaged_state_is_rebuilt(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(TOTAL // 2))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, TOTAL // 2)
    deployment.stop()
    for partition in range(4):
        file = task_directory(deployment.state_root, deployment.application_id, TaskId(0, partition)) / "data.mdb"
        file.write_bytes(os.urandom(8192) + file.read_bytes()[8192:])
    host.produce(source, numbered(TOTAL // 2, start=TOTAL // 2))
    deployment.start()
    processed(deployment, TOTAL)
    deployment.stop()
    check_counts(host, sink, deployment.application_id)


@pytest.mark.slow  # test_r04_zombies.py has them in the fast tier
def test_sleeping_zombie_is_fenced_by_its_successor(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(TOTAL // 2))
    first = host.deploy(counting(source, sink))
    processed(first, TOTAL // 2)
    zombies = [report.pid for report in first.reports.instances.values()]
    for pid in zombies:
        os.kill(pid, signal.SIGSTOP)
    try:
        host.produce(source, numbered(TOTAL // 4, start=TOTAL // 2))
        second = host.deployment(counting(source, sink))
        second.start()
        processed(second, 3 * TOTAL // 4)
    finally:
        for pid in zombies:
            os.kill(pid, signal.SIGCONT)
    host.produce(source, numbered(TOTAL // 4, start=3 * TOTAL // 4))
    processed(second, TOTAL)
    second.stop()
    check_counts(host, sink, second.application_id)


@pytest.mark.slow
def test_killed_at_every_failpoint_many_times_in_one_run(host: Host, tmp_path: Path) -> None:
    source, sink = host.topic("in"), host.topic("out")
    total = 100_000
    host.produce(source, numbered(total // 2, keys=1_000))
    points = ";".join(
        f"F{number}=kill@{hit}!{tmp_path / f'once-{number}'}"
        for number, hit in zip((3, 4, 5, 7, 8), (2, 3, 2, 3, 2), strict=True)
    )
    deployment = host.deploy(counting(source, sink), failpoints=points, repl_epoch_ms=1_000)
    for start in range(total // 2, total, 10_000):
        host.produce(source, numbered(10_000, keys=1_000, start=start))
        deployment.wait(1.0)
    processed(deployment, total)
    deployment.stop()
    wanted = expected_counts(numbered(total, keys=1_000))
    assert decoded(host.table(sink)) == wanted
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == wanted
    assert len(list(tmp_path.glob("once-*"))) >= 3


@pytest.mark.slow
def test_number_of_instances_may_change(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    done = 0
    for instances in (2, 4, 1):
        host.produce(source, numbered(TOTAL // 3, start=done))
        done += TOTAL // 3
        deployment = host.deploy(counting(source, sink), num_stream_threads=instances)
        processed(deployment, done)
        deployment.stop()
    check_counts(host, sink, deployment.application_id)


@pytest.mark.slow
def test_a_function_that_ends_its_worker_fails_the_application_by_name_and_a_repair_goes_on(host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(1_000))

    def deadly(value: int) -> str:
        if value == 777:
            os._exit(7)
        return str(value)

    deployment = host.deploy(passing(source, sink, deadly))
    failed(deployment)
    error = deployment.error
    assert isinstance(error, WorkerDiedError), error
    assert (error.node, error.topic) == ("shape", source) and error.offset >= 0
    repaired = host.deploy(passing(source, sink))
    processed(repaired, 1_000)
    repaired.stop()
    assert sorted(int(value or b"") for _, value in host.read(sink)) == list(range(1_000))
