"""Input that follows another application: what is held back, when it is processed, and what a commit then includes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling import followed_input
from kstreams_repl.host.instance.polling.followed_input import FollowedInput
from kstreams_repl.system.types import TopicPartition
from tests.unit.host.instance.rig import Client, instance_of, rows
from tests.unit.host.instance.test_input_bounds import IN, offset_to_commit, run, topology


def following(client: Client, leader: Any) -> Instance:
    instance = instance_of(topology(), client)
    nothing: Any = SimpleNamespace(close=lambda: None)
    instance.followed = instance.bounds = FollowedInput(leader, instance.clients, [IN], nothing)
    instance.input._bounds = instance.followed
    for task in instance.tasks:
        instance.followed.assign(task)
    return instance


def test_records_beyond_the_leaders_offset_are_held_back_until_it_has_committed_them() -> None:
    leader: Any = SimpleNamespace(offsets=None)
    instance = following(Client(rows("in", 5), rows("in", 5, start=5)), leader)
    run(instance)
    assert instance.counters.records == 0, "nothing is known of the leader yet"
    leader.offsets = {IN: 7}
    run(instance)
    assert instance.counters.records == 7 and instance.followed is not None and instance.followed.passed(IN) == 7
    leader.offsets = {IN: 7}
    run(instance)
    assert instance.counters.records == 7
    leader.offsets = {IN: 10}
    run(instance)
    assert instance.counters.records == 10 and offset_to_commit(instance) == 10


def test_markers_are_passed_only_up_to_records_that_are_held_back() -> None:
    """The consumer has read to 9, the leader committed 4: an offset beyond that would lose what is held back."""
    leader: Any = SimpleNamespace(offsets={IN: 4})
    client = Client(rows("in", 3), rows("in", 2, start=6))
    client.markers = {IN: 9}
    instance = following(client, leader)
    run(instance)
    assert instance.counters.records == 3 and instance.followed is not None and instance.followed.passed(IN) == 4
    leader.offsets = {IN: 9}
    run(instance)
    assert instance.counters.records == 5
    instance.followed.touch(instance.tasks, 1e9)
    assert offset_to_commit(instance) == 9


def test_a_partition_is_not_fetched_while_very_many_of_its_records_are_held_back(monkeypatch: Any) -> None:
    monkeypatch.setattr(followed_input, "_MOST_HELD", 4)
    leader: Any = SimpleNamespace(offsets={IN: 0})
    client = Client(rows("in", 5), rows("in", 5, start=5))
    instance = following(client, leader)
    run(instance)
    assert client.paused == {IN} and instance.counters.records == 0
    leader.offsets = {IN: 8}
    run(instance)
    assert not client.paused and instance.counters.records == 8


def test_what_the_leader_does_not_read_is_not_held_back() -> None:
    leader: Any = SimpleNamespace(offsets={TopicPartition("other", 0): 1})
    instance = following(Client(rows("in", 5)), leader)
    run(instance)
    run(instance)
    assert instance.counters.records == 5
