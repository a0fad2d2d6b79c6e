"""What a bounded run refuses before anything starts."""

from __future__ import annotations

import pytest

import kstreams_repl as ks
from kstreams_repl.batch.stop_offsets import bounded_partitions
from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import TopologyError
from kstreams_repl.types import TopicPartition


def test_asynchronous_nodes_are_refused_because_records_wait_behind_committed_offsets() -> None:
    builder = ks.StreamsBuilder()
    words = builder.stream("words", key_serde="string", value_serde="string")
    words.map_values_async(lambda value: value.upper(), name="upper").to("shouted", key_serde="string", value_serde="string")
    with pytest.raises(TopologyError, match="cannot have asynchronous nodes, but the topology has upper"):
        bounded_partitions(builder.build(), StreamsConfig({"application.id": "daily"}), [TopicPartition("words", 0)])
