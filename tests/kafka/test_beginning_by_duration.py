"""A partition that begins at a duration ago, on a real broker."""

from __future__ import annotations

import time
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from kstreams_repl.host.instance.initialization.start_offsets import _beginning
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("exactly_once", [False, True])
def test_it_is_the_first_record_of_that_time_or_the_end(broker: Any, exactly_once: bool) -> None:
    settings = ClientSettings(broker.bootstrap_servers)
    admin, topic = Admin(settings), f"by-duration-{uuid.uuid4().hex[:8]}"
    admin.create_topic(topic, 1)
    at, now = TopicPartition(topic, 0), int(time.time() * 1000)
    producer = make_producer(settings)
    for minutes in (180, 120, 30, 20):
        producer.produce(topic, b"value", b"key", 0, None, None, now - minutes * 60_000)
    assert producer.flush(30) == 0
    producer.close()
    plan: Any = SimpleNamespace(config=SimpleNamespace(exactly_once=exactly_once))

    def begins(policy: str) -> int:
        return _beginning(plan, at, policy, 0, 4, admin)

    assert [begins(f"by_duration:{ago}") for ago in ("P1D", "PT150M", "PT1H", "PT10M")] == [0, 1, 2, 4]
    assert (begins("earliest"), begins("latest")) == (0, 4)
