"""Compare two topologies on records that are at hand, without a broker: both begin with empty stores."""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.global_task import GlobalTask
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.compare.answers import Answers
from kstreams_repl.repl.session.views.compare.compare import compare
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from kstreams_repl.repl.session.views.compare.inputs import Inputs
from kstreams_repl.repl.session.views.compare.side import Base, SideTopology
from kstreams_repl.system.types import RecordBatch, TopicPartition


def compare_topologies(
    before: Topology,
    after: Topology,
    records: Mapping[TopicPartition, RecordBatch],
    *,
    name: str = "test",
    config: Mapping[str, object] | None = None,
    partitions: Mapping[str, int] | None = None,
    calls: bool = False,
    samples: int = 20,
) -> Comparison:
    """Return what differs between two topologies.

    Args:
        records: of the inputs; those of global tables are there from the beginning.
        config: settings of both.
        partitions: of topics; None: as many as `records` have.
        calls: whether functions of asynchronous nodes may be called.
        samples: how many rows that differ are kept of each output and store.
    """
    settings = StreamsConfig({**(config or {}), "application.id": name})
    sizes: dict[str, int] = {}
    for partition in records:
        sizes[partition.topic] = max(sizes.get(partition.topic, 1), partition.partition + 1)
    stores, topics = _global_stores(before, after, records, settings)
    inputs = Inputs({partition: batch for partition, batch in records.items() if partition.topic not in topics})
    answers = Answers(calls=calls)
    answers.refuse(before, after)

    def sides() -> tuple[SideTopology, SideTopology]:
        one, other = (
            SideTopology(topology, name, settings, {**sizes, **(partitions or {})}, answers.of_a_side()) for topology in (before, after)
        )
        return one, other

    return compare(sides, Base(global_stores=stores), inputs, title="the beginning", samples=samples)


def _global_stores(
    before: Topology, after: Topology, records: Mapping[TopicPartition, RecordBatch], config: StreamsConfig
) -> tuple[Mapping[str, object], set[str]]:
    """Return the stores of global tables, and their topics."""
    parts = {part.stores[0].name: part for topology in (before, after) for part in topology.subtopologies() if part.global_}
    if not parts:
        return {}, set()
    task = GlobalTask(config["application.id"], list(parts.values()), config=config, environment=MemoryEnvironment(), wall_clock=lambda: 0)
    for partition, batch in records.items():
        if partition.topic in task.topics:
            task.update(partition.topic, partition.partition, batch)
    return task.stores, set(task.topics)
