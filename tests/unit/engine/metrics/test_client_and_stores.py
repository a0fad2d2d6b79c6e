"""What the driver tells of an application and its instances, and what a store in memory knows of itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.metrics.catalogue import CLIENT, SPECS, STATE, TASK, THREAD, THREAD_ID, TOPIC
from kstreams_repl.engine.metrics.metrics_registry import Registry
from kstreams_repl.engine.metrics.metrics_snapshot import Snapshot
from kstreams_repl.engine.metrics.sensors import Window
from kstreams_repl.engine.runtime.task import StreamTask, TaskSpec
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.metrics.instance_metrics import InstanceMetrics
from kstreams_repl.host.instance.metrics.task_metrics import TaskMetrics
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.host.spark.client_metrics import client_metrics
from kstreams_repl.host.spark.instance_reports import ApplicationReport, InstanceReport
from kstreams_repl.system.types import TaskId, TopicPartition
from tests.unit.engine.metrics.contract import TAGS
from tests.unit.engine.runtime.rig import Outbox
from tests.unit.host.instance.rig import Client, instance_of, rows


def of_client(level: str = "INFO", status: str = "running", **states: str) -> Snapshot:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    told = {slot: InstanceReport(slot, state, 100 + slot, 1) for slot, state in enumerate(states.values())}
    config = StreamsConfig({"application.id": "counts", "metrics.recording.level": level})
    return client_metrics("counts", builder, config, status=status, reports=ApplicationReport(1, told))


def values(of: Snapshot, group: str) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(tags.values()): dict(named) for name, tags, named in of.groups if name == group}


@pytest.mark.parametrize(("level", "number"), [("INFO", 0), ("DEBUG", 1), ("TRACE", 2)])
def test_the_recording_level_is_told_by_kafkas_numbers(level: str, number: int) -> None:
    assert values(of_client(level), CLIENT)["counts",]["recording-level"] == number


def test_the_state_is_told_by_kafkas_numbers() -> None:
    numbers = {"created": 0, "starting": 1, "running": 2, "paused": 2, "stopped": 4, "failed": 6}
    assert {status: values(of_client(status=status), CLIENT)["counts",]["client-state"] for status in numbers} == numbers


def test_each_instance_tells_its_state_under_its_threads_name() -> None:
    told = values(of_client(one="running", two="failed"), THREAD)
    assert told == {("counts-StreamThread-1",): {"state": "running"}, ("counts-StreamThread-2",): {"state": "failed"}}


def test_what_the_driver_tells_is_documented_with_its_tags() -> None:
    for metric in of_client(one="running"):
        assert (metric.group, metric.name) in SPECS
        assert tuple(metric.tags) == TAGS[metric.group]


def store_metrics(kind: StoreKind, *, persistent: bool) -> dict[str, Any]:
    """The store's values after a look at it; it has seven rows."""
    registry = Registry("INFO", Window())
    metrics = TaskMetrics(registry, {THREAD_ID: "counts-StreamThread-1"}, "0_0")
    builder = StoreBuilder("counts", kind, persistent=persistent)
    store = SimpleNamespace(approximate_num_entries=lambda: 7)
    task: Any = SimpleNamespace(
        task=SimpleNamespace(stores={"counts": store}, spec=SimpleNamespace(subtopology=SimpleNamespace(stores=(builder,))))
    )
    metrics._task = task
    metrics._watch_store(task, builder)
    for look in metrics._store_feeds:
        look(0)
    return next((dict(named) for group, _, named in registry.snapshot(0).groups if group == STATE), {})


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE])
def test_a_key_value_store_in_memory_knows_its_number_of_keys(kind: StoreKind) -> None:
    assert store_metrics(kind, persistent=False) == {"estimate-num-keys": 7, "num-keys": 7}


def test_a_store_on_disk_estimates_only() -> None:
    assert store_metrics(StoreKind.TIMESTAMPED_KEY_VALUE, persistent=True) == {"estimate-num-keys": 7}


def test_a_task_that_reads_several_partitions_of_a_topic_has_consumed_the_sum() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    (part,) = builder.build().subtopologies()
    source = next(node.name for node in part.nodes if not getattr(node, "parents", ()))
    places = {TopicPartition("in", number): source for number in range(3)}
    spec = TaskSpec("app", part, TaskId(0, 0), places, StreamsConfig({"application.id": "app"}))
    task = StreamTask(spec, environment=MemoryEnvironment(), collector=Outbox(), wall_clock=lambda: 0)
    active = ActiveTask(task, task.environment, dict.fromkeys(places, 0), frozenset())
    active.counters.consumed.update({at: 10 + at.partition for at in places})
    registry = Registry("INFO", Window())
    TaskMetrics(registry, {THREAD_ID: "counts-StreamThread-1"}, "0_0").attach(active)
    (found,) = [named for group, _, named in registry.snapshot(0).groups if group == TOPIC]
    assert found["records-consumed-total"] == 33


def test_latencies_of_a_task_are_in_nanoseconds_as_in_kafka_streams() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="json").filter(lambda key, value: True).to("out")
    (active,) = instance_of(builder.build(), Client(rows("in", 3))).tasks
    registry = Registry("DEBUG", Window())
    metrics = TaskMetrics(registry, {THREAD_ID: "counts-StreamThread-1"}, "0_0")
    metrics.attach(active)
    active.counters.process.add(0.25)
    active.counters.punctuate.add(0.5)
    folded = metrics.fold(0, 0, stores=False)
    (found,) = [named for group, _, named in registry.snapshot(0).groups if group == TASK]
    assert (found["process-latency-max"], found["punctuate-latency-max"]) == (250_000_000, 500_000_000)
    assert folded.processed is not None and folded.processed.high == 250  # of the thread, in ms


def test_the_additional_metrics_of_a_task_have_their_values() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="json").filter(lambda key, value: True).to("out")
    instance = instance_of(builder.build(), Client(rows("in", 3)))
    (active,) = instance.tasks
    active.environment = SimpleNamespace(size_on_disk=lambda: 4096)
    registry = Registry("INFO", Window())
    metrics = TaskMetrics(registry, {THREAD_ID: "counts-StreamThread-1"}, "0_0")
    metrics.attach(active)
    for age in (30, 10):  # of the oldest and the newest record of a commit
        active.counters.commit_age.add(age)
    metrics.fold(0, 5, stores=True)
    (found,) = [named for group, _, named in registry.snapshot(0).groups if group == TASK]
    wanted = {"repl-lag": 5, "repl-state-size-bytes": 4096, "repl-commit-e2e-latency-min": 10, "repl-commit-e2e-latency-max": 30}
    assert {name: value for name, value in found.items() if name in wanted} == wanted
    assert found["repl-commit-e2e-latency-avg"] == 20


def test_the_additional_metrics_of_an_instance_and_an_application_have_their_values() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    instance = instance_of(builder.build(), Client())
    instance.committer.commit_id, instance.warm, instance.clients.fence.waited = 7, True, 0.0
    plan: Any = SimpleNamespace(config=StreamsConfig({"application.id": "app"}), application_id="app")
    metrics = InstanceMetrics(plan, 0)
    metrics.attach(instance)
    (found,) = values(metrics.snapshot(), THREAD).values()
    assert (found["repl-commit-id"], found["repl-warm"]) == (7, 1)
    assert values(of_client(), CLIENT)["counts",]["repl-generation"] == 1
