"""A group's commits from the broker's topic of offsets, record by record as Kafka writes it."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import count, repeat
from typing import Any

import pytest

from kstreams_repl.host.kafka import offset_history
from kstreams_repl.host.kafka.offset_history import FORGOTTEN, OffsetCommit, OffsetHistory, _partition_of
from kstreams_repl.repl.session.views.past.moments import Moment
from kstreams_repl.repl.session.views.past.state.commit_history import CommitHistory
from kstreams_repl.system.errors import InvalidStateStoreError
from kstreams_repl.system.types import RecordBatch, TopicPartition

IN = TopicPartition("in", 3)


def key(group: str, partition: TopicPartition, version: int = 1) -> bytes:
    parts = [struct.pack(">h", version)]
    for text in (group, partition.topic):
        parts += (struct.pack(">h", len(text)), text.encode())
    return b"".join(parts) + struct.pack(">i", partition.partition)


def value(version: int, offset: int, metadata: str, at_ms: int) -> bytes:
    """By the schema ``OffsetCommitValue.json`` of Apache Kafka."""
    data = struct.pack(">hq", version, offset)
    if version >= 3:
        data += struct.pack(">i", 5)  # the leader's epoch
    size = len(metadata)
    data += bytes([size + 1 & 127 | 128, size + 1 >> 7]) if version >= 4 else struct.pack(">h", size)
    data += metadata.encode() + struct.pack(">q", at_ms)
    return data + {1: struct.pack(">q", -1), 4: b"\0"}.get(version, b"")


class OneTopic:
    settings = None

    def partitions(self, topic: str) -> int:
        assert topic == "__consumer_offsets"
        return 50

    def end_offsets(self, partitions: list[TopicPartition], *, isolation: str = "read_committed") -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10 if isolation == "read_uncommitted" or next(self.asked) > 2 else 5)

    def __init__(self) -> None:
        self.asked = count()


def read(monkeypatch: pytest.MonkeyPatch, records: Iterable[tuple[bytes, bytes | None]], group: str = "app") -> list[OffsetCommit]:
    keys, values = zip(*records, strict=True)
    batch = RecordBatch(list(keys), list(values), [9] * len(keys), list(range(len(keys))), None, "")
    monkeypatch.setattr(offset_history, "ranges_of", lambda admin, topic, *, partitions, start: [(partitions, start)])
    monkeypatch.setattr(offset_history, "read_ranges", lambda settings, ranges: [(IN, batch)] if ranges[0][1] == 0 else [])
    admin: Any = OneTopic()
    history = OffsetHistory(admin, group)
    found = list(history.read())
    assert list(history.read()) == []
    return found


@pytest.mark.parametrize("version", range(5))
def test_each_version_of_a_commit_is_read(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    metadata = "m" * 200
    found = read(monkeypatch, [(key("app", IN, min(version, 1)), value(version, 17, metadata, 1234))])
    assert found == [OffsetCommit(IN, 17, metadata, 1234)]


def test_other_groups_and_other_records_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    members = struct.pack(">hh", 2, 3) + b"app"
    records = [(key("apq", IN), value(3, 1, "", 1)), (key("application", IN), value(3, 1, "", 1)), (members, b"anything")]
    assert read(monkeypatch, [*records, (key("app", IN), value(3, 2, "", 1))]) == [OffsetCommit(IN, 2, "", 1)]


def test_a_deleted_offset_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, [(key("app", IN), None)]) == [OffsetCommit(IN, FORGOTTEN, "", 9)]


def test_the_group_s_partition_is_that_of_java() -> None:
    """``Math.abs("hello".hashCode())`` is 99162322, "bench-past" has -821177969; the last has the smallest int."""
    assert _partition_of("hello", 50) == 99162322 % 50
    assert _partition_of("bench-past", 4) == 1
    assert _partition_of("polygenelubricants", 50) == 0


def test_a_commit_whose_transaction_is_not_ended_in_the_topic_yet_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Any = OneTopic()
    monkeypatch.setattr(offset_history, "ranges_of", lambda admin, topic, *, partitions, start: [])
    monkeypatch.setattr(offset_history, "read_ranges", lambda settings, ranges: [])
    assert list(OffsetHistory(admin, "app").read()) == [] and next(admin.asked) == 4
    admin.asked = repeat(0)
    monkeypatch.setattr(offset_history, "_SETTLE_SECONDS", 0.05)
    assert list(OffsetHistory(admin, "app").read()) == []


def test_an_application_without_commits_says_so() -> None:
    admin: Any = OneTopic()
    with pytest.raises(InvalidStateStoreError, match="no commit yet"):
        CommitHistory(admin, "app", {}).at(Moment("time", 1 << 62))
