"""R11: kill -9 with a large store: it is not wiped, and what is restored is no more than its last commits lacked."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from kstreams_repl.engine.stores.engine.lmdb_snapshot import LmdbSnapshot
from kstreams_repl.host.instance.state.state_directory import task_directory
from kstreams_repl.system.types import TopicPartition
from tests.faults.counts import full
from tests.faults.crew import PARTITIONS, Crew
from tests.faults.reliability import note

pytestmark = pytest.mark.kafka


def logs(crew: Crew) -> list[TopicPartition]:
    return [TopicPartition(f"{crew.application_id}-{store}-changelog", at) for store in ("counts", "windows") for at in range(PARTITIONS)]


def behind(crew: Crew) -> int:
    """How many changelog offsets the local copies lack."""
    assert crew.plan is not None
    ends, lacking = crew.admin.end_offsets(logs(crew), isolation="read_uncommitted"), 0
    for spec in {spec.task_id: spec for tasks in crew.plan.assignment for spec in tasks}.values():
        with LmdbSnapshot(task_directory(crew.directory / "state", crew.application_id, spec.task_id)) as snapshot:
            at = snapshot.positions
        lacking += sum(end - at.get(str(log), 0) for log, end in ends.items() if log.partition == spec.task_id.partition)
    return lacking


def inodes(crew: Crew) -> dict[str, int]:
    """Which files the stores are in: a store that is made anew is in another one."""
    return {str(file): file.stat().st_ino for file in (crew.directory / "state").rglob("data.mdb")}


def all_run(crew: Crew) -> bool:
    """Whether each process has reported that it runs and restores nothing any more, as it may do for a while beside the input."""
    return [(report.get("state"), report.get("restore_remaining")) for report in crew.reports()] == [("running", 0)] * len(crew.pids)


def kill_with_a_store(crew: Crew, kills: int) -> tuple[list[str], int, int]:
    """Violations, what was restored after the kills, and what the stores lacked at them."""
    crew.write(crew.keys)
    crew.deploy(2)
    crew.processed(300)
    restored, lacked, wrong = 0, 0, []
    for _ in range(kills):
        for slot, pid in crew.pids.items():
            os.kill(pid, signal.SIGKILL)
            crew.died(slot)
            crew.start(slot, failpoints="F7=kill@3")  # with a commit that the local stores have not taken
        while any(map(crew.state_of, crew.pids.values())):
            crew.write(100)
            time.sleep(0.02)
        for slot in crew.pids:
            crew.died(slot)
        files, lacking = inodes(crew), behind(crew)
        for slot in list(crew.pids):
            crew.start(slot)
        crew.settle(lambda: all_run(crew), "both to run")
        got = sum(report["restored"] for report in crew.reports())  # the instances are opened again when no more deaths are feared
        crew.processed()
        crew.settle(lambda: all_run(crew), "both to run")
        if inodes(crew) != files:
            wrong.append("a store was made anew")
        if not 0 < got <= lacking:
            wrong.append(f"{got} records were restored, the stores lacked {lacking}")
        restored, lacked = restored + got, lacked + lacking
    crew.stop()
    return wrong + crew.violations(), restored, lacked


@pytest.mark.slow
def test_a_killed_process_finds_its_store_again(crew: Callable[..., Crew]) -> None:
    keys = 5_000
    wrong, restored, lacked = kill_with_a_store(crew(keys=keys), 1)
    note("R11", f"kill -9 with a store of {keys:,} keys (sample)", 1, len(wrong), restored=restored, lacked=lacked)
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_killed_process_finds_a_store_of_a_million_keys_again(crew: Callable[..., Crew]) -> None:
    keys, kills = max(10_000, full(1_000_000)), full(5)
    wrong, restored, lacked = kill_with_a_store(crew(keys=keys), kills)
    note("R11", f"kill -9 with a store of {keys:,} keys", kills, len(wrong), restored=restored, lacked=lacked)
    assert not wrong, wrong
