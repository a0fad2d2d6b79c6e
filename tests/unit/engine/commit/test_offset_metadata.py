"""The text beside a committed offset: Kafka Streams' bytes, with the commit id behind what the JVM reads."""

from __future__ import annotations

import base64
import struct
from zlib import crc32

import pytest

from kstreams_repl.engine.commit.committed_counts import written_counts
from kstreams_repl.engine.commit.offset_metadata import (
    COMMIT_ID,
    STREAM_TIME,
    UNKNOWN,
    OffsetMetadata,
    changelog_key,
    decode,
    encode,
)
from kstreams_repl.engine.runtime.nodes.node_counts import NodeCount


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


def test_the_ends_of_changelogs_come_back_with_the_counts_behind_them() -> None:
    counts = written_counts({"count": NodeCount(7, 3)})
    for own in (b"", counts):
        ends = {changelog_key("app-a-changelog", "id1"): 2**40, changelog_key("app-b-changelog"): UNKNOWN}
        told = decode(encode(5, {"store": 9, COMMIT_ID: 7}, own, ends))
        assert (told.end_of("app-a-changelog"), told.end_of("app-b-changelog"), told.end_of("app-c-changelog")) == (2**40, UNKNOWN, None)
        assert [told.may_be_of("app-a-changelog", each) for each in ("id1", "id2")] == [True, False]
        assert told.may_be_of("app-b-changelog", "id2") and told.id_of("app-b-changelog") == 0
        assert (told.commit_id, told.entries["store"], told.counts) == (7, 9, own)
    assert decode(encode(5, {COMMIT_ID: 7}, counts)).counts == counts


def test_the_version_comes_back_with_ends_and_without() -> None:
    for ends in ({}, {changelog_key("a", "id"): 3}):
        told = decode(encode(5, {COMMIT_ID: 7}, b"\x01counts", ends, 12))
        assert (told.version, told.end_of("a"), told.counts) == (12, 3 if ends else None, b"\x01counts")
    assert decode(encode(5, {COMMIT_ID: 7}, b"\x01counts")).version == 0
    assert encode(5, {"store": 9}, b"", None, 12) == encode(5, {"store": 9})  # what the JVM would copy has none


def test_the_jvm_s_part_is_the_same_with_ends() -> None:
    plain, ended = (base64.b64decode(encode(5, {"store": 9, COMMIT_ID: 7}, b"", ends)) for ends in (None, {changelog_key("a"): 1}))
    assert ended.startswith(plain)


def test_ends_that_are_cut_off_make_the_text_unknown() -> None:
    cut = base64.b64decode(encode(5, {COMMIT_ID: 7}, b"", {changelog_key("a"): 1}))[:-1]
    assert decode(base64.b64encode(cut).decode()) == OffsetMetadata()


def test_ends_without_ids_are_read() -> None:
    """As they were written before: format 2, checksum of the topic and an end of eight bytes."""
    plain = base64.b64decode(encode(5, {COMMIT_ID: 7}))
    written = plain + struct.pack(">BHIqIq", 2, 2, crc32(b"a"), 9, crc32(b"b"), UNKNOWN) + b"counts"
    told = decode(base64.b64encode(written).decode())
    assert (told.end_of("a"), told.end_of("b"), told.id_of("a"), told.counts) == (9, UNKNOWN, 0, b"counts")
    assert told.may_be_of("a", "any")


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
