"""The record that an application failed at, named by the topics that a user knows."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.repl.session.views.picture import failed_record
from kstreams_repl.repl.session.views.picture.failed_record import with_record
from kstreams_repl.system.errors import StreamsProcessingError


def test_a_record_of_a_repartition_topic_is_told_with_the_topics_that_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user knows events5, not latency-latency-repartition-2@220."""
    builder = ks.StreamsBuilder()
    events = builder.stream("events5", key_serde="string", value_serde="json")
    keyed = events.merge(builder.stream("events6", key_serde="string", value_serde="json")).select_key(lambda key, value: value["page"])
    keyed.repartition(name="latency").map_values(lambda value: value["ms"])
    builder.stream("others")
    monkeypatch.setattr(failed_record, "record_at", lambda client, at: ReadRecord("x", {}, 0, at.topic, at.partition, at.offset))
    client: Any = None
    fields: dict[str, Any] = {"topic": "app-latency-repartition", "partition": 2, "offset": 220}
    error = with_record(client, "app", StreamsProcessingError("KeyError: 'ms'", **fields), builder.build())
    assert error.message.splitlines()[1:] == [
        "  record app-latency-repartition-2@220: key 'x', value {}",
        "  app-latency-repartition is written by the application itself, from records of events5, events6",
    ]
    other = with_record(client, "app", StreamsProcessingError("KeyError", topic="events5", partition=0, offset=1), builder.build())
    assert "written by the application itself" not in other.message
