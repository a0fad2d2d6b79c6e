"""Compare two topologies on recorded records, without a broker: both begin with empty stores."""

from __future__ import annotations

from collections.abc import Mapping

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.runtime.global_task import GlobalTask
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.topology.nodes import SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.views.compare.answers import Answers
from kstreams_repl.repl.session.views.compare.compare import compare
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from kstreams_repl.repl.session.views.compare.inputs import Inputs
from kstreams_repl.repl.session.views.compare.side import Base, SideTopology, own_topics
from kstreams_repl.repl.session.views.counts.consumer_lag import topics_of_source
from kstreams_repl.system.types import RecordBatch, TopicPartition
from kstreams_repl.test_driver.recording import Recording


def compare_topologies(
    topology: object,
    changed: object,
    recording: Recording,
    config: Mapping[str, object] | None = None,
    *,
    calls: bool = False,
    samples: int = 20,
) -> Comparison:
    """Return what differs between two topologies on the same records, without a broker: `Application.compare` for a test.

    Args:
        topology: a builder, stream, table or topology: *before*.
        changed: another one: *after*. Records of topics that neither reads are left out.
        recording: of the inputs. Records of global tables are there from the beginning.
        config: settings of both.
        calls: whether functions of asynchronous nodes may be called. Both sides get the same answers.
        samples: how many rows that differ are kept of each output and store.

    Raises:
        StreamsProcessingError: a function of `topology` raises at the first record.
        IllegalStateError: a function of an asynchronous node would be called, and `calls` is False.

    Example:
        >>> import kstreams_repl as ks
        >>> def words(least):
        ...     builder = ks.StreamsBuilder()
        ...     stream = builder.stream("words", key_serde="string", value_serde="string", name="words")
        ...     stream.filter(lambda key, word: len(word) > least, name="long").to("out", value_serde="string", name="sink")
        ...     return builder
        ...
        >>> recording = ks.testing.Recording([ks.testing.RecordedRecord("words", 0, 7, 1000, b"a", b"two")], {"words": 1})
        >>> ks.testing.compare_topologies(words(2), words(3), recording).first.node
        'long'
    """
    settings = StreamsConfig({"application.id": "test", **(config or {})})
    one, other = topology_of(topology, settings), topology_of(changed, settings)
    batches = batches_of(recording, one, other)
    stores, tables = _global_stores(one, other, batches, settings)
    left_out = tables | own_topics(settings["application.id"], one) | own_topics(settings["application.id"], other)
    inputs = Inputs({partition: batch for partition, batch in batches.items() if partition.topic not in left_out})
    answers = Answers(calls=calls)

    def sides() -> tuple[SideTopology, SideTopology]:
        name = settings["application.id"]
        mine, theirs = (SideTopology(each, name, settings, recording.topics, answers.of_a_side()) for each in (one, other))
        return mine, theirs

    with answers.asked_by(one, other):
        return compare(sides, Base(global_stores=stores), inputs, title="the beginning", samples=samples)


def batches_of(recording: Recording, *topologies: Topology) -> dict[TopicPartition, RecordBatch]:
    """Return the records that any of the topologies reads, by partition."""
    read = {
        topic
        for topology in topologies
        for node in topology.nodes.values()
        if isinstance(node, SourceNode)
        for topic in topics_of_source(node, topology, "", recording.topics)
    }
    batches: dict[TopicPartition, RecordBatch] = {}
    for record in recording:
        if record.topic not in read:
            continue
        partition = TopicPartition(record.topic, record.partition)
        batch = batches.setdefault(partition, RecordBatch([], [], [], [], [], record.topic))
        batch.keys.append(record.key)
        batch.values.append(record.value)
        batch.timestamps.append(record.timestamp)
        batch.offsets.append(record.offset)
        assert batch.headers is not None
        batch.headers.append(record.headers)
    return batches


def _global_stores(
    before: Topology, after: Topology, records: Mapping[TopicPartition, RecordBatch], config: StreamsConfig
) -> tuple[Mapping[str, object], set[str]]:
    """Return the stores of global tables, and their topics."""
    parts = {part.stores[0].name: part for topology in (before, after) for part in topology.subtopologies() if part.global_}
    if not parts:
        return {}, set()
    task = GlobalTask(
        config["application.id"], list(parts.values()), config=config, environment=MemoryEnvironment(), wall_clock=lambda: 0
    )
    for partition, batch in records.items():
        if partition.topic in task.topics:
            task.update(partition.topic, partition.partition, batch)
    return task.stores, set(task.topics)
