"""Records of a small shop for tests of comparisons: orders, payments and customers, two partitions each, some late, some deleted."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import orjson

from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.repl.session.views.compare.comparison import Comparison
from kstreams_repl.repl.session.views.compare.topologies import compare_topologies
from kstreams_repl.system.types import Headers
from kstreams_repl.test_driver.recording import RecordedRecord, Recording

CONFIG = {"default.key.serde": "string", "default.value.serde": "json"}
PARTITIONS = 2
_BEGIN = 1_700_000_000_000


class Records:
    """Records in the order in which they are added."""

    def __init__(self) -> None:
        self.all: list[RecordedRecord] = []
        self._offsets: Counter[tuple[str, int]] = Counter()

    def add(self, topic: str, key: str, value: object, timestamp: int, headers: Headers | None = None) -> None:
        data = key.encode()
        place = topic, partition_for_key(data, PARTITIONS)
        body = None if value is None else orjson.dumps(value)
        self.all.append(RecordedRecord(*place, self._offsets[place], timestamp, data, body, headers or []))
        self._offsets[place] += 1


@cache
def shop(orders: int = 400, seed: int = 7) -> Recording:
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
    return Recording(records.all, dict.fromkeys(("orders", "payments", "customers", "out", "amounts"), PARTITIONS))


def compared(before: Topology, after: Topology, *, calls: bool = False, samples: int = 20) -> Comparison:
    """Return what differs between two topologies on the shop's records."""
    return compare_topologies(before, after, shop(), CONFIG, calls=calls, samples=samples)
