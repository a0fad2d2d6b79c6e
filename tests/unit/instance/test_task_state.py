"""States of a task: one table, and errors that tell how the task came where it is."""

from __future__ import annotations

import itertools

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.errors import IllegalStateTransitionError, StreamsProcessingError
from kstreams_repl.instance.tasks.active_task import ActiveTask
from kstreams_repl.instance.tasks.task_state import TaskLife, TaskState
from kstreams_repl.types import RecordBatch, TaskId, TopicPartition
from tests.unit.runtime.rig import Rig

IN = TopicPartition("in", 0)
ALLOWED = {
    ("created", "running"), ("created", "restoring"), ("created", "closed"), ("restoring", "running"), ("restoring", "closed"),
    ("running", "committing"), ("running", "failed"), ("running", "closed"),
    ("committing", "running"), ("committing", "failed"), ("committing", "closed"), ("failed", "closed"),
}  # fmt: skip
WAYS = {"created": [], "restoring": ["restoring"], "running": ["running"], "committing": ["running", "committing"],
        "failed": ["running", "failed"], "closed": ["closed"]}  # fmt: skip


def life_in(state: str) -> TaskLife:
    life = TaskLife(TaskId(0, 1))
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
