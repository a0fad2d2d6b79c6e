"""What an instance's producer needs to know of the topics it writes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.task import TaskSpec
from kstreams_repl.host.instance.application_plan import ApplicationPlan
from kstreams_repl.host.instance.failures.rejected_records import RejectedRecords, producer_settings
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.system.types import TaskId, TopicPartition


def plan() -> ApplicationPlan:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde="string").repartition(name="again")
    stream.group_by_key().count(store="counts").to_stream().to("out")
    topology, config = builder.build(), StreamsConfig({"application.id": "app"})
    inner = frozenset(topology.internal_topics)
    specs = tuple(
        TaskSpec("app", part, TaskId(part.id, 0), {TopicPartition("in", 0): part.nodes[0].name}, config, inner)
        for part in topology.subtopologies()
    )
    known = {"in": 1, "out": 1, "app-again-repartition": 1, "app-counts-changelog": 1}
    return ApplicationPlan("app", 1, config, ClientSettings("nowhere:1"), (specs,), str(Path("state")), "control", known)


@pytest.mark.parametrize("limited", ["out", "app-again-repartition", "app-counts-changelog"])
def test_batches_are_no_larger_than_any_topic_allows_that_is_written(limited: str) -> None:
    """Of the application's own topics nobody asked: each batch was refused, and the instance looked closely at every ten seconds."""
    admin: Any = SimpleNamespace(
        topic_configs=lambda names: {name: {"max.message.bytes": "5000" if name == limited else "1048588"} for name in names}
    )
    assert producer_settings(plan(), admin, RejectedRecords()) == {"batch_size": 5000}
