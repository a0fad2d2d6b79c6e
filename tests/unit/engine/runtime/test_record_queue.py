"""One partition's records: heads, poison, timestamps, offsets to commit."""

from __future__ import annotations

from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.processor import Processor
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.system.errors import SerializationError, StreamsProcessingError
from kstreams_repl.system.types import RecordBatch, TopicPartition
from tests.unit.engine.runtime.rig import Rig, keys, recording

AT = TopicPartition("in", 0)
BAD = b"\xff not json"


def rig_of(config: dict[str, Any] | None = None, extractor: Any = None) -> tuple[Rig, list[Any]]:
    seen: list[Any] = []
    if extractor is None:
        return Rig(recording(seen, "in"), config), seen

    class Keep(Processor):
        def process(self, record: Any) -> None:
            seen.append((record.key, record.value, record.timestamp))

    topology = Topology().add_source("from-in", "in", timestamp_extractor=extractor).add_processor("keep", Keep, "from-in")
    return Rig(topology, config), seen


def offset(rig: Rig) -> int | None:
    return rig.commit().offsets.get(AT)


def test_nothing_is_committed_for_a_partition_that_gave_no_record() -> None:
    assert offset(rig_of()[0]) is None


def test_the_offset_to_commit_is_that_of_the_head() -> None:
    rig, _ = rig_of()
    rig.pipe("in", ("a", 1, 1), ("b", 2, 2), ("c", 3, 3)).run(1)
    assert offset(rig) == 1


def test_the_offset_after_the_last_record_is_committed_when_the_queue_is_empty() -> None:
    rig, _ = rig_of()
    rig.pipe("in", ("a", 1, 1), ("b", 2, 2)).run()
    assert offset(rig) == 2


def test_offsets_need_not_be_dense() -> None:
    from kstreams_repl.system.types import RecordBatch

    rig, seen = rig_of()
    rig.task.add_records(AT, RecordBatch([b"a", b"b"], [b"1", b"2"], [0, 1], [7, 4000]))
    assert offset(rig) == 7
    rig.run()
    assert (offset(rig), len(seen)) == (4001, 2)


def test_stream_time_is_the_largest_timestamp_taken_and_partition_time_follows() -> None:
    rig, _ = rig_of()
    rig.pipe("in", ("a", 1, 50), ("b", 2, 20), ("c", 3, 60))
    assert rig.commit().stream_time == -1
    rig.run(2)
    assert (rig.commit().stream_time, rig.commit().partition_times[AT]) == (50, 50)
    rig.run()
    assert rig.commit().stream_time == 60


def test_a_committed_partition_time_is_the_stream_time_after_a_restart() -> None:
    rig, _ = rig_of()
    rig.task.set_partition_time(AT, 500)
    rig.pipe("in", ("a", 1, 3)).run()
    assert rig.commit().stream_time == 500


def test_a_poison_record_fails_when_it_becomes_the_head_with_its_coordinates() -> None:
    rig, seen = rig_of()
    rig.pipe("in", ("a", 1, 1), ("b", BAD, 2), ("c", 3, 3))
    with pytest.raises(SerializationError) as failure:
        rig.run()
    assert keys(seen) == "a"
    assert (failure.value.topic, failure.value.partition, failure.value.offset) == ("in", 0, 1)
    assert failure.value.node == "from-in"
    assert "Hint:" in str(failure.value)


def test_a_poison_record_that_comes_first_fails_when_it_is_added() -> None:
    rig, _ = rig_of()
    with pytest.raises(SerializationError):
        rig.pipe("in", ("a", BAD, 1))


def test_poison_records_between_good_ones_are_skipped_and_counted_under_continue() -> None:
    rig, seen = rig_of({"deserialization.exception.handler": "continue"})
    rig.pipe("in", ("a", BAD, 1), ("b", 1, 2), ("c", BAD, 3), ("d", BAD, 4), ("e", 2, 5)).run()
    assert keys(seen) == "be"
    assert rig.task.dropped == {"deserialization": 3}


def test_a_queue_of_poison_only_still_moves_the_offset_on() -> None:
    """From the start: the handler has been asked about all of them, and after a commit nobody is to be asked again."""
    rig, seen = rig_of({"deserialization.exception.handler": "continue"})
    rig.pipe("in", ("a", BAD, 1), ("b", BAD, 2), ("c", BAD, 3))
    assert (offset(rig), rig.task.buffered) == (3, 1)
    assert rig.run() == 1
    assert (offset(rig), seen, rig.task.buffered) == (3, [], 0)


def test_poison_at_the_end_of_a_batch_does_not_hold_the_offset_back() -> None:
    rig, seen = rig_of({"deserialization.exception.handler": "continue"})
    rig.pipe("in", ("a", 1, 1), ("b", BAD, 2)).run()
    assert (keys(seen), offset(rig), rig.task.buffered) == ("a", 2, 0)


def test_good_records_behind_a_batch_of_poison_are_processed() -> None:
    rig, seen = rig_of({"deserialization.exception.handler": "continue"})
    rig.pipe("in", ("a", BAD, 1), ("b", BAD, 2)).pipe("in", ("c", 1, 3)).run()
    assert (keys(seen), offset(rig), rig.task.buffered) == ("c", 3, 0)


def test_a_skipped_poison_record_does_not_move_stream_time() -> None:
    rig, _ = rig_of({"deserialization.exception.handler": "continue"})
    rig.pipe("in", ("a", 1, 1), ("b", BAD, 9_999), ("c", 1, 2)).run()
    assert rig.commit().stream_time == 2


def test_a_negative_timestamp_fails_without_an_extractor() -> None:
    rig, _ = rig_of()
    with pytest.raises(StreamsProcessingError, match="negative timestamp -5") as failure:
        rig.pipe("in", ("a", 1, 1), ("b", 1, -5)).run()
    assert failure.value.offset == 1


def test_a_negative_timestamp_from_an_extractor_drops_the_record() -> None:
    rig, seen = rig_of(extractor=lambda record, partition_time: -1 if record.value == 9 else record.timestamp)
    rig.pipe("in", ("a", 1, 1), ("b", 9, 2), ("c", 3, 3), ("d", 9, 4)).run()
    assert keys(seen) == "ac"
    assert rig.task.dropped == {"negative timestamp": 2}


def test_an_extractor_is_given_the_record_and_the_time_of_records_already_taken() -> None:
    given: list[tuple[Any, ...]] = []

    def extract(record: Any, partition_time: int) -> int:
        given.append((record.topic, record.partition, record.offset, record.key, record.value, record.timestamp, partition_time))
        return int(record.value)

    rig, seen = rig_of(extractor=extract)
    rig.pipe("in", ("a", 70, 1), ("b", 60, 2), ("c", 80, 3)).run()
    assert given == [("in", 0, 0, "a", 70, 1, -1), ("in", 0, 1, "b", 60, 2, 70), ("in", 0, 2, "c", 80, 3, 70)]
    assert [row[2] for row in seen] == [70, 60, 80]


def test_an_error_of_the_extractor_names_the_source_and_the_users_line() -> None:
    def extract(record: Any, partition_time: int) -> int:
        return record.value["missing"]  # the user's line

    rig, _ = rig_of(extractor=extract)
    with pytest.raises(StreamsProcessingError, match="the user's line") as failure:
        rig.pipe("in", ("a", {}, 1))
    assert (failure.value.node, failure.value.offset) == ("from-in", 0)
    assert isinstance(failure.value.__cause__, KeyError)


def test_an_error_of_the_extractor_is_not_taken_for_poison() -> None:
    rig, _ = rig_of({"deserialization.exception.handler": "continue"}, extractor=lambda record, partition_time: 1 // 0)
    with pytest.raises(StreamsProcessingError):
        rig.pipe("in", ("a", 1, 1))


@pytest.mark.parametrize("most", [1, 2, 1000])
def test_headers_travel_with_their_record(most: int) -> None:
    seen: list[Any] = []

    class Headers(Processor):
        def process(self, record: Any) -> None:
            seen.append((record.key, record.headers, self.context.record_metadata().offset))

    topology = Topology().add_source("from-in", "in", value_serde=serdes.json).add_processor("keep", Headers, "from-in")
    rig = Rig(topology)
    rig.pipe("in", ("a", 1, 1, [("h", b"1")]), ("b", 1, 2, None), ("c", 1, 3, [("h", None), ("h", b"2")]))
    while rig.run(most):
        pass
    assert seen == [("a", [("h", b"1")], 0), ("b", [], 1), ("c", [("h", None), ("h", b"2")], 2)]


@pytest.mark.parametrize("bad", [("c", BAD, 3), ("c", 3, -3)], ids=["poison", "negative timestamp"])
def test_after_a_failure_the_queue_stands_at_the_record_that_failed(bad: tuple[Any, ...]) -> None:
    rig, seen = rig_of()
    rig.pipe("in", ("a", 1, 1), ("b", 2, 2), bad, ("d", 4, 4))
    with pytest.raises((SerializationError, StreamsProcessingError)):
        rig.run()
    assert (keys(seen), rig.task.group.queues[AT].resume_offset) == ("ab", 2)


@pytest.mark.parametrize("at", [0, 1, 127, 128, 299])
def test_columns_read_ahead_keep_poison_in_its_turn(at: int) -> None:
    seen: list[Any] = []
    config = {"default.value.serde": serdes.long, "deserialization.exception.handler": "continue"}
    rig = Rig(recording(seen, "in"), config)
    values = [index.to_bytes(8, "big") for index in range(300)]
    values[at] = b"short"
    rig.pipe("in", *((b"k%d" % index, value, index) for index, value in enumerate(values))).run()
    assert [value for _, value, _ in seen] == [index for index in range(300) if index != at]
    assert rig.task.dropped == {"deserialization": 1} and offset(rig) == 300


def test_null_keys_and_tombstones_are_read_ahead_like_all_others() -> None:
    seen: list[Any] = []
    rig = Rig(recording(seen, "in"), {"default.value.serde": serdes.string})
    rig.task.add_records(AT, RecordBatch([None, b"\xff", b"k"], [b"v", None, b"\xc3\xbc"], [1, 2, 3], [0, 1, 2]))
    rig.run()
    assert seen == [(None, "v", 1), ("\ufffd", None, 2), ("k", "ü", 3)]
