"""Applications on a standalone Spark cluster of two executors with separate state directories."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kstreams_repl.host.instance.control.journal_follower import Follower
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.host.spark.failures import missing_executors
from kstreams_repl.host.spark.slots.spark_slots import total_slots
from kstreams_repl.host.spark.startup.standalone_cluster import StandaloneCluster
from kstreams_repl.system.errors import DeployError
from tests.spark.hosting import Host, counting, decoded, expected_counts, failed, numbered, processed, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]


def places(host: Host, deployment: Deployment) -> dict[int, str | None]:
    return {slot: report.place for slot, report in deployment.reports.instances.items()}


def stores_under(root: Path) -> set[str]:
    return {path.parent.name for path in root.glob("*/executor-*/*/data.mdb")}


def test_instances_run_on_both_executors_and_keep_their_state_apart(cluster: StandaloneCluster, host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    rows = numbered(4_000)
    host.produce(source, rows)
    deployment = host.deploy(counting(source, sink), repl_epoch_ms=1000)
    processed(deployment, 4_000)
    running(deployment)
    first = places(host, deployment)
    assert len(set(first.values())) == 2
    assert stores_under(cluster.state(0)) | stores_under(cluster.state(1)) == {"0_0", "0_1", "0_2", "0_3"}
    assert not stores_under(cluster.state(0)) & stores_under(cluster.state(1))
    deployment.wait(3.0)
    began = time.monotonic()
    deployment.pause()
    print(f"\npause: {time.monotonic() - began:.3f} s")
    assert places(host, deployment) == first, "epochs went on where the stores are"
    ends = len(host.read(sink))
    host.produce(source, numbered(1_000, start=4_000))
    assert len(host.read(sink)) == ends
    began = time.monotonic()
    deployment.resume()
    processed(deployment, 5_000)
    print(f"resume: {time.monotonic() - began:.3f} s")
    assert places(host, deployment) == first
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(5_000))
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == expected_counts(numbered(5_000))


def test_a_pause_between_two_epochs_does_not_wait_for_the_next_one(host: Host) -> None:
    """No worker runs a slot then, and none reports: it took one to three seconds, until Spark had started the next epoch."""
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(2_000))
    deployment = host.deploy(counting(source, sink), repl_epoch_ms=1000)
    processed(deployment, 2_000)
    follower = Follower(host.settings, deployment.application_id, reports=True)
    pauses = []
    try:
        for number in range(5):
            running(deployment)
            settle(lambda: bool(follower.state.working), "an epoch")
            follower.wait_for(lambda: not follower.state.working, 60, "the end of the epoch")
            began = time.monotonic()
            deployment.pause()
            pauses.append(time.monotonic() - began)
            ends = len(host.read(sink))
            host.produce(source, numbered(100, start=2_000 + 100 * number))
            assert len(host.read(sink)) == ends
            deployment.resume()
            processed(deployment, 2_100 + 100 * number)
    finally:
        follower.close()
    print(f"\npauses between epochs: {[round(seconds, 3) for seconds in sorted(pauses)]} s")
    assert sorted(pauses)[2] < 0.5
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(2_500))


def test_tasks_of_a_killed_executor_move_and_use_the_standby_copy(cluster: StandaloneCluster, host: Host) -> None:
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(30_000, keys=20_000))
    deployment = host.deploy(counting(source, sink), num_standby_replicas=1)
    processed(deployment, 30_000)
    settle(
        lambda: copies(deployment) == dict.fromkeys(("0_0", "0_1", "0_2", "0_3"), 0),
        "standby copies",
        story=lambda: copies(deployment),
    )
    before = places(host, deployment)
    pids = {slot: report.pid for slot, report in deployment.reports.instances.items()}
    host.produce(source, numbered(500, keys=20_000, start=30_000))
    cluster.kill(1)
    began = time.monotonic()
    host.produce(source, numbered(500, keys=20_000, start=30_500))
    processed(deployment, 31_000)
    print(f"\nready again after {time.monotonic() - began:.1f} s")
    after = places(host, deployment)
    moved = [slot for slot in before if after[slot] != before[slot]]
    assert len(moved) == 1 and len(set(after.values())) == 1
    reports = deployment.reports.instances
    assert [slot for slot in pids if reports[slot].pid == pids[slot]] == [1 - moved[0]], "the other instance went on undisturbed"
    assert reports[moved[0]].restored <= 1_000, "the copy was used: only the delta was read"
    deployment.stop()
    wanted = expected_counts(numbered(31_000, keys=20_000))
    assert decoded(host.table(sink)) == wanted
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == wanted


def test_an_instance_whose_slot_was_lost_for_good_is_an_error(
    cluster: StandaloneCluster, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark queues its task for ever; the user is told, and goes on when a worker has come back."""
    monkeypatch.setattr(missing_executors, "PATIENCE_SECONDS", 5.0)
    source, sink = host.topic("in", 6), host.topic("out", 6)
    host.produce(source, numbered(4_000))
    deployment = host.deploy(counting(source, sink), num_stream_threads=6)
    processed(deployment, 4_000)
    cluster.kill(1)
    began = time.monotonic()
    failed(deployment)
    print(f"\nfailed after {time.monotonic() - began:.1f} s: {deployment.error}")
    assert isinstance(deployment.error, DeployError)
    assert "slot" in str(deployment.error) and "resume" in deployment.error.hint
    with pytest.raises(DeployError, match="needs 6 Spark slots and 2 are free"):
        deployment.resume()
    cluster.add_worker(1)
    host.produce(source, numbered(1_000, start=4_000))
    settle(lambda: total_slots(host.spark) == 8, "the new worker's executor", seconds=60)
    deployment.resume()
    processed(deployment, 5_000)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(5_000))


def copies(deployment: Deployment) -> dict[str, int]:
    """Lag of each standby copy."""
    return {task: lag for report in deployment.reports.instances.values() for task, lag in report.standbys.items()}
