"""The cost of the Kafka clients alone in a Python count whose keys do not repeat within a commit: for each record read, two are
sent in transactions, the changelog's and the result's. Nothing is decoded, counted or stored, and Spark does not run: a lower
bound for every such program.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstreams_repl.host.kafka.clients import ClientSettings, make_consumer
from kstreams_repl.host.kafka.group_offsets import assign
from kstreams_repl.host.kafka.record_batch import columns
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import TopicPartition
from workshop.bench.rig.deployed import Settings
from workshop.bench.rig.testbed import COMPRESSION, LINGER_MS, PARTITIONS, Testbed, give_up

_BATCH = 5_000
_WAIT_SECONDS = 0.05
_QUEUED = 1_000_000


@dataclass(frozen=True, slots=True)
class Share:
    """The input and output of one process."""

    settings: ClientSettings
    name: str
    ends: Mapping[TopicPartition, int]
    outputs: Sequence[str]
    commit_ms: int


def seconds_alone(testbed: Testbed, topic: str, outputs: Sequence[str], settings: Settings, name: str) -> float:
    """Return the seconds from the first record of a topic, read by one process per instance, to the commit after the last.

    Raises:
        KStreamsError: they did not finish in time.
    """
    ends = testbed.admin.end_offsets([TopicPartition(topic, number) for number in range(PARTITIONS)])
    context = multiprocessing.get_context("spawn")
    with context.Pool(settings.instances) as pool:
        shares = [
            Share(
                testbed.settings,
                f"{name}-{slot}",
                {at: end for at, end in ends.items() if at.partition % settings.instances == slot},
                outputs,
                settings.commit_ms,
            )
            for slot in range(settings.instances)
        ]
        try:
            times = pool.map_async(run_share, shares, chunksize=1).get(settings.max_seconds)
        except multiprocessing.TimeoutError as error:
            raise give_up(f"sending all records of {topic} alone", settings.max_seconds) from error
    return max(ended for _, ended in times) - min(began for began, _ in times)


def run_share(share: Share) -> tuple[float, float]:
    """Read, send and commit; returns when the first records arrived and when all was committed (seconds since 1970)."""
    consumer = make_consumer(share.settings, group_id=share.name, isolation="read_committed")
    producer = TransactionalProducer(
        share.settings,
        share.name,
        timeout_ms=10_000,
        linger_ms=LINGER_MS,
        compression_type=COMPRESSION,
        queue_buffering_max_messages=_QUEUED,
    )
    try:
        producer.initialise()
        return _copied(share, consumer, producer)
    finally:
        producer.close()
        consumer.close()


def _copied(share: Share, consumer: Any, producer: TransactionalProducer) -> tuple[float, float]:
    positions = dict.fromkeys(share.ends, 0)
    assign(consumer, positions)
    group = consumer.consumer_group_metadata()
    began: float | None = None
    committed = time.monotonic()
    send, serve = producer.client.produce, producer.client.poll
    while any(positions[at] < end for at, end in share.ends.items()):
        messages = consumer.consume(_BATCH, _WAIT_SECONDS)
        if messages and began is None:
            began = time.time()
        producer.begin()
        for at, batch in columns(messages, _broken, headers=False):
            for output in share.outputs:
                for key, value, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
                    send(output, value, key, at.partition, None, None, timestamp)
            positions[at] = batch.offsets[-1] + 1
        serve(0)
        if time.monotonic() - committed >= share.commit_ms / 1000:
            _commit(producer, positions, group)
            committed = time.monotonic()
    _commit(producer, positions, group)
    return began or time.time(), time.time()


def _broken(message: object, error: object) -> None:
    raise KStreamsError(f"reading failed: {error}", hint="the broker's log says more")


def _commit(producer: TransactionalProducer, positions: Mapping[TopicPartition, int], group: object) -> None:
    producer.begin()
    producer.flush()
    producer.send_offsets({at: (offset, "") for at, offset in positions.items()}, group)
    producer.commit()
