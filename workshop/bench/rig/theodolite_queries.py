"""Theodolite's use cases UC1 to UC4 and ShuffleBench's routing to stateful consumers, as a user of the DSL and the Processor API writes
them, and their records.

The twins for the JVM are in `peers/TheodoliteTwins.java`. As with Nexmark's, no result depends on the order in which records of
different topics or partitions are read; docs/reference/theodolite.md says where that differs. Figures are whole
numbers: watts, and thousandths of what is computed from them.
"""

from __future__ import annotations

import math
import random
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import count
from typing import Any

from kstreams_repl import Processor, Serde, Stores, Suppressed, TimeWindows, serdes
from workshop.bench.rig.outputs import Compared
from workshop.bench.rig.query_cases import BenchmarkQuery, QueryTopics
from workshop.bench.rig.workloads import Row

Json = Any
Statistics = tuple[int, float, float, float, float]
"""Number, mean, sum of the squares of distances from the mean, smallest and largest."""
SECOND_MS, DAY_MS = 1000, 86_400_000
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
GROUP_SIZE = 4
RECORD_BYTES = 1024
_EMIT_MS = 5 * SECOND_MS
_LAST_ROUND_MS = MINUTE_MS
_SELECTIVITY, _OUTPUT_RATE = 0.2, 10
_RING = (1 << 63) - 1
_WORD = (1 << 64) - 1
_STATISTICS, _STATE = ">qdddd", ">qQqq"
"""Formats of `struct`; a `Struct` cannot be sent to the workers."""


# ---- Theodolite


def uc1(topics: QueryTopics) -> None:
    measured = topics.stream("input")
    topics.write(measured.map_values(lambda row: {name: row[name] for name in ("identifier", "timestamp", "valueInW")}))


def _pack(statistics: Statistics) -> bytes:
    return struct.pack(_STATISTICS, *statistics)


def _unpack(data: bytes) -> Statistics:
    return struct.unpack(_STATISTICS, data)


STATISTICS = Serde(_pack, _unpack, name="statistics")


def no_statistics() -> Statistics:
    return 0, 0.0, 0.0, math.inf, -math.inf


def with_measurement(key: object, row: Json, statistics: Statistics) -> Statistics:
    """Return the statistics with one more value (Welford's algorithm)."""
    number, mean, squares, smallest, largest = statistics
    value = float(row["valueInW"])
    number += 1
    delta = value - mean
    mean += delta / number
    return number, mean, squares + delta * (value - mean), min(smallest, value), max(largest, value)


def as_text(statistics: Statistics) -> str:
    number, mean, squares, smallest, largest = statistics
    return (
        f"count={number}, mean={math.floor(mean * 1000)}, populationVariance={math.floor(squares / number * 1000)}, "
        f"min={int(smallest)}, max={int(largest)}"
    )


def uc2(topics: QueryTopics) -> None:
    minutes = topics.stream("input").group_by_key().windowed_by(TimeWindows.of_size(MINUTE_MS))
    statistics = minutes.aggregate(no_statistics, with_measurement, store="statistics", value_serde=STATISTICS).to_stream()
    texts = statistics.map(lambda window, found: (f"{window.key}@{window.start}", as_text(found)))
    topics.write(texts, value_serde=serdes.string)


def _sensor_and_hour(key: str, row: Json) -> str:
    return f"{row['identifier']}@{row['timestamp'] // HOUR_MS % 24}"


def uc3(topics: QueryTopics) -> None:
    by_hour = topics.stream("input").select_key(_sensor_and_hour).group_by_key(key_serde=serdes.string, value_serde=serdes.json)
    months = by_hour.windowed_by(TimeWindows.of_size(30 * DAY_MS, grace=DAY_MS).advance_by(DAY_MS))
    statistics = months.aggregate(no_statistics, with_measurement, store="statistics", value_serde=STATISTICS).to_stream()
    texts = statistics.map(lambda window, found: (f"{window.key}@{window.start}", as_text(found)))
    topics.write(texts, value_serde=serdes.string)


def _as_measurement(total: Json) -> Json:
    return {"identifier": total["identifier"], "timestamp": total["timestamp"], "valueInW": total["sumInW"]}


def _newer(one: Json, other: Json) -> Json:
    return other if other["timestamp"] >= one["timestamp"] else one


def _total(group: str, at_ms: int, number: int, watts: int) -> Json:
    average = watts // number if number else 0
    return {"identifier": group, "timestamp": at_ms, "count": number, "sumInW": watts, "averageInW": average}


def _no_total() -> Json:
    return _total("", 0, 0, 0)


def _plus(key: str, row: Json, total: Json) -> Json:
    at_ms = max(row["timestamp"], total["timestamp"])
    return _total(key.partition("@")[0], at_ms, total["count"] + 1, total["sumInW"] + row["valueInW"])


def _minus(key: str, row: Json, total: Json) -> Json:
    return _total(total["identifier"], total["timestamp"], total["count"] - 1, total["sumInW"] - row["valueInW"])


def uc4(topics: QueryTopics) -> None:
    feedback = f"{topics.output}-feedback"
    totals_of_groups = topics.builder.stream(feedback, key_serde=serdes.string, value_serde=serdes.json).map_values(_as_measurement)
    groups = topics.builder.table(f"{topics.prefix}-groups", key_serde=serdes.string, value_serde=serdes.string, store="groups")
    members = (
        topics.stream("input")
        .merge(totals_of_groups)
        .join(groups, lambda row, group: (row, group))
        .map(lambda sensor, found: (f"{sensor}|{found[1]}", found[0]))
    )
    windows = TimeWindows.of_size(_EMIT_MS, grace=DAY_MS)
    last = members.group_by_key(key_serde=serdes.string, value_serde=serdes.json).windowed_by(windows).reduce(_newer, store="last")
    totals = last.group_by(
        lambda window, row: (f"{window.key.partition('|')[2]}@{window.start}", row), key_serde=serdes.string, value_serde=serdes.json
    ).aggregate(_no_total, _plus, _minus, store="totals", value_serde=serdes.json)
    by_group = totals.to_stream().select_key(lambda key, total: total["identifier"])
    by_group.to(feedback, key_serde=serdes.string, value_serde=serdes.json)
    topics.write(totals.suppress(Suppressed.until_time_limit(_EMIT_MS)).to_stream().filter(lambda key, total: total is not None))


# ---- ShuffleBench


@cache
def _rule_offsets(consumers: int) -> array[int]:
    """Return where the range of each consumer's rule begins, in ascending order."""
    offsets, at = [], 0x2E3FAC4F58FC98B4
    for _ in range(consumers):
        at = (at * 6364136223846793005 + 1442695040888963407) & _RING
        offsets.append(at)
    return array("q", sorted(offsets))


class EventRouter:
    """Returns the record once for each consumer whose rule matches it: random ranges of 63 bits, each as wide as its share of the
    selectivity. Made again where it is unpickled, so that the rules exist before the first record."""

    def __init__(self, consumers: int) -> None:
        self._consumers, self._offsets, self._width = consumers, _rule_offsets(consumers), int(_SELECTIVITY / consumers * 2**63)

    def __reduce__(self) -> Any:
        return EventRouter, (self._consumers,)

    def __call__(self, key: object, data: bytes) -> list[tuple[str, bytes]]:
        offsets, at = self._offsets, int.from_bytes(data[:8], "big") >> 1
        index, found = bisect_right(offsets, at) - 1, []
        while (at - offsets[index]) & _RING < self._width:  # index -1 is the last rule, whose range may reach over zero
            found.append((f"consumer_{index % self._consumers}", data))
            index -= 1
        return found


class StatefulConsumer(Processor):
    """Counts and sums up its records; writes every tenth time, then begins again. The first count of a consumer is its own, so that
    they do not all write at the same time."""

    @staticmethod
    def stores() -> list[Any]:
        return [Stores.key_value_store_builder(Stores.persistent_key_value_store("consumers"), serdes.string, serdes.bytes)]

    def init(self, context: Any) -> None:
        self.context, self._states = context, context.get_state_store("consumers")

    def process(self, record: Any) -> None:
        state = self._states.get(record.key)
        number, total, began, _ = (int(record.key[9:]) % _OUTPUT_RATE, 0, 0, 0) if state is None else struct.unpack(_STATE, state)
        number += 1
        total = (total + int.from_bytes(record.value[:8], "big")) & _WORD
        state = struct.pack(_STATE, number, total, record.timestamp if number == 1 else began, record.timestamp)
        if number == _OUTPUT_RATE:
            self.context.forward(record.with_value(state))
            state = bytes(struct.calcsize(_STATE))
        self._states.put(record.key, state)


def shuffle(topics: QueryTopics, consumers: int) -> None:
    records = topics.stream("input", key_serde=serdes.bytes, value_serde=serdes.bytes)
    matches = records.flat_map(EventRouter(consumers)).repartition(name="matches", key_serde=serdes.string, value_serde=serdes.bytes)
    topics.write(matches.process(StatefulConsumer), value_serde=serdes.bytes)


def shuffle_100_000(topics: QueryTopics) -> None:
    shuffle(topics, 100_000)


def shuffle_1_000_000(topics: QueryTopics) -> None:
    shuffle(topics, 1_000_000)


_READS = ("input",)
QUERIES: Mapping[str, BenchmarkQuery] = {
    "uc1": BenchmarkQuery(uc1, "database storage: convert and write", _READS, Compared.RECORDS, scale=10),
    "uc2": BenchmarkQuery(uc2, "downsampling: statistics of a sensor's minute", _READS, scale=10),
    "uc3": BenchmarkQuery(uc3, "time attributes: re-key to sensor and hour, statistics in 30 windows of 30 days", _READS),
    "uc4": BenchmarkQuery(uc4, "hierarchical aggregation with a feedback topic", _READS, scale=2, tables=("groups",), feeds_back=True),
    "shuffle-100000": BenchmarkQuery(shuffle_100_000, "routing to 100,000 stateful consumers", _READS, Compared.KEYS, scale=5),
    "shuffle-1000000": BenchmarkQuery(shuffle_1_000_000, "routing to 1,000,000 stateful consumers", _READS, Compared.KEYS, scale=5),
}


# ---- records


def rows_of(query: str, sensors: int, *, first_ms: int, records: int | None = None, seed: int = 1) -> Iterator[Row]:
    """Yield the records of a query's input: each sensor's value once a second, or 1 KB of random bytes.

    Args:
        sensors: how many take turns, so it is the load in records per second of event time, of random records too.
        first_ms: time of the first record.
        records: how many; the last round of the sensors then comes a minute later, so that nothing before it is held back by UC4.
            None: without end.
    """
    source = random.Random(seed)
    last_round = math.inf if records is None else records - sensors
    for number in count() if records is None else range(records):
        at_ms = first_ms + number * SECOND_MS // sensors + (_LAST_ROUND_MS if number >= last_round else 0)
        if query.startswith("shuffle"):
            yield number.to_bytes(8, "big"), source.randbytes(RECORD_BYTES), at_ms
        else:
            sensor, watts = number % sensors, int(source.random() * 1000)
            yield b"s_%d" % sensor, b'{"identifier":"s_%d","timestamp":%d,"valueInW":%d}' % (sensor, at_ms, watts), at_ms


def group_rows(sensors: int, *, at_ms: int) -> list[Row]:
    """Return the group of each sensor and the group of each group: four to a group, up to a single one."""
    rows, level, members = [], 0, sensors
    while members > 1 or level == 0:
        kind = f"g_{level}" if level else "s"
        rows += [(f"{kind}_{member}".encode(), f"g_{level + 1}_{member // GROUP_SIZE}".encode(), at_ms) for member in range(members)]
        level, members = level + 1, math.ceil(members / GROUP_SIZE)
    return rows
