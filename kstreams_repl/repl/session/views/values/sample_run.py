"""Values between nodes without a deploy: a bounded sample of the real topics through the test driver, with taps on the nodes.

The sample is the last records of every source topic (of tables and global tables the first, up to the bound, so that joins find
their rows), fed in the order in which a task would take them: by the timestamps of the partitions' heads, global tables first. It
grows fourfold until the requested node has forwarded enough, all is read, or the time is up.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.operators.own_copy import own_copy
from kstreams_repl.engine.operators.tables.table_source import TableSource
from kstreams_repl.engine.runtime.compiler.tap_points import sends_changes
from kstreams_repl.engine.runtime.nodes.source import ConsumedRecord
from kstreams_repl.engine.serdes.header_ids import framing
from kstreams_repl.engine.topology.nodes import ProcessorNode, SourceNode
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.reading import OffsetRange, ranges_of, read_ranges
from kstreams_repl.pictures.table import value_text
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.inspection.topics import bounded
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.source.error_source import with_source
from kstreams_repl.repl.session.topics.records import ReadRecord, Records
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.repl.session.views.picture.join_keys import JoinKeys
from kstreams_repl.repl.session.views.picture.silent_nodes import where_values_end
from kstreams_repl.repl.session.views.values.sample import NodeSample, Sample
from kstreams_repl.system.errors import KStreamsError, StreamsProcessingError, UnknownTopicError
from kstreams_repl.system.types import Headers, RecordBatch, TopicPartition
from kstreams_repl.test_driver.driver import TopologyTestDriver
from kstreams_repl.test_driver.driver_topics import serdes_of_topic

FIRST_SAMPLE = 500
TABLE_SAMPLE = 20_000
LARGEST_SAMPLE = 128_000

_Input = tuple[int, int, str, bytes | None, bytes | None, Headers]
"""Rank (global tables 0, tables 1, streams 2), time, topic, key, value, headers."""


def sample(
    admin: Admin,
    topology: Topology,
    *,
    node: str | None,
    n: int,
    seconds: float,
    config: Mapping[str, object] | None = None,
) -> Sample:
    """Run a topology over a sample of its topics.

    Args:
        node: stop when this one has forwarded `n` records; None: one first sample is enough.
        n: how many of the last records of each node are kept.
        seconds: begin no larger sample after that.

    Raises:
        UnknownTopicError: a source topic does not exist.
    """
    deadline = time.monotonic() + seconds
    size = FIRST_SAMPLE
    while True:
        started = time.monotonic()
        taken = _run(admin, topology, node, size=size, n=n, config=config, deadline=deadline)
        spent = time.monotonic() - started
        enough = node is None or taken.nodes[node].count >= n or taken.error is not None
        if enough or taken.whole or size >= LARGEST_SAMPLE or time.monotonic() + 3 * spent > deadline:
            return taken
        size *= 4


def sampled_values(client: ClusterClient, thing: object, node: str, n: int, seconds: float, config: StreamsConfig) -> Records:
    """Return the last `n` values that a node forwards when its topology runs over a sample of its topics.

    Args:
        thing: a builder, stream, table, topology or application.
        seconds: begin no larger sample after that.

    Raises:
        UnknownTopicError, TopologyError: a source topic, or the node, does not exist.
    """
    topology, config = built_with_serdes(client, thing, config)
    topology.node(node)
    taken = sample(client.admin, topology, node=node, n=n, seconds=seconds, config=config)
    values = taken.nodes[node]
    if taken.error is not None and not values.count:
        raise taken.error
    return Records(values.last, note=f"{node}: {counted(values.count, 'value')} from {sample_note(taken, topology)}", title=node)


def sample_note(taken: Sample, topology: Topology) -> str:
    """Return the description of the sample, for the line below it."""
    note = f"a sample of {counted(taken.fed, 'record')}{', all there are' if taken.whole else ''}"
    topics = topology.source_topics()
    if taken.fed == 0 and topics:
        note += f"; there are no records on {', '.join(topics)}: session.produce({topics[0]!r}, [...])"
    note = "\n".join([note, *taken.ended])
    return note if taken.error is None else f"{note}\nthe sample ended with {with_source(taken.error).message}"


def _run(
    admin: Admin, topology: Topology, node: str | None, *, size: int, n: int, config: Mapping[str, object] | None, deadline: float
) -> Sample:
    inputs, parts = _inputs(admin, topology, size, config)
    taken = Sample(JoinKeys(topology), {name: NodeSample(deque(maxlen=n)) for name in topology.nodes}, whole=not parts, parts=parts)
    settings = {"application.id": "sample", **{name: value for name, value in (config or {}).items() if name != "application.id"}}
    driver = TopologyTestDriver(topology, settings, start_ms=inputs[0][1] if inputs else None, tap=_taps(topology, taken))
    try:
        for _, timestamp, topic, key, value, headers in inputs:
            taken.fed += 1  # includes the record at which a function fails
            driver.pipe_bytes(topic, key, value, timestamp, headers)
            if taken.fed % 256 == 0 and time.monotonic() > deadline:
                taken.whole = False
                break
        taken.counts = driver.node_counts
        enough = node is not None and taken.nodes[node].count >= n
        taken.ended = where_values_end(topology, taken, node, driver.state_store, joins_only=enough)
    except KStreamsError as error:
        taken.error, taken.whole = error, False
    finally:
        try:
            driver.close()
        except Exception as error:  # raised by the user's own close(); the sample is complete
            taken.error = taken.error or StreamsProcessingError(f"close() raised {type(error).__name__}: {error}")
    return taken


def _inputs(
    admin: Admin, topology: Topology, size: int, config: Mapping[str, object] | None
) -> tuple[list[_Input], dict[str, tuple[int, int]]]:
    """Return the records, and for topics read in part, how many of their records were read and how many offsets there are."""
    topics = admin.topics()
    globals_ = {topic for part in topology.subtopologies() if part.global_ for topic in part.source_topics}
    tables = globals_ | {topic for topic in topology.source_topics() if _is_table(topology, topic)}
    ranges: list[OffsetRange] = []
    parts: dict[str, tuple[int, int]] = {}
    for topic in source_topics(topology, topics):
        there = ranges_of(admin, topic)
        taken = _first(there, TABLE_SAMPLE) if topic in tables else bounded(there, size)
        have, all_ = (sum(r.end - r.start for r in some) for some in (taken, there))
        if have < all_:
            parts[topic] = have, all_
        ranges += taken
    settings = StreamsConfig(config or {})
    queues: dict[TopicPartition, list[tuple[int, _Input]]] = {}
    latest: dict[TopicPartition, int] = {}
    read = dict.fromkeys(parts, 0)
    for partition, batch in read_ranges(admin.settings, ranges):
        if partition.topic in read:
            read[partition.topic] += len(batch)
        headers = batch.headers or [None] * len(batch)
        rank = 0 if partition.topic in globals_ else 1 if partition.topic in tables else 2
        times = _event_times(topology, partition, batch, settings, latest.get(partition, -1))
        latest[partition] = max([latest.get(partition, -1), *times])
        queues.setdefault(partition, []).extend(
            (time, (rank, timestamp, partition.topic, key, value, list(header or ())))
            for time, timestamp, key, value, header in zip(times, batch.timestamps, batch.keys, batch.values, headers, strict=True)
        )
    # A task takes the queue whose *head* is earliest; merge does the same and keeps each partition in its order.
    parts = {topic: (read[topic], offsets) for topic, (_, offsets) in parts.items()}
    merged = heapq.merge(*queues.values(), key=lambda item: (item[1][0] > 0, item[0], item[1][0]))
    return [record for _, record in merged], parts


def _event_times(topology: Topology, at: TopicPartition, batch: RecordBatch, config: StreamsConfig, latest: int) -> Sequence[int]:
    """Return the times by which a task chooses the next record: those of the source's extractor; the broker's where there is none, or
    where it fails, which the run of the sample will report.
    """
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    node = next(one for one in sources if at.topic in one.topics or (one.pattern is not None and one.pattern.fullmatch(at.topic)))
    extract = node.timestamp_extractor or config["default.timestamp.extractor"]
    if extract is None:
        return batch.timestamps
    default = config["default.key.serde"], config["default.value.serde"]
    key_serde, value_serde = serdes_of_topic(config, at.topic, node.key_serde or default[0], node.value_serde or default[1])
    prepare = framing(key_serde, value_serde)
    batch = prepare(batch) if prepare is not None and batch.headers is not None else batch
    headers = batch.headers or [None] * len(batch)
    times: list[int] = []
    for key, value, at_ms, offset, header in zip(batch.keys, batch.values, batch.timestamps, batch.offsets, headers, strict=True):
        times.append(at_ms)
        with suppress(Exception):  # a record that cannot be read keeps the broker's time; the run itself tells its error
            read = key_serde.deserialize(key), value_serde.deserialize(value)
            times[-1] = int(extract(ConsumedRecord(*at, offset, at_ms, *read, list(header or ())), latest))
        latest = max(latest, times[-1])
    return times


def source_topics(topology: Topology, known: Mapping[str, int]) -> list[str]:
    """Return the external topics that the topology reads, including those that match its patterns.

    Raises:
        UnknownTopicError: one does not exist.
    """
    found: dict[str, None] = {}
    for node in topology.nodes.values():
        if not isinstance(node, SourceNode):
            continue
        for topic in node.topics:
            if topic in topology.internal_topics:
                continue
            if topic not in known:
                raise UnknownTopicError(
                    f"the topology reads topic {topic!r}, which is not on the broker",
                    hint=f"create it with records: session.produce({topic!r}, [...])",
                    topic=topic,
                )
            found[topic] = None
        if node.pattern is not None:
            found |= dict.fromkeys(topic for topic in known if node.pattern.fullmatch(topic))
    return list(found)


def _first(ranges: tuple[OffsetRange, ...], records: int) -> tuple[OffsetRange, ...]:
    share = records // max(len(ranges), 1)
    return tuple(OffsetRange(item.partition, item.start, min(item.end, item.start + share)) for item in ranges)


def _is_table(topology: Topology, topic: str) -> bool:
    for node in topology.nodes.values():
        if isinstance(node, SourceNode) and topic in node.topics:
            children = [topology.nodes[name] for name in topology.children(node.name)]
            if any(isinstance(child, ProcessorNode) and isinstance(child.operator, TableSource) for child in children):
                return True
    return False


def _taps(topology: Topology, taken: Sample) -> Callable[[str], Callable[..., None]]:
    def tap(name: str) -> Callable[..., None]:
        into = taken.nodes[name]
        keep, changes = into.last.append, sends_changes(topology.nodes[name])

        def observe(key: object, value: Any, timestamp: int, headers: Headers) -> None:
            into.count += 1
            taken.keys.observe(name, key, value)
            into.earliest, into.latest = min(into.earliest, timestamp), max(into.latest, timestamp)
            keep(ReadRecord(key, own_copy(value[0] if changes else value, value_text), timestamp, headers=list(headers)))

        return observe

    return tap
