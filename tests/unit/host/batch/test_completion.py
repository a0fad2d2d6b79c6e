"""When a bounded run is over, as a function of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kstreams_repl.engine.commit.offset_metadata import encode
from kstreams_repl.host.batch.stop_offsets import by_partition, by_topic, stops_of
from kstreams_repl.host.instance.reports.run_progress import RunProgress, progress_of, unwritten_commits, waiting_records
from kstreams_repl.host.journal.journal_records import StopOffsets
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.types import TaskId, TopicPartition

A, B, INNER = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("app-x-repartition", 0)
OFFSETS = st.integers(0, 50)


def test_every_bounded_partition_is_at_its_stop_and_every_intermediate_one_at_its_end() -> None:
    assert progress_of({A: 3, INNER: 2}, {A: 3}, {INNER: 2}).is_complete
    assert progress_of({A: 3, INNER: 2}, {A: 3}, {INNER: 4}).left == {INNER: 2}
    assert progress_of({A: 2, INNER: 4}, {A: 3}, {INNER: 4}).left == {A: 1}
    assert progress_of({A: 9, INNER: 4}, {A: 3}, {INNER: 4}).is_complete, "an explicit stop below the committed offset"


def test_a_partition_without_a_commit_is_not_finished_even_at_zero() -> None:
    """Its task may not have started: only a commit shows that the task exists and has passed everything."""
    progress = progress_of({}, {A: 0}, {INNER: 0})
    assert not progress.is_complete and progress.done == 0 and progress.partitions == 2
    assert progress_of({A: 0, INNER: 0}, {A: 0}, {INNER: 0}).is_complete


def test_a_run_is_not_over_while_a_commit_covers_records_that_wait_for_calls() -> None:
    committed = {A: CommittedOffset(3, encode(-1, {"repl.waiting": 2})), B: CommittedOffset(3, encode(-1, {}))}
    waiting = waiting_records({TaskId(0, 0): (A, INNER), TaskId(0, 1): (B,)}, committed)
    assert waiting == {TaskId(0, 0): 2}
    progress = progress_of({A: 3, B: 3}, {A: 3, B: 3}, {}, waiting)
    assert not progress.is_complete and progress.offsets_left == 0
    assert progress_of({A: 3, B: 3}, {A: 3, B: 3}, {}, {}).is_complete


def test_a_run_is_processed_but_not_over_while_a_table_lacks_rows_of_a_commit() -> None:
    committed = {A: CommittedOffset(3, encode(-1, {"repl.tables.behind": 2})), B: CommittedOffset(3, encode(-1, {}))}
    unwritten = unwritten_commits({TaskId(0, 0): (A, INNER), TaskId(0, 1): (B,)}, committed)
    assert unwritten == {TaskId(0, 0): 2}
    progress = RunProgress({}, 2, unwritten=unwritten)
    assert progress.is_processed and not progress.is_complete
    assert not RunProgress({}, 2, open_windows={TaskId(0, 1)}).is_processed


@given(st.dictionaries(st.sampled_from([A, B, INNER]), OFFSETS), OFFSETS, OFFSETS, OFFSETS)
def test_it_is_over_exactly_when_nothing_is_left(committed: dict[TopicPartition, int], a: int, b: int, inner: int) -> None:
    progress = progress_of(committed, {A: a, B: b}, {INNER: inner})
    reached = [committed.get(at, -1) >= to for at, to in ((A, a), (B, b), (INNER, inner))]
    assert progress.is_complete == all(reached) and progress.done == sum(reached)
    assert (progress.offsets_left == 0) == progress.is_complete


@given(st.dictionaries(st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 3)), OFFSETS))
def test_offsets_come_back_from_the_journal_as_they_were(offsets: dict[TopicPartition, int]) -> None:
    assert by_partition(by_topic(offsets)) == offsets


def test_a_partition_that_was_created_since_is_left_to_the_next_run() -> None:
    record = StopOffsets(1, 1, {"a": {"0": 7}})
    assert stops_of(record, [A, B]) == {A: 7, B: 0}
