"""A replica of a task does, byte by byte, what the deployed engine did."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.repl.past.replica import TaskReplica
from kstreams_repl.testing import TopologyTestDriver
from tests.unit.repl.past.workloads import Feeder, everything, from_the_start, random_input, rows_of, spec_of


@pytest.mark.parametrize(("seed", "cache"), [(1, 0), (2, 10_000_000)])
def test_a_thousand_stepped_records_are_byte_equal_to_the_deployed_engine(seed: int, cache: int) -> None:
    topology = everything()
    spec = spec_of(topology, statestore_cache_max_bytes=cache)
    config = {"statestore.cache.max.bytes": cache}
    with (
        TopologyTestDriver(topology, config, mode="deployed", start_ms=0) as driver,
        TaskReplica(spec, starts=from_the_start(spec)) as replica,
    ):
        feeder, dropped = Feeder(replica), 0
        for number, piped in enumerate(random_input(seed, 1000)):
            driver.pipe_bytes(*piped)
            feeder.feed(*piped)
            trace = replica.step_record()
            assert trace is not None and trace.error is None, trace
            assert trace.position[:2] == (piped[0], 0)
            sent = {(r.topic, r.key, r.value, r.timestamp) for r in trace.sent}
            expected = {
                (topic, r.key, r.value, r.timestamp) for topic in driver.produced_topic_names() for r in driver._outputs[topic]
            }
            assert sent == expected, f"record {number}: {piped}"
            by_topic: dict[str, list[Any]] = {}
            for r in trace.sent:
                by_topic.setdefault(r.topic, []).append((r.key, r.value, r.timestamp))
            for topic, queue in driver._outputs.items():
                assert [(r.key, r.value, r.timestamp) for r in queue] == by_topic.get(topic, []), f"record {number}, {topic}"
                queue.clear()
            dropped += sum(len(visit.drops) for visit in trace.visits)
        assert dropped == driver.dropped > 0
        task: Any = driver._task
        assert rows_of(replica._environment, replica.spec) == rows_of(task.environment, replica.spec)
