"""`TopologyTestDriver(mode=…)`: the engine as it is deployed, in the test driver. Conformance runs in both modes, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.engine.stores.engine.lmdb import LmdbEnvironment
from kstreams_repl.testing import SavedState, TopologyTestDriver


def counting() -> StreamsBuilder:
    builder = StreamsBuilder()
    builder.stream("words", key_serde=serdes.string, value_serde=serdes.string).group_by_key().count(store="counts")
    return builder


def test_the_deployed_mode_has_stores_on_disk_which_go_with_the_driver() -> None:
    with TopologyTestDriver(counting(), mode="deployed") as driver:
        words = driver.create_input_topic("words", serdes.string, serdes.string)
        for _ in range(3):
            words.pipe_input("a", "x", timestamp=1)
        environment: Any = driver._task.environment  # type: ignore[union-attr]
        folder = Path(environment.path)
        assert isinstance(environment, LmdbEnvironment) and folder.exists()
        assert driver.state_store("counts").get("a") == ks.ValueAndTimestamp(3, 1)
    assert not folder.exists()


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="mode must be 'exact' or 'deployed', got 'fast'"):
        TopologyTestDriver(counting(), mode="fast")  # type: ignore[arg-type]


def test_a_driver_begins_with_the_state_of_a_task() -> None:
    state = SavedState(
        rows={"counts": {b"a": bytes(7) + b"\x05" + bytes(7) + b"\x29"}}, offsets={"words": 17}, times={"words": 5}, stream_time=5
    )
    modes: list[Any] = ["exact", "deployed"]
    for mode in modes:
        with TopologyTestDriver(counting(), mode=mode, state=state) as driver:
            assert driver.state_store("counts").get("a") == ks.ValueAndTimestamp(41, 5)
            driver.create_input_topic("words", serdes.string, serdes.string).pipe_input("a", "x", timestamp=1)
            assert driver.state_store("counts").get("a") == ks.ValueAndTimestamp(42, 5)
            task = driver._task
            assert task is not None and task.stream_time == 5 and task.record.offset == -1
            assert [queue.resume_offset for queue in task.queues.values()] == [18]
    with pytest.raises(ValueError, match="state is that of one task"):
        TopologyTestDriver(counting(), state=state, partitions=2)
