"""R13: 10,000 records, 1 % of them poison of 12 kinds, under fail, continue and dead letter.

Through the real task on LMDB stores, in batches with commits, and through the test driver. The oracle is a brute-force count over the good
records.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.dsl import StreamsBuilder
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import SerializationError
from kstreams_repl.test_driver.driver import TopologyTestDriver
from tests.faults.host import Host, Row, Sent

RECORDS, PARTITIONS, USERS = 10_000, 4, 37
GOOD_VALUE = b'{"amount": 3}'
CONTINUE = {"deserialization.exception.handler": "continue"}
DEAD_LETTER = CONTINUE | {"errors.dead.letter.queue.topic.name": "dead"}
KINDS: Mapping[str, tuple[bytes | None, bytes]] = {
    "truncated": (None, GOOD_VALUE[:-3]),
    "empty value": (None, b""),
    "plain text": (None, b"amount=3"),
    "avro with a schema id": (None, b"\x00\x00\x00\x00\x07\x06\x02"),
    "compressed": (None, gzip.compress(GOOD_VALUE, mtime=0)),
    "utf-16": (None, GOOD_VALUE.decode().encode("utf-16")),
    "trailing garbage": (None, GOOD_VALUE + b" ;"),
    "two documents": (None, GOOD_VALUE + GOOD_VALUE),
    "unterminated text": (None, b'{"amount": "3}'),
    "nested without end": (None, b"[" * 20_000),
    "short key": (b"\x00\x01\x02\x03", GOOD_VALUE),
    "long key": (b"\x00" * 9, GOOD_VALUE),
}


def topology() -> Topology:
    """Amounts of 3 to `out`, a count per user in a store and to `counts`; keys are 64-bit numbers, values JSON."""
    builder = StreamsBuilder()
    payments = builder.stream("in", key_serde=serdes.long, value_serde=serdes.json)
    payments.filter(lambda user, payment: payment["amount"] == 3).to("out")
    payments.group_by_key().count(store="counts", caching=False).to_stream().to("counts")
    return builder.build()


def input_rows() -> tuple[list[list[Row]], dict[tuple[int, int], str]]:
    """The rows of each partition, and the kind of poison at (partition, offset)."""
    rng = random.Random(13)
    kinds = list(KINDS)
    bad_at = {
        number: kinds[index % len(kinds)] for index, number in enumerate(sorted(rng.sample(range(RECORDS), RECORDS // 100)))
    }
    rows: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    poison: dict[tuple[int, int], str] = {}
    for number in range(RECORDS):
        partition = number % PARTITIONS
        user = rng.randrange(USERS)
        key, value = user.to_bytes(8, "big"), GOOD_VALUE
        if number in bad_at:
            poison[partition, len(rows[partition])] = bad_at[number]
            bad_key, value = KINDS[bad_at[number]]
            key = key if bad_key is None else bad_key
        rows[partition].append((key, value, 1_000 + number, [("number", str(number).encode())]))
    return rows, poison


ROWS, POISON = input_rows()
GOOD = [[row for offset, row in enumerate(rows) if (partition, offset) not in POISON] for partition, rows in enumerate(ROWS)]


def hosts(config: Mapping[str, Any], directory: Path) -> list[Host]:
    return [Host(topology(), config, directory, rows, partition=partition) for partition, rows in enumerate(ROWS)]


def assert_all_good_records_are_through_once(host: Host, partition: int) -> None:
    assert [(sent.key, sent.timestamp) for sent in host.sent_to("out")] == [(key, ts) for key, _, ts, _ in GOOD[partition]]
    seen: Counter[bytes] = Counter()
    expected = []
    for key, _, _, _ in GOOD[partition]:
        assert key is not None
        seen[key] += 1
        expected.append((key, seen[key]))
    assert [(sent.key, serdes.long.deserialize(sent.value)) for sent in host.sent_to("counts")] == expected


def test_there_are_a_hundred_poison_records_of_twelve_kinds() -> None:
    assert len(POISON) == 100
    assert Counter(POISON.values()).keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_poison_for_the_serdes(kind: str) -> None:
    key, value = KINDS[kind]
    with pytest.raises(Exception, match=r".*"):
        serdes.long.deserialize(key if key is not None else bytes(8))
        serdes.json.deserialize(value)


def test_fail_stops_at_exactly_each_poison_record_and_goes_on_behind_it(tmp_path: Path) -> None:
    stops: list[tuple[int, int]] = []
    for partition, host in enumerate(hosts({}, tmp_path)):
        while True:
            try:
                host.run()
                break
            except SerializationError as error:
                assert error.topic == "in"
                assert error.node == "KSTREAM-SOURCE-0000000000"
                assert host.committed_offset <= error.offset
                stops.append((error.partition, error.offset))
                host.skip(error.offset)
        assert host.dropped == {}
        assert_all_good_records_are_through_once(host, partition)
    assert stops == sorted(POISON)


def test_continue_counts_every_poison_record_and_loses_no_other(tmp_path: Path) -> None:
    for partition, host in enumerate(hosts(CONTINUE, tmp_path)):
        host.run()
        assert host.dropped == {"deserialization": sum(1 for at in POISON if at[0] == partition)}
        assert host.committed_offset == len(ROWS[partition])
        assert_all_good_records_are_through_once(host, partition)
        assert host.sent_to("dead") == []


def test_all_hundred_are_on_the_dead_letter_topic_as_they_were_with_their_coordinates(tmp_path: Path) -> None:
    found: list[tuple[int, int]] = []
    for partition, host in enumerate(hosts(DEAD_LETTER, tmp_path)):
        host.run()
        assert_all_good_records_are_through_once(host, partition)
        for letter in host.sent_to("dead"):
            found.append(check_letter(letter, ROWS))
    assert found == sorted(POISON)


def check_letter(letter: Sent, rows: list[list[Row]]) -> tuple[int, int]:
    """Bytes, timestamp and own headers are those of the record it names; returns where that is."""
    told = {name: (value or b"").decode() for name, value in letter.headers if name.startswith("__streams.errors.")}
    partition, offset = int(told["__streams.errors.partition"]), int(told["__streams.errors.offset"])
    key, value, timestamp, headers = rows[partition][offset]
    assert (letter.key, letter.value, letter.timestamp) == (key, value, timestamp)
    assert letter.headers[: len(headers)] == headers
    assert told["__streams.errors.topic"] == "in"
    assert int(told["__streams.errors.timestamp"]) == timestamp
    assert told["__streams.errors.exception"]
    assert told["__streams.errors.message"]
    assert "Traceback" in told["__streams.errors.stacktrace"]
    return partition, offset


def test_letters_commit_with_everything_else_so_a_failure_elsewhere_writes_none_twice(tmp_path: Path) -> None:
    """A user error after poison in the same batch: nothing of that batch was committed, and the rerun writes each letter once."""
    rows: list[Row] = [
        (bytes(8), GOOD_VALUE, 1, []),
        (bytes(8), b"poison", 2, []),
        (bytes(8), b'{"amount": 0}', 3, []),
        (bytes(8), GOOD_VALUE, 4, []),
    ]
    fixed = False

    def check(user: int, payment: dict[str, int]) -> bool:
        return fixed or 3 / payment["amount"] > 0

    builder = StreamsBuilder()
    builder.stream("in", key_serde=serdes.long, value_serde=serdes.json).filter(check).to("out")
    host = Host(builder.build(), DEAD_LETTER, tmp_path, rows)
    with pytest.raises(Exception, match="ZeroDivisionError"):
        host.run()
    assert (host.committed_offset, host.committed) == (0, [])
    fixed = True
    host.run()
    assert len(host.sent_to("dead")) == 1
    assert len(host.sent_to("out")) == 3


@pytest.mark.parametrize("handler", ["continue", "dead letter"])
def test_the_test_driver_agrees(handler: str) -> None:
    rows, good = ROWS[0], GOOD[0]
    with TopologyTestDriver(topology(), DEAD_LETTER if handler == "dead letter" else CONTINUE) as driver:
        for key, value, timestamp, headers in rows:
            driver.pipe_bytes("in", key, value, timestamp, headers)
        assert driver.create_output_topic("out").queue_size() == len(good)
        assert driver.dropped == len(rows) - len(good)
        letters = driver.create_output_topic("dead").queue_size()
        assert letters == (len(rows) - len(good) if handler == "dead letter" else 0)
        counts = {key: row.value for key, row in driver.state_store("counts").all()}
    assert counts == Counter(int.from_bytes(key or b"", "big") for key, _, _, _ in good)


def test_the_test_driver_stops_at_the_poison_record() -> None:
    first = min(offset for partition, offset in POISON if partition == 0)
    with TopologyTestDriver(topology()) as driver:
        for key, value, timestamp, headers in ROWS[0][:first]:
            driver.pipe_bytes("in", key, value, timestamp, headers)
        with pytest.raises(SerializationError) as failure:
            driver.pipe_bytes("in", *ROWS[0][first])
        assert (failure.value.topic, failure.value.partition, failure.value.offset) == ("in", 0, first)


def test_the_message_of_a_poison_record_names_place_and_way_out() -> None:
    with TopologyTestDriver(topology()) as driver, pytest.raises(SerializationError) as failure:
        driver.pipe_bytes("in", bytes(8), json.dumps({"amount": 3})[:-2].encode(), 5)
    text = str(failure.value)
    assert "in-0 offset 0" in text
    assert "Hint:" in text
    assert "deserialization.exception.handler" in text
