"""The text beside a committed offset: Kafka Streams' bytes, with the commit id behind what the JVM reads."""

from __future__ import annotations

import base64
import struct

import pytest

from kstreams_repl.engine.commit.offset_metadata import COMMIT_ID, STREAM_TIME, OffsetMetadata, decode, encode


def test_plain_text_is_kafka_streams_own() -> None:
    assert encode(42) == "AgAAAAAAAAAq"
    assert decode("AgAAAAAAAAAq") == OffsetMetadata(42)


def test_first_bytes_do_not_depend_on_what_follows() -> None:
    assert encode(42, {COMMIT_ID: 7}).startswith(encode(42))


def test_entries_come_back() -> None:
    told = decode(encode(-1, {COMMIT_ID: 2**40, "ünï": -5}))
    assert (told.partition_time, told.commit_id, told.entries["ünï"], told.stream_time) == (-1, 2**40, -5, -1)


def test_what_the_jvm_reads_and_repeats_has_no_commit_id() -> None:
    """Its own commits would carry ours on, and an old store would look like that of the last commit."""
    ours = base64.b64decode(encode(5, {"store": 9, COMMIT_ID: 7, STREAM_TIME: 8}))
    read = base64.b64decode(encode(5, {"store": 9}))
    assert ours.startswith(read) and len(ours) == len(read) + 16
    assert decode(base64.b64encode(read).decode()) == OffsetMetadata(5, {"store": 9})


def test_the_last_release_s_text_is_read() -> None:
    names = {COMMIT_ID: 7, STREAM_TIME: 8, "store": 9}
    written = b"\x02" + struct.pack(">qi", 5, 3)
    for name, number in names.items():
        written += struct.pack(">i", len(name)) + name.encode() + struct.pack(">q", number)
    assert decode(base64.b64encode(written).decode()) == OffsetMetadata(5, names)


@pytest.mark.parametrize("text", ["", "x", "AwAAAAAAAAAq", "AgAA", "ÿ", encode(1, {"a": 1})[:-8]])
def test_foreign_text_is_unknown(text: str) -> None:
    assert decode(text) == OffsetMetadata()


def test_version_one_has_a_time_only() -> None:
    assert decode("AQAAAAAAAAAq") == OffsetMetadata(42)
