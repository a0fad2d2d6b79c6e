"""Records of a small shop for tests of comparisons: orders, payments and customers, two partitions each, some late, some deleted."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

import orjson

from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from kstreams_repl.repl.session.views.compare.topologies import compare_topologies
from kstreams_repl.system.types import RecordBatch, TopicPartition

CONFIG = {"default.key.serde": "string", "default.value.serde": "json"}
PARTITIONS = 2
_BEGIN = 1_700_000_000_000


class Records:
    """Records by partition."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, RecordBatch] = {}

    def add(self, topic: str, key: str | None, value: object, timestamp: int, headers: object = None) -> None:
        data = None if key is None else key.encode()
        partition = TopicPartition(topic, 0 if data is None else partition_for_key(data, PARTITIONS))
        batch = self.batches.setdefault(partition, RecordBatch([], [], [], [], [], topic))
        batch.keys.append(data)
        batch.values.append(None if value is None else orjson.dumps(value))
        batch.timestamps.append(timestamp)
        batch.offsets.append(len(batch.offsets))
        batch.headers.append(headers)


@cache
def shop(orders: int = 400, seed: int = 7) -> Mapping[TopicPartition, RecordBatch]:
    """Return the records: an order each second, of 20 customers, with an amount from 0 to 19."""
    chance, records = random.Random(seed), Records()
    for number in range(orders):
        now = _BEGIN + number * 1000
        customer = f"c{chance.randrange(20)}"
        late = chance.choice((0, 0, 0, 0, 4_000, 9_000))
        status = chance.choice(("new", "new", "paid", None))
        amount = chance.randrange(20)
        order = {"id": f"o{number}", "customer": customer, "amount": amount, "net": amount * 3, "status": status, "at": now - 500}
        order["tags"] = [1, 2]
        records.add("orders", f"o{number}", order, now - late, [("trace", b"t%d" % number)])
        if chance.random() < 0.6:
            paid = max(0, number - chance.randrange(8))
            records.add("payments", f"o{paid}", {"order": f"o{paid}", "sum": chance.randrange(20)}, now + chance.randrange(900))
        if chance.random() < 0.2:
            city = chance.choice(("Graz", "Linz", "Wien", None))
            row = None if chance.random() < 0.2 else {"name": customer.upper(), "city": city, "orders": chance.randrange(9)}
            records.add("customers", customer, row, now + 1)
    return records.batches


def compared(
    before: Topology, after: Topology, records: Mapping[TopicPartition, RecordBatch] | None = None, **options: object
) -> Comparison:
    """Return what differs between two topologies on the shop's records."""
    topics = {topic for topology in (before, after) for topic in topology.source_topics()}
    own = {partition: batch for partition, batch in (records or shop()).items() if partition.topic in topics}
    return compare_topologies(before, after, own, config=CONFIG, partitions=dict.fromkeys((*topics, "out"), PARTITIONS), **options)  # type: ignore[arg-type]
