"""`num.threads.per.task` (KIP-311): functions of one task at the same time, results in order, and the errors that the KIP names."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes import json
from kstreams_repl.host.instance.epochs.task_pool import TaskPool
from kstreams_repl.system.errors import ConfigError, StreamsProcessingError
from kstreams_repl.system.types import TopicPartition
from tests.unit.engine.runtime.rig import Rig


def rig_of(build: Callable[[Any], Any], **config: Any) -> tuple[Rig, TaskPool]:
    """A task whose functions run on four threads."""
    builder = ks.StreamsBuilder()
    build(builder.stream("in", key_serde="string", value_serde="json")).to("out", key_serde="string", value_serde="json")
    rig = Rig(builder.build(), {"num.stream.threads": 4, "num.threads.per.task": 4, **config})
    pool = TaskPool("test-task", 4)
    if rig.task.services.threads is not None:
        rig.task.services.threads.submit = pool.submit
    return rig, pool


def rows(count: int) -> list[tuple[str, int, int]]:
    return [(f"k{at % 7}", at, at) for at in range(count)]


def test_fewer_threads_than_a_task_needs_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"num\.stream\.threads = 1 is below num\.threads\.per\.task = 2") as caught:
        StreamsConfig({"num.threads.per.task": 2})
    assert caught.value.key == "num.threads.per.task"
    with pytest.raises(ConfigError, match="invalid"):
        StreamsConfig({"num.threads.per.task": 0})


@pytest.mark.parametrize(
    ("threads", "per_task", "groups"), [(1, 1, (1,)), (3, 1, (1, 1, 1)), (4, 4, (4,)), (7, 3, (4, 3)), (8, 4, (4, 4)), (5, 3, (5,))]
)
def test_the_first_instance_has_the_remainder(threads: int, per_task: int, groups: tuple[int, ...]) -> None:
    assert StreamsConfig({"num.stream.threads": threads, "num.threads.per.task": per_task}).thread_groups == groups


def test_functions_of_one_task_wait_for_each_other_on_their_threads_and_leave_in_order() -> None:
    together, names = threading.Barrier(4, timeout=10.0), set()

    def waits(value: Any) -> Any:
        names.add(threading.current_thread().name)
        together.wait()
        return value

    rig, pool = rig_of(lambda stream: stream.map_values(waits).filter(lambda key, value: value >= 0))
    assert rig.pipe("in", *rows(64)).run() == 64
    assert [json.deserialize(value) for _, value, _ in rig.outbox.to("out")] == list(range(64))
    assert len(names) == 4
    assert threading.current_thread().name not in names
    assert rig.commit().offsets == {TopicPartition("in", 0): 64}
    pool.close()


def test_random_times_change_no_output_and_no_count_of_nodes() -> None:
    pick = random.Random(3)

    def slept(value: Any) -> Any:
        time.sleep(pick.random() / 2_000)
        return value

    def build(stream: Any) -> Any:
        chain = stream.filter(lambda key, value: slept(value) % 3 != 0).flat_map_values(lambda value: [slept(value)] * (value % 4))
        windowed = chain.map_values(lambda value: slept(value) + 1).group_by_key(key_serde="string", value_serde="json")
        counts = windowed.windowed_by(ks.TimeWindows.of_size(timedelta(milliseconds=5))).count()
        return counts.to_stream().select_key(lambda key, value: key.key)

    found = []
    for threads in (1, 4):
        rig, pool = rig_of(build, **{"num.threads.per.task": threads, "statestore.cache.max.bytes": 0})
        rig.pipe("in", *((key, value, value + 50 - 40 * (value % 11 == 0)) for key, value, _ in rows(300))).run()
        rig.commit()
        found.append((rig.outbox.to("out"), rig.task.counts.read(), rig.task.dropped))
        pool.close()
    assert found[0] == found[1]
    assert len(found[0][0]) > 100


def test_an_error_names_node_and_record_and_nothing_behind_it_leaves() -> None:
    def fails(value: Any) -> Any:
        if value == 5:
            raise ValueError("five")
        return value

    rig, pool = rig_of(lambda stream: stream.map_values(fails, name="risky"))
    with pytest.raises(StreamsProcessingError, match="ValueError: five") as caught:
        rig.pipe("in", *rows(20)).run()
    assert (caught.value.node, caught.value.fields["offset"]) == ("risky", 5)
    assert [json.deserialize(value) for _, value, _ in rig.outbox.to("out")] == [0, 1, 2, 3, 4]
    pool.close()


def test_the_exception_handler_decides_about_each_record() -> None:
    def fails(value: Any) -> Any:
        if value % 5 == 0:
            raise ValueError("five")
        return value

    rig, pool = rig_of(lambda stream: stream.map_values(fails), **{"processing.exception.handler": "continue"})
    rig.pipe("in", *rows(20)).run()
    assert [json.deserialize(value) for _, value, _ in rig.outbox.to("out")] == [value for value in range(20) if value % 5]
    pool.close()


def test_a_pool_keeps_its_size_and_ends() -> None:
    pool = TaskPool("test-pool", 3)
    assert [started.result() for started in [pool.submit(lambda number=number: number) for number in range(20)]] == list(range(20))
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("test-pool-")]
    assert len(threads) == 3
    pool.close()
    for thread in threads:
        thread.join(5.0)
        assert not thread.is_alive()
