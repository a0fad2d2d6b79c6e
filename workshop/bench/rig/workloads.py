"""The measured workloads, which are the same everywhere: engine alone, deployed, and on the peers.

Records have the format of the peers' benchmarks: key ``user-N``, value ``{"user":N,"amount":A,"item":"abcdefghijI","ts":T}``; the
timestamp advances 1 ms every thousand records, as in a topic filled at a million records per second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from kstreams_repl import StreamsBuilder, TimeWindows, serdes

INPUT, TABLE, OUTPUT = "b1", "b1-users", "bench-out"
Row = tuple[bytes, bytes, int]


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one run."""

    input: str = INPUT
    table: str = TABLE
    output: str = OUTPUT


TOPICS = Topics()


def input_rows(records: int, keys: int, *, seed: int = 1, first_ms: int = 1_700_000_000_000) -> list[Row]:
    """Return (key, value, timestamp) of the stream's records."""
    return list(stream_rows(records, keys, seed=seed, first_ms=first_ms))


def stream_rows(
    records: int, keys: int, *, seed: int = 1, first_ms: int = 1_700_000_000_000, per_ms: int = 1000
) -> Iterator[Row]:
    """Yield the rows of `input_rows` one by one, for more records than fit into memory."""
    pick = random.Random(seed).randrange
    for i in range(records):
        user = pick(keys)
        value = b'{"user":%d,"amount":%d,"item":"abcdefghij%d","ts":%d}' % (user, i % 997, i % 1000, i)
        yield b"user-%d" % user, value, first_ms + i // per_ms


def table_rows(keys: int, *, at_ms: int = 1_600_000_000_000) -> list[Row]:
    """Return one row per key, older than the stream."""
    return [(b"user-%d" % user, b'{"country":"c%d"}' % (user % 50), at_ms) for user in range(keys)]


def stateless(builder: StreamsBuilder, topics: Topics = TOPICS) -> None:
    """Parse JSON, keep amounts above 500, write item:amount."""
    (
        builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string)
        .map_values(orjson.loads)
        .filter(lambda key, value: value["amount"] > 500)
        .map_values(lambda value: f"{value['item']}:{value['amount']}")
        .to(topics.output, key_serde=serdes.string, value_serde=serdes.string)
    )


def count(builder: StreamsBuilder, topics: Topics = TOPICS) -> None:
    """Count per key."""
    stream = builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string)
    counts = stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).count(store="counts")
    counts.to_stream().to(topics.output, key_serde=serdes.string, value_serde=serdes.long)


def total(builder: StreamsBuilder, topics: Topics = TOPICS) -> None:
    """Sum the amounts per key."""
    amounts = builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string).map_values(
        lambda value: orjson.loads(value)["amount"]
    )
    sums = amounts.group_by_key(key_serde=serdes.string, value_serde=serdes.long).reduce(lambda a, b: a + b, store="sums")
    sums.to_stream().to(topics.output, key_serde=serdes.string, value_serde=serdes.long)


def window(builder: StreamsBuilder, topics: Topics = TOPICS) -> None:
    """Count per key and tumbling second."""
    stream = builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string)
    windows = stream.group_by_key(key_serde=serdes.string, value_serde=serdes.string).windowed_by(
        TimeWindows.of_size(timedelta(seconds=1))
    )
    counts = windows.count(store="wcounts")
    counts.to_stream().to(topics.output, key_serde=serdes.time_windowed(serdes.string, 1000), value_serde=serdes.long)


def join(builder: StreamsBuilder, topics: Topics = TOPICS) -> None:
    """Join each record with its user's row."""
    table = builder.table(topics.table, key_serde=serdes.string, value_serde=serdes.string, store="users")
    stream = builder.stream(topics.input, key_serde=serdes.string, value_serde=serdes.string)
    stream.join(table, lambda value, row: f"{row}|{orjson.loads(value)['amount']}").to(
        topics.output, key_serde=serdes.string, value_serde=serdes.string
    )


WORKLOADS: dict[str, Callable[[Any, Topics], None]] = {
    "stateless": stateless,
    "count": count,
    "sum": total,
    "window": window,
    "join": join,
}


def topology(workload: str, topics: Topics = TOPICS) -> Any:
    """Return the built topology of a workload."""
    builder = StreamsBuilder()
    WORKLOADS[workload](builder, topics)
    return builder.build()
