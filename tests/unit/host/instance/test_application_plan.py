"""Which instance runs which task, and what of a configuration reaches the clients."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.application_plan import ApplicationPlan, client_settings, transactional_id
from kstreams_repl.host.kafka import clients
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.spark.planning.task_assignment import assign_standbys, assign_tasks
from kstreams_repl.system.errors import ConfigError
from kstreams_repl.system.types import TaskId


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
    settings = client_settings(config)
    assert settings.revealed("consumer") == {"bootstrap.servers": "b:1", "sasl.password": "x", "client.id": "me"}
    assert settings.revealed_own("main.consumer") == {"fetch.wait.max.ms": 5}


def test_restore_consumer_settings_reach_the_consumers_of_changelogs_only() -> None:
    config = StreamsConfig({"bootstrap.servers": "b:1", "consumer.fetch.min.bytes": 5, "restore.consumer.fetch.min.bytes": 9})
    settings = client_settings(config)
    assert settings.revealed_own("restore.consumer") == {"fetch.min.bytes": 9}
    assert settings.revealed("consumer")["fetch.min.bytes"] == 5
    assert settings.revealed("producer") == {"bootstrap.servers": "b:1"}


def test_restoring_consumer_has_its_own_settings_over_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_make", lambda kind, given, settings, events: given)
    settings = ClientSettings("b:1", {"consumer.fetch.min.bytes": 5, "restore.consumer.queued.max.messages.kbytes": 9})
    made: Any = clients.make_consumer(settings, group_id="g", role="restore", queued_max_messages_kbytes=7)
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


@pytest.mark.parametrize("role", ["main", "restore", "global"])
def test_consumers_of_a_role_have_its_settings_whatever_order_they_are_given_in(monkeypatch: pytest.MonkeyPatch, role: Any) -> None:
    monkeypatch.setattr(clients, "_make", lambda kind, given, settings, events: given)
    prefixed = {f"{role}.consumer.fetch.min.bytes": 9, "consumer.fetch.min.bytes": 5, "bootstrap.servers": "b:1"}
    settings = client_settings(StreamsConfig(prefixed))
    made: Any = clients.make_consumer(settings, group_id="g", role=role, enable_partition_eof=True)
    assert (made["fetch.min.bytes"], made["enable.partition.eof"]) == (9, True)
    for other in {"main", "restore", "global", None} - {role}:
        another: Any = clients.make_consumer(settings, group_id="g", role=other)  # type: ignore[arg-type]
        assert another["fetch.min.bytes"] == 5


def test_what_the_application_decides_is_its_own_whatever_client_it_is_said_of() -> None:
    config = StreamsConfig(
        {
            "bootstrap.servers": "b:1",
            "main.consumer.auto.offset.reset": "latest",
            "consumer.auto.offset.reset": "none",
            "auto.offset.reset": "earliest",
            "consumer.max.poll.interval.ms": "60000",
            "producer.transaction.timeout.ms": 30_000,
        }
    )
    assert (config["auto.offset.reset"], config["max.poll.interval.ms"], config["transaction.timeout.ms"]) == ("latest", 60_000, 30_000)
    assert not config.client and client_settings(config).properties == {}
    assert config.with_(commit_interval_ms=5)["auto.offset.reset"] == "latest"
    with pytest.raises(ConfigError, match=r"auto\.offset\.reset = 'newest'"):
        StreamsConfig({"consumer.auto.offset.reset": "newest"})


def plan_of(**config: Any) -> ApplicationPlan:
    checked = StreamsConfig({"application.id": "app", "bootstrap.servers": "b:1"} | config)
    return ApplicationPlan("app", 1, checked, client_settings(checked), (), "state", "control")


def test_input_is_read_at_the_isolation_level_that_was_asked_for() -> None:
    assert plan_of().isolation == "read_uncommitted"
    assert plan_of(**{"consumer.isolation.level": "read_committed"}).isolation == "read_committed"
    assert plan_of(**{"main.consumer.isolation.level": "read_committed"}).isolation == "read_committed"
    assert plan_of(**{"processing.guarantee": "exactly_once_v2"}).isolation == "read_committed"
    with pytest.raises(ConfigError, match="contradicts exactly_once_v2"):
        plan_of(**{"processing.guarantee": "exactly_once_v2", "consumer.isolation.level": "read_uncommitted"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("consumer.group.id", "mine"),
        ("repl.client.group.id", "mine"),
        ("main.consumer.enable.auto.commit", True),
        ("restore.consumer.auto.offset.reset", "latest"),
        ("consumer.isolation.level", "serializable"),
        ("global.consumer.isolation.level", "read_uncommitted"),
        ("producer.enable.idempotence", "false"),
        ("producer.partitioner", "random"),
        ("producer.transactional.id", "mine"),
    ],
)
def test_what_exactness_rests_on_is_refused_and_not_passed_over(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        client_settings(StreamsConfig({"bootstrap.servers": "b:1", name: value}))
    assert raised.value.hint and raised.value.key == name.removeprefix("repl.client.")


def test_what_is_so_anyway_may_be_said() -> None:
    same = {"consumer.enable.auto.commit": False, "producer.enable.idempotence": "true", "producer.partitioner": "murmur2_random"}
    client_settings(StreamsConfig({"bootstrap.servers": "b:1", **same}))
