"""R13 on a real broker and real Spark under exactly_once_v2: dead letters commit with everything else, `fail` stops at the record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.types import Headers, TopicPartition
from tests.faults.test_r13_poison import CONTINUE, GOOD_VALUE, KINDS, ROWS
from tests.spark.hosting import Host, decoded, failed, kill_worker, processed

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(240)]
Place = tuple[int, int]
Found = tuple[bytes | None, bytes | None, int, Headers]


def rows() -> list[tuple[bytes | None, bytes | None]]:
    """The 10,000 records of R13, 100 of them poison."""
    return [
        (row[0], row[1]) for number in range(max(map(len, ROWS))) for part in ROWS if number < len(part) for row in [part[number]]
    ]


def is_poison(key: bytes | None, value: bytes | None) -> bool:
    return key is None or len(key) != 8 or value != GOOD_VALUE


def read_all(host: Host, topic: str) -> dict[Place, Found]:
    """Every committed record by partition and offset."""
    found: dict[Place, Found] = {}
    for at, batch in read_ranges(host.settings, ranges_of(host.admin, topic, settled=True)):
        headers: list[Any] = batch.headers or [None] * len(batch)
        for key, value, timestamp, offset, own in zip(
            batch.keys, batch.values, batch.timestamps, batch.offsets, headers, strict=True
        ):
            found[at.partition, offset] = (key, value, timestamp, own or [])
    return found


def topology(source: str, sink: str) -> Any:
    builder = StreamsBuilder()
    payments = builder.stream(source, key_serde=serdes.long, value_serde=serdes.json)
    payments.group_by_key().count(store="counts").to_stream().to(sink)
    return builder.build()


@pytest.mark.slow
def test_all_hundred_letters_are_there_once_with_their_coordinates_though_a_worker_is_killed(host: Host) -> None:
    source, sink, dead = host.topic("in"), host.topic("out"), host.topic("dead", 1)
    host.produce(source, rows()[:5_000])
    settings = {name.replace(".", "_"): value for name, value in CONTINUE.items()}
    deployment = host.deploy(topology(source, sink), errors_dead_letter_queue_topic_name=dead, **settings)
    processed(deployment, 2_000)
    kill_worker(deployment)
    host.produce(source, rows()[5_000:])
    processed(deployment, 10_000)
    deployment.stop()

    records = read_all(host, source)
    poison = {place: record for place, record in records.items() if is_poison(record[0], record[1])}
    assert len(poison) == 100
    letters = read_all(host, dead)
    assert len(letters) == 100
    named: set[Place] = set()
    for key, value, timestamp, headers in letters.values():
        told = {name: (text or b"").decode() for name, text in headers}
        place = int(told["__streams.errors.partition"]), int(told["__streams.errors.offset"])
        assert (key, value, timestamp) == poison[place][:3]
        assert told["__streams.errors.topic"] == source
        assert int(told["__streams.errors.timestamp"]) == timestamp
        assert told["__streams.errors.exception"]
        named.add(place)
    assert named == set(poison)
    expected = Counter(key for place, (key, _, _, _) in records.items() if place not in poison)
    assert decoded(host.table(sink)) == expected


def test_fail_stops_the_application_at_a_poison_record_and_commits_nothing_behind_it(host: Host) -> None:
    source, sink = host.topic("in", 1), host.topic("out", 1)
    good, bad = (bytes(8), GOOD_VALUE), (bytes(8), KINDS["truncated"][1])
    host.produce(source, [*[good] * 700, bad, *[good] * 50])
    deployment = host.deploy(topology(source, sink), num_stream_threads=1)
    failed(deployment)
    error = deployment.error
    assert error is not None
    assert (error.fields["topic"], error.fields["partition"], error.fields["offset"]) == (source, 0, 700)
    assert deployment.reports.committed.get(str(TopicPartition(source, 0)), 0) <= 700
    counted = decoded(host.table(sink, settled=False))
    assert all(count <= 700 for count in counted.values())
