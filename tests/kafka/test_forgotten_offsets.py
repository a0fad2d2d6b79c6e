"""The group does not have the offset of an input any more, or has none yet. Real broker, one instance in this process, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.commit import failpoints
from kstreams_repl.host.instance.control.channel import Signal
from kstreams_repl.host.instance.instance import Instance
from kstreams_repl.host.instance.polling.poll_loop import PollLoop
from kstreams_repl.host.kafka.clients import make_transactional_producer
from kstreams_repl.system.errors import TaskCorruptedError
from kstreams_repl.system.types import TopicPartition
from tests.faults.one_task import BOTH, SECONDS, OneTask

pytestmark = pytest.mark.kafka


def counting(source: str, sink: str) -> Any:
    builder = StreamsBuilder()
    builder.stream(source, **BOTH).group_by_key(**BOTH).count(store="kept")
    return builder.build()


def rows(count: int) -> dict[bytes, bytes]:
    return {b"k%04d" % number: b"v" for number in range(count)}


def counts(task: OneTask, instance: Instance) -> set[int]:
    return {int.from_bytes(value, "big") for value in task.content(instance).values()}


def forget(task: OneTask) -> None:
    assert task.admin.delete_groups([task.name]) == (task.name,)


def die_at(task: OneTask, place: str, records: int) -> None:
    """The process is over at a failpoint of its first commit."""

    def over() -> None:
        raise RuntimeError(place)

    failpoints.hook(place, over)
    instance = task.open()
    try:
        with pytest.raises(RuntimeError, match=place):
            task.run(instance, records)
    finally:
        failpoints.hook(place, None)
        instance.close()


@pytest.fixture(params=["lmdb", "in_memory"])
def keeper(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("wiped", [False, True], ids=["local store", "no local store"])
def test_a_topic_that_was_made_anew_while_nobody_ran_is_read_from_its_beginning(broker: Any, tmp_path: Path, wiped: bool) -> None:
    """Its offsets go with it at the broker; those of the store's own commit are of the former topic."""
    task = OneTask(broker.bootstrap_servers, tmp_path, counting)
    task.process(rows(100))
    other = TopicPartition(task.sink, 0)
    if wiped:
        task.wipe()
        task.admin.commit_offsets(task.name, {other: 0})  # the group has read something else, too
    task.admin.delete_topics([task.source])
    task.admin.create_topic(task.source, 1)
    task.write(rows(150))
    instance = task.open()
    assert instance.tasks[0].starts == {TopicPartition(task.source, 0): 0}
    instance.close()  # before its first commit
    instance = task.open()
    task.run(instance, 150)
    assert counts(task, instance) == {1, 2}
    instance.close()


def test_a_store_behind_its_changelog_does_not_say_where_input_goes_on(broker: Any, tmp_path: Path) -> None:
    """Killed between the transaction and the local store, and the group is forgotten: the commit's records were counted twice."""
    task = OneTask(broker.bootstrap_servers, tmp_path, counting)
    task.process(rows(50))
    task.write(rows(50))
    die_at(task, "F7", 50)
    forget(task)
    with pytest.raises(TaskCorruptedError, match="behind their changelogs") as caught:
        task.open()
    assert (caught.value.topic, caught.value.partition) == (task.source, 0)


def test_a_store_at_its_last_commit_says_where_input_goes_on(broker: Any, tmp_path: Path) -> None:
    """What follows in the changelog are records of a transaction that was aborted."""
    task = OneTask(broker.bootstrap_servers, tmp_path, counting)
    task.process(rows(50))
    task.write(rows(50))
    die_at(task, "F5", 50)
    forget(task)
    instance = task.open()
    task.run(instance, 50)
    assert counts(task, instance) == {2}
    instance.close()


def test_a_changelog_without_its_group_is_not_counted_on_from_the_first_record(broker: Any, tmp_path: Path, keeper: str) -> None:
    task = OneTask(broker.bootstrap_servers, tmp_path, counting, **{"default.dsl.store": keeper})
    task.process(rows(50))
    forget(task)
    if keeper == "lmdb":
        task.wipe()
    with pytest.raises(TaskCorruptedError, match="only changelogs with records"):
        task.open()
    task.admin.commit_offsets(task.name, {TopicPartition(task.source, 0): 50})
    instance = task.open()
    assert counts(task, instance) == {1}
    instance.close()


def test_a_first_commit_that_never_came_is_no_state(broker: Any, tmp_path: Path, keeper: str) -> None:
    task = OneTask(broker.bootstrap_servers, tmp_path, counting, **{"default.dsl.store": keeper})
    task.write(rows(50))
    die_at(task, "F5", 50)
    if keeper == "lmdb":
        task.wipe()
    instance = task.open()
    task.run(instance, 50)
    assert counts(task, instance) == {1}
    instance.close()


def test_the_latest_offset_is_before_what_an_open_transaction_holds(broker: Any, tmp_path: Path) -> None:
    """It commits later: those records come from now on, as with the consumer of Java."""
    task = OneTask(broker.bootstrap_servers, tmp_path, counting, **{"auto.offset.reset": "latest"})
    producer = make_transactional_producer(task.settings, transactional_id=f"{task.name}-other", transaction_timeout_ms=60_000)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(task.source, b"v", b"k")
    assert producer.flush(20) == 0
    instance = task.open()
    producer.commit_transaction(20)
    PollLoop(instance, signal=lambda now: Signal.PAUSE if instance.counters.records else Signal.RUN, report=lambda _: None).run(
        instance.committer.last_commit + SECONDS / 6
    )
    assert counts(task, instance) == {1}
    instance.close()
