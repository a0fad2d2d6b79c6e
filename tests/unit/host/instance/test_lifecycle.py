"""States of tasks, instances and runners: one table each, drawn in the docs, and errors that list the last transitions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.host.instance.epochs.lifecycle import (
    INSTANCE_TRANSITIONS,
    RUNNER_TRANSITIONS,
    TASK_TRANSITIONS,
    InstanceLifecycle,
    InstanceState,
    RunnerLifecycle,
    RunnerState,
    TaskLifecycle,
    TaskState,
)
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.errors import IllegalStateTransitionError, StreamsProcessingError
from kstreams_repl.system.types import RecordBatch, TaskId, TopicPartition
from tests.unit.engine.runtime.rig import Rig

IN = TopicPartition("in", 0)
HOST = Path(__file__).resolve().parents[4] / "docs" / "design" / "010-host.md"
ALLOWED = {
    ("created", "running"), ("created", "restoring"), ("created", "closed"), ("restoring", "running"), ("restoring", "closed"),
    ("running", "committing"), ("running", "failed"), ("running", "closed"),
    ("committing", "running"), ("committing", "failed"), ("committing", "closed"), ("failed", "closed"),
}  # fmt: skip
WAYS = {"created": [], "restoring": ["restoring"], "running": ["running"], "committing": ["running", "committing"],
        "failed": ["running", "failed"], "closed": ["closed"]}  # fmt: skip


def life_in(state: str) -> TaskLifecycle:
    life = TaskLifecycle(TaskId(0, 1))
    for step in WAYS[state]:
        life.enter(TaskState(step), f"on the way to {state}")
    return life


@pytest.mark.parametrize(("here", "there"), list(itertools.product(WAYS, WAYS)))
def test_only_the_transitions_of_the_table_are_made(here: str, there: str) -> None:
    life = life_in(here)
    if (here, there) in ALLOWED:
        life.enter(TaskState(there), "as wanted")
        assert life.state == there
    else:
        with pytest.raises(IllegalStateTransitionError, match=f"0_1 is {here} and cannot become {there}"):
            life.enter(TaskState(there), "as wanted")
        assert life.state == here


def test_the_error_tells_the_story() -> None:
    life = life_in("failed")
    with pytest.raises(IllegalStateTransitionError, match="created, then running .* then failed .on the way to failed."):
        life.enter(TaskState.COMMITTING, "commit 7")


def active(mapper: object) -> ActiveTask:
    builder = StreamsBuilder()
    builder.stream("in").map_values(mapper).to("out")
    rig = Rig(builder.build())
    return ActiveTask(rig.task, rig.task.environment, {IN: 0}, frozenset())


def test_a_task_that_was_not_prepared_does_not_finish_a_commit() -> None:
    task = active(lambda value: value)
    with pytest.raises(IllegalStateTransitionError, match="is running and cannot become running .commit 3 done."):
        task.finish(3, {})


def test_a_commit_leads_back_to_running_and_a_close_ends_it() -> None:
    task = active(lambda value: value)
    task.prepare(1)
    assert task.life.state is TaskState.COMMITTING
    task.finish(1, {})
    assert task.life.state is TaskState.RUNNING
    task.close()
    assert task.life.state is TaskState.CLOSED


def test_a_failed_task_commits_nothing() -> None:
    task = active(lambda value: 1 / value)
    task.task.add_records(IN, RecordBatch([b"k"], [b"0"], [0], [0]))
    with pytest.raises(StreamsProcessingError):
        task.process(1)
    assert task.life.state is TaskState.FAILED
    with pytest.raises(IllegalStateTransitionError, match="then failed .StreamsProcessingError."):
        task.prepare(1)


def drawn() -> list[set[tuple[str, str]]]:
    """The arrows of each picture of docs/design/010-host.md, without those from and to a point."""
    pictures = re.findall(r"```mermaid\n(.*?)```", HOST.read_text(encoding="utf-8"), re.DOTALL)
    return [set(re.findall(r"^ +(\w+) --> (\w+)$", picture, re.MULTILINE)) for picture in pictures]


def test_the_pictures_show_the_tables() -> None:
    tables: list[Mapping[Any, Iterable[Any]]] = [TASK_TRANSITIONS, INSTANCE_TRANSITIONS, RUNNER_TRANSITIONS]
    grouped = dict.fromkeys(("RESTORING", "RUNNING", "RECOVERING"), "WORKING")
    for number, (table, picture) in enumerate(zip(tables, drawn(), strict=True)):
        names = grouped if number == 2 else {}
        arrows = {(here.name, there.name) for here, nexts in table.items() for there in nexts}
        assert {(names.get(here, here), names.get(there, there)) for here, there in arrows} == picture


def test_a_runner_that_repeats_a_state_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kstreams_repl")
    life = RunnerLifecycle("app", 0, 7)
    for state in (RunnerState.RESTORING, RunnerState.RESTORING, RunnerState.RUNNING, RunnerState.FAILED):
        life.enter(state)
    assert [record.getMessage() for record in caplog.records] == [
        "app[0]: created -> restoring (generation 7)", "app[0]: restoring -> running (generation 7)",
        "app[0]: running -> failed (generation 7)",
    ]  # fmt: skip
    with pytest.raises(IllegalStateTransitionError, match=r"instance app\[0\] is failed and cannot become running"):
        life.enter(RunnerState.RUNNING)


def test_a_closed_instance_is_not_used_again() -> None:
    life = InstanceLifecycle("app[0]")
    life.enter(InstanceState.CLOSED, "closed")
    with pytest.raises(IllegalStateTransitionError, match="is closed and cannot become running"):
        life.enter(InstanceState.RUNNING, "taken from the instance cache")
