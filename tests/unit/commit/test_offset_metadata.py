"""The text beside a committed offset: Kafka Streams' bytes, with the commit id among its processor metadata."""

from __future__ import annotations

import pytest

from kstreams_repl.commit.offset_metadata import COMMIT_ID, OffsetMetadata, decode, encode


def test_plain_text_is_kafka_streams_own() -> None:
    assert encode(42) == "AgAAAAAAAAAq"
    assert decode("AgAAAAAAAAAq") == OffsetMetadata(42)


def test_first_bytes_do_not_depend_on_what_follows() -> None:
    assert encode(42, {COMMIT_ID: 7}).startswith(encode(42))


def test_entries_come_back() -> None:
    told = decode(encode(-1, {COMMIT_ID: 2**40, "ünï": -5}))
    assert (told.partition_time, told.commit_id, told.entries["ünï"], told.stream_time) == (-1, 2**40, -5, -1)


@pytest.mark.parametrize("text", ["", "x", "AwAAAAAAAAAq", "AgAA", "ÿ", encode(1, {"a": 1})[:-8]])
def test_foreign_text_is_unknown(text: str) -> None:
    assert decode(text) == OffsetMetadata()


def test_version_one_has_a_time_only() -> None:
    assert decode("AQAAAAAAAAAq") == OffsetMetadata(42)
