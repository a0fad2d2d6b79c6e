"""Which instance runs which task, and what of a configuration reaches the clients."""

from __future__ import annotations

import pytest

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import ConfigError
from kstreams_repl.instance.plan import assign_tasks, client_settings, transactional_id
from kstreams_repl.types import TaskId


def tasks(*counts: int) -> list[TaskId]:
    return [TaskId(sub, number) for sub, count in enumerate(counts) for number in range(count)]


def test_each_subtopology_is_spread_evenly() -> None:
    slots = assign_tasks(tasks(4, 4), 2)
    assert [sum(task.subtopology == sub for task in slot) for slot in slots for sub in (0, 1)] == [2, 2, 2, 2]


def test_every_task_has_one_instance() -> None:
    slots = assign_tasks(tasks(7, 3), 3)
    assert sorted(task for slot in slots for task in slot) == tasks(7, 3)


def test_tasks_stay_where_they_were() -> None:
    before = assign_tasks(tasks(4), 2)
    previous = {task: slot for slot, held in enumerate(before) for task in held}
    assert assign_tasks(tasks(4), 2, previous) == before
    fewer = assign_tasks(tasks(4), 4, previous)
    assert all(
        any(task in held and previous[task] == slot for slot, held in enumerate(fewer)) for task in (before[0][0], before[1][0])
    )


def test_more_instances_than_tasks_leave_some_empty() -> None:
    assert [len(slot) for slot in assign_tasks(tasks(2), 4)] == [1, 1, 0, 0]


def test_transactional_id_has_no_generation() -> None:
    assert transactional_id("app", 3) == "app-3"


def test_client_settings_pass_through() -> None:
    config = StreamsConfig(
        {
            "bootstrap.servers": "b:1",
            "sasl.password": "x",
            "main.consumer.fetch.wait.max.ms": 5,
            "repl.client.client.id": "me",
            "topic.x": 1,
        }
    )
    assert client_settings(config).revealed("consumer") == {
        "bootstrap.servers": "b:1",
        "sasl.password": "x",
        "fetch.wait.max.ms": 5,
        "client.id": "me",
    }


def test_missing_address_is_told() -> None:
    with pytest.raises(ConfigError, match="bootstrap.servers"):
        client_settings(StreamsConfig({"application.id": "a"}))
