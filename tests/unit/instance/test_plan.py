"""Which instance runs which task, and what of a configuration reaches the clients."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import ConfigError
from kstreams_repl.instance.assignment import assign_standbys, assign_tasks
from kstreams_repl.instance.plan import client_settings, transactional_id
from kstreams_repl.kafka import clients
from kstreams_repl.kafka.clients import ClientSettings
from kstreams_repl.types import TaskId


def tasks(*counts: int) -> list[TaskId]:
    return [TaskId(sub, number) for sub, count in enumerate(counts) for number in range(count)]


def test_each_subtopology_is_spread_evenly() -> None:
    slots = assign_tasks(tasks(4, 4), 2)
    assert [sum(task.subtopology == sub for task in slot) for slot in slots for sub in (0, 1)] == [2, 2, 2, 2]


def test_one_partition_number_of_two_subtopologies_goes_to_two_instances() -> None:
    slots = assign_tasks(tasks(4, 4), 2)
    assert slots[0] == [TaskId(0, 0), TaskId(0, 2), TaskId(1, 1), TaskId(1, 3)]
    assert slots[1] == [TaskId(0, 1), TaskId(0, 3), TaskId(1, 0), TaskId(1, 2)]


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


def test_a_task_that_must_move_goes_where_its_copy_is() -> None:
    previous = {TaskId(0, 0): 0, TaskId(0, 1): 0, TaskId(0, 2): 1, TaskId(0, 3): 3}
    slots = assign_tasks(tasks(4), 3, previous, {TaskId(0, 3): (1,)})
    assert slots == [[TaskId(0, 0), TaskId(0, 1)], [TaskId(0, 2), TaskId(0, 3)], []]


def test_standbys_are_on_other_executors_and_stay() -> None:
    active = assign_tasks(tasks(4), 4)
    copies = assign_standbys(active, tasks(4), 1, places=("a", "a", "b", "b"))
    places = "aabb"
    assert all(places[slot] != places[task.partition] for slot, held in enumerate(copies) for task in held)
    assert sorted(task for held in copies for task in held) == tasks(4)
    previous = {task: (slot,) for slot, held in enumerate(copies) for task in held}
    assert assign_standbys(active, tasks(4), 1, places=("b", "a", "b", "a"), previous={}) != copies
    assert assign_standbys(active, tasks(4), 1, places=("a", "a", "b", "b"), previous=previous) == copies


def test_no_more_standbys_than_other_instances() -> None:
    assert assign_standbys([[TaskId(0, 0)]], tasks(1), 2) == [[]]
    assert assign_standbys([[TaskId(0, 0)], []], tasks(1), 2) == [[], [TaskId(0, 0)]]


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


def test_restore_consumer_settings_reach_the_consumers_of_changelogs_only() -> None:
    config = StreamsConfig({"bootstrap.servers": "b:1", "consumer.fetch.min.bytes": 5, "restore.consumer.fetch.min.bytes": 9})
    settings = client_settings(config)
    assert settings.revealed_own("restore.consumer") == {"fetch.min.bytes": 9}
    assert settings.revealed("consumer")["fetch.min.bytes"] == 5
    assert settings.revealed("producer") == {"bootstrap.servers": "b:1"}


def test_restoring_consumer_has_its_own_settings_over_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_make", lambda kind, given, settings, events: given)
    settings = ClientSettings("b:1", {"consumer.fetch.min.bytes": 5, "restore.consumer.queued.max.messages.kbytes": 9})
    made: Any = clients.make_consumer(settings, group_id="g", restoring=True, queued_max_messages_kbytes=7)
    assert (made["fetch.min.bytes"], made["queued.max.messages.kbytes"], made["enable.partition.eof"]) == (5, 9, True)
    plain: Any = clients.make_consumer(settings, group_id="g", queued_max_messages_kbytes=7)
    assert (plain["queued.max.messages.kbytes"], plain["enable.partition.eof"]) == (7, False)


def test_application_has_the_sessions_settings_and_its_own_over_them() -> None:
    session = ClientSettings("b:1", {"sasl.password": "x", "producer.linger.ms": 1})
    settings = client_settings(StreamsConfig({"producer.linger.ms": 2}), session)
    assert settings.revealed("producer") == {"bootstrap.servers": "b:1", "sasl.password": "x", "linger.ms": 2}


def test_missing_address_is_told() -> None:
    with pytest.raises(ConfigError, match="bootstrap.servers"):
        client_settings(StreamsConfig({"application.id": "a"}))
