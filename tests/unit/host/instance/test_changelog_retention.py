"""Up to where changelogs of windows may be deleted, and from where a restore may begin."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl.engine.commit.offset_metadata import OffsetMetadata
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.layers.segments import segment_interval_ms
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.instance.state.changelog_retention import ChangelogFloors, check_whole, floors_of
from kstreams_repl.host.instance.state.changelogs import ChangelogPartition
from kstreams_repl.system.errors import TaskCorruptedError
from kstreams_repl.system.types import TaskId, TopicPartition

AT = TopicPartition("app-w-changelog", 0)
RETENTION = 200_000
LOG = ChangelogPartition(TaskId(0, 0), StoreBuilder("w", StoreKind.TIMESTAMPED_WINDOW, retention_ms=RETENTION, window_size_ms=10), AT)
ROWS = ChangelogPartition(TaskId(0, 0), StoreBuilder("r", StoreKind.TIMESTAMPED_KEY_VALUE), TopicPartition("app-r-changelog", 0))
IDS = {AT.topic: "id"}


def commit(floors: ChangelogFloors, environment: Any, end: int, observed: int) -> int:
    """One commit; returns the floor that it told."""
    [told] = floors.entries().values()
    floors.committed()
    floors.written({AT: end})
    environment.set_attribute("w/observed-time", struct.pack(">q", observed))
    floors.note(environment)
    return told


@given(steps=st.lists(st.tuples(st.integers(1, 50), st.integers(0, 150_000)), max_size=60))
def test_nothing_of_a_live_segment_lies_below_the_floor(steps: list[tuple[int, int]]) -> None:
    floors, environment = ChangelogFloors([LOG, ROWS], IDS), MemoryEnvironment()
    observed, interval, log = 0, segment_interval_ms(RETENTION), []
    for count, passed in steps:
        observed += passed
        log += [observed] * count
        commit(floors, environment, len(log), observed)
        [floor] = floors.entries().values()
        live = max(observed - RETENTION, 0) // interval
        assert all(time // interval < live for time in log[:floor])


def test_the_floor_follows_stream_time() -> None:
    floors, environment = ChangelogFloors([LOG], IDS), MemoryEnvironment()
    for number in range(1, 200):
        commit(floors, environment, number, number * 20_000)
    assert 199 - commit(floors, environment, 200, 4_000_000) < 25


def test_only_what_was_committed_is_deleted_and_only_once() -> None:
    floors, environment = ChangelogFloors([LOG], IDS), MemoryEnvironment()
    commit(floors, environment, 10, 0)
    commit(floors, environment, 20, 10_000_000)
    assert floors.deletable == {}
    floors.entries()
    assert floors.deletable == {}
    floors.committed(included=False)
    assert floors.deletable == {}
    floors.committed()
    assert floors.deletable == {AT: 10}
    floors.deleted({AT: 10})
    floors.entries()
    floors.committed()
    assert floors.deletable == {}


def test_a_committed_floor_belongs_to_one_topic() -> None:
    floors, environment = ChangelogFloors([LOG], IDS), MemoryEnvironment()
    commit(floors, environment, 10, 0)
    commit(floors, environment, 20, 10_000_000)
    committed = [OffsetMetadata(5, floors.entries()), OffsetMetadata()]
    assert floors_of([LOG, ROWS], committed, IDS) == {AT: 10}
    assert floors_of([LOG], committed, {AT.topic: "made again"}) == {}
    assert ChangelogFloors([LOG], IDS, {AT: 10}).entries() == floors.entries()


def test_a_log_that_was_cut_above_its_floor_is_refused_with_the_numbers(caplog: pytest.LogCaptureFixture) -> None:
    environment = MemoryEnvironment()
    check_whole(environment, LOG, 10, 10)
    check_whole(environment, LOG, 0, None)
    assert not caplog.text
    with pytest.raises(TaskCorruptedError, match="needs its records from 10 on: 2 were deleted") as caught:
        check_whole(environment, LOG, 12, 10)
    assert caught.value.store == "w" and "reset the application" in str(caught.value)
    check_whole(environment, LOG, 12, None)
    assert "begins at offset 12: 12 records were deleted" in caplog.text


def test_a_log_of_rows_that_never_expire_is_refused_without_its_first_records() -> None:
    environment = MemoryEnvironment()
    check_whole(environment, ROWS, 0, None)
    with pytest.raises(
        TaskCorruptedError, match="needs its records from 0 on: 12 were deleted, and there is no local copy"
    ) as caught:
        check_whole(environment, ROWS, 12, None)
    assert "cleanup.policy must be compact" in str(caught.value)
