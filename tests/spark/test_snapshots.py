"""Stores that are gone from this host come back from a snapshot and the rest of their changelogs, on real Spark and a real broker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.host.instance.state.snapshot_directory import LocalDirectory
from kstreams_repl.host.instance.state.snapshots import manifests
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.system.types import TaskId
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
TASKS = ["0_0", "0_1", "0_2", "0_3"]


def rows(deployment: Deployment) -> dict[bytes, bytes]:
    """Every row of the stores, as it is on the disk."""
    found: dict[bytes, bytes] = {}
    for partition in range(4):
        environment = LmdbEnvironment(task_directory(deployment.state_root, deployment.application_id, TaskId(0, partition)))
        found |= dict(environment.engine("counts").range())
        environment.close()
    return found


def ran(host: Host, topology: Any, count: int, **config: Any) -> Deployment:
    deployment = host.deploy(topology, **config)
    processed(deployment, count)
    return deployment


def restored(deployment: Deployment) -> int:
    return sum(report.restored for report in deployment.reports.instances.values())


def from_snapshots(deployment: Deployment) -> list[str]:
    return sorted(task for report in deployment.reports.instances.values() for task in report.from_snapshots)


def test_state_comes_back_from_a_snapshot_and_only_the_rest_of_the_changelog_is_read(host: Host, tmp_path: Path) -> None:
    source, sink = host.topic("in"), host.topic("out")
    topology, remote = counting(source, sink), tmp_path / "remote"
    kept = {"repl_snapshot_dir": f"file://{remote}", "repl_snapshot_interval_ms": 100}
    host.produce(source, numbered(3_000, keys=2_000))
    first = ran(host, topology, 3_000, **kept)

    def taken() -> bool:
        newest = [made[0] for task in TASKS if (made := manifests(LocalDirectory(remote), first.application_id, task))]
        return sum(at for made in newest for name, at in made.positions.items() if name.startswith("input:")) == 3_000

    settle(taken, "a snapshot of every task", story=lambda: first.reports)
    first.stop()
    host.produce(source, numbered(200, keys=2_000, start=3_000))
    second = ran(host, topology, 3_200)
    second.stop()
    wanted = rows(second)

    shutil.rmtree(first.state_root)
    third = ran(host, topology, 3_200, **kept)
    settle(lambda: from_snapshots(third) == TASKS and restored(third) >= 200, "stores from snapshots", story=lambda: third.reports)
    assert restored(third) == 200, "only what came after the snapshot was read"
    third.stop()
    assert rows(third) == wanted

    for data in remote.glob("*/*/*/data.mdb"):
        data.write_bytes(data.read_bytes()[:-4096])
    shutil.rmtree(first.state_root)
    fourth = ran(host, topology, 3_200, **kept)
    settle(lambda: restored(fourth) >= 2_000, "a restore of the whole changelog", story=lambda: fourth.reports)
    assert from_snapshots(fourth) == []
    fourth.stop()
    assert rows(fourth) == wanted
    assert decoded(host.table(sink)) == expected_counts(numbered(3_200, keys=2_000))
