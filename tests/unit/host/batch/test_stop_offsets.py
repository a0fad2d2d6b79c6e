"""What a bounded run refuses before anything starts."""

from __future__ import annotations

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.batch.stop_offsets import bounded_partitions
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
