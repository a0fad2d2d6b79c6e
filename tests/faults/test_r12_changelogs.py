"""R12: what happens to a changelog while stores are restored from it: everything is there afterwards, or a typed error."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.instance.state import changelog_reader
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.system.errors import DeployError, KStreamsError, TaskCorruptedError
from kstreams_repl.system.types import TopicPartition
from tests.faults.counts import full
from tests.faults.one_task import OneTask
from tests.faults.reliability import note
from tests.spark.hosting import cut

pytestmark = pytest.mark.kafka
ROWS = {b"k%05d" % number: b"%05d" % number * 100 for number in range(3_000)}


@pytest.fixture
def slow_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads no further ahead than a small part of the log, so that a fault comes before the rest was read."""
    make = changelog_reader.make_consumer
    small = {"queued_max_messages_kbytes": 64, "fetch_message_max_bytes": 20_000, "queued_min_messages": 10}
    monkeypatch.setattr(changelog_reader, "make_consumer", lambda *given, **options: make(*given, **(options | small)))
    monkeypatch.setattr(changelog_reader, "_BATCH", 50)


def truncate(task: OneTask, part: float = 0.6) -> None:
    admin, at = Admin(task.settings), TopicPartition(task.changelog, 0)
    cut(admin, at, int(admin.end_offsets([at])[at] * part))


def delete(task: OneTask) -> None:
    task.admin.delete_topics([task.changelog])


def replace(task: OneTask) -> None:
    delete(task)
    task.admin.create_topic(task.changelog, 1, configs={"cleanup.policy": "compact"})


def add_a_partition(task: OneTask) -> None:
    task.admin.add_partitions(task.changelog, 2)


def change_the_policy(task: OneTask) -> None:
    task.admin.alter_topic_configs(task.changelog, {"cleanup.policy": "delete"})


def compact(task: OneTask) -> None:
    soon = {"min.cleanable.dirty.ratio": "0.001", "segment.ms": "100", "max.compaction.lag.ms": "1"}
    task.admin.alter_topic_configs(task.changelog, soon)


FAULTS = (truncate, delete, replace, add_a_partition, change_the_policy, compact)


def attempt(task: OneTask, fault: Callable[[OneTask], None] | None, calls: int) -> str:
    """Take over, the fault after so many looks: the typed error's name, or "" when all that the store must have is served."""
    seen = [0]

    def meanwhile() -> None:
        seen[0] += 1
        if fault is not None and seen[0] == calls:
            fault(task)

    try:
        instance = task.open(meanwhile)
    except KStreamsError as error:
        return type(error).__name__
    try:
        have = task.content(instance)
        assert have == task.rows, f"{len(have)} of {len(task.rows)} rows are served"
        assert fault is None or seen[0] >= calls, "the restore was over before the fault"
    finally:
        instance.close()
    return ""


def outcomes(task: OneTask, fault: Callable[[OneTask], None], calls: int) -> list[str]:
    """The fault during a restore into an empty directory, and what the next take-overs make of it."""
    task.process(ROWS)
    task.wipe()
    first = attempt(task, fault, calls)
    if fault in (delete, replace):  # the next deploy makes the topic anew; that looks like an edit that empties the store
        return [first]
    return [first, attempt(task, None, 0), attempt(task, None, 0)]


@pytest.mark.usefixtures("slow_restore")
@pytest.mark.parametrize("fault", [truncate, *(pytest.param(each, marks=pytest.mark.slow) for each in FAULTS if each is not truncate)])
def test_a_changelog_that_changes_during_a_restore_serves_no_part(broker: Any, tmp_path: Path, fault: Callable[[OneTask], None]) -> None:
    found = outcomes(OneTask(broker.bootstrap_servers, tmp_path), fault, 5)
    came_to = ", ".join(name or "all rows" for name in found)
    note("R12", f"during a restore: {fault.__name__.replace('_', ' ')}", len(found), 0, came_to=came_to)
    if fault in (delete, replace):
        assert found[0].endswith("Error")
    if fault is compact:
        assert found == ["", "", ""]
    if fault is truncate:
        assert found[1:] == ["DeployError", "DeployError"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("slow_restore")
@pytest.mark.parametrize("fault", FAULTS)
def test_changelogs_that_change_at_many_points_of_a_restore(broker: Any, tmp_path: Path, fault: Callable[[OneTask], None]) -> None:
    count = full(5)
    for number in range(count):
        outcomes(OneTask(broker.bootstrap_servers, tmp_path / str(number)), fault, 1 + 4 * number)
    note("R12", f"at several points of a restore: {fault.__name__.replace('_', ' ')}", count, 0)


def test_a_changelog_that_was_cut_is_refused_and_not_half_restored(broker: Any, tmp_path: Path) -> None:
    task = OneTask(broker.bootstrap_servers, tmp_path)
    task.process(ROWS)
    truncate(task)
    task.admin.alter_topic_configs(task.changelog, {"cleanup.policy": "compact"})
    assert attempt(task, None, 0) == ""  # the local copy is past the cut
    task.wipe()
    with pytest.raises(TaskCorruptedError, match=r"needs its records from \d+ on: \d+ were deleted, and") as caught:
        task.open()
    assert (caught.value.store, caught.value.topic) == ("kept", task.changelog)


def test_a_changelog_with_another_policy_or_more_partitions_is_refused_at_deploy(broker: Any, tmp_path: Path) -> None:
    task = OneTask(broker.bootstrap_servers, tmp_path)
    task.plan()
    change_the_policy(task)
    with pytest.raises(DeployError, match="cleanup.policy=delete but needs compact"):
        task.plan()
    task.admin.alter_topic_configs(task.changelog, {"cleanup.policy": "compact"})
    add_a_partition(task)
    with pytest.raises(DeployError, match="has 2 partitions but the topology needs 1"):
        task.plan()


@pytest.mark.slow
def test_a_changelog_that_was_deleted_under_a_local_copy_leaves_no_mixture(broker: Any, tmp_path: Path) -> None:
    task = OneTask(broker.bootstrap_servers, tmp_path)
    task.process(ROWS)
    delete(task)
    deadline = time.monotonic() + 20
    while task.changelog in task.admin.topics(internal=True):
        assert time.monotonic() < deadline
    try:
        instance = task.open()
    except KStreamsError:
        return
    have = task.content(instance)
    instance.close()
    assert have in (task.rows, {})


