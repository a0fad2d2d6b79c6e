"""Stream times of operators beside committed offsets, within what a broker takes."""

from __future__ import annotations

import pytest

from kstreams_repl import StreamsBuilder, TimeWindows, serdes
from kstreams_repl.engine.commit.offset_metadata import decode
from kstreams_repl.engine.runtime.metadata_names import OPERATOR_TIME
from kstreams_repl.host.instance.tasks.active_task import ActiveTask
from kstreams_repl.system.types import RecordBatch, TopicPartition
from tests.unit.engine.runtime.rig import Rig

IN = TopicPartition("in", 0)


def metadata_of(operators: int) -> str:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    for number in range(operators):
        grouped.windowed_by(TimeWindows.of_size(10)).count(store=f"windows-of-a-long-name-{number}")
    rig = Rig(builder.build())
    active = ActiveTask(rig.task, rig.environment, {IN: 0}, frozenset())
    active.add_records(IN, RecordBatch([serdes.string.serialize("k")], [b"1"], [1_700_000_000_000], [0]))
    active.task.process(1)
    return active.prepare(1)[IN][1]


def test_each_operators_time_is_committed_with_the_offsets() -> None:
    found = decode(metadata_of(100))
    assert found.commit_id == 1 and found.stream_time == 1_700_000_000_000
    assert [number for name, number in found.entries.items() if name.startswith(OPERATOR_TIME)] == [1_700_000_000_000] * 100


def test_times_that_a_broker_would_not_take_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    text = metadata_of(200)
    assert len(text) <= 4_096
    found = decode(text)
    assert found.commit_id == 1 and found.stream_time == 1_700_000_000_000
    assert not [name for name in found.entries if name.startswith(OPERATOR_TIME)]
    assert "operators are not committed" in caplog.text
