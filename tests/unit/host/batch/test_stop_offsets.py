"""What a bounded run refuses before anything starts, and where it stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.bounds.stop_at import StopAt
from kstreams_repl.host.batch.stop_offsets import bounded_partitions, stop_offsets
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.system.errors import TopologyError
from kstreams_repl.system.types import TopicPartition


def test_a_topic_that_is_written_and_read_is_refused_unless_it_is_said_who_writes_it() -> None:
    builder = ks.StreamsBuilder()
    words = builder.stream("words", key_serde="string", value_serde="string")
    words.to("again", key_serde="string", value_serde="string")
    builder.stream("again", key_serde="string", value_serde="string").peek(print)
    inputs = [TopicPartition("again", 0), TopicPartition("words", 0)]
    with pytest.raises(TopologyError, match="writes and reads 'again'"):
        bounded_partitions(builder.build(), StreamsConfig({"application.id": "daily"}), inputs)
    own = StreamsConfig({"application.id": "daily", "repl.autostop.through": "own"})
    assert bounded_partitions(builder.build(), own, inputs) == inputs[1:]


def test_a_number_of_records_counts_from_where_each_partition_is_and_ends_with_its_log() -> None:
    begun, new, short = (TopicPartition("words", number) for number in range(3))
    admin: Any = SimpleNamespace(
        end_offsets=lambda wanted, isolation: {begun: 100, new: 100, short: 4},
        beginning_offsets=lambda wanted: dict.fromkeys(wanted, 3),
    )
    stops = stop_offsets(admin, StopAt.parse("records:5"), [begun, new, short], {begun: CommittedOffset(20)}, "read_committed")
    assert stops == {begun: 25, new: 8, short: 4}
