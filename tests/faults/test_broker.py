"""The broker goes away and comes back: an application resumes alone, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl.host.kafka.embedded import EmbeddedBroker
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.fixture
def own(spark: Any, tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, Host]]:
    broker = EmbeddedBroker(tmp_path / "broker").start()
    host = Host(broker, spark, tmp_path)
    try:
        yield broker, host
    finally:
        if not broker.is_alive:
            broker.start()
        host.close()
        broker.stop()


@pytest.mark.slow
def test_killed_broker_is_waited_for(own: tuple[EmbeddedBroker, Host]) -> None:
    broker, host = own
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(2_000))
    deployment = host.deploy(counting(source, sink))
    processed(deployment, 2_000)
    broker.kill()
    deployment.wait(1.5)
    broker.start()
    host.produce(source, numbered(2_000, start=2_000))
    processed(deployment, 4_000)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(4_000))


@pytest.mark.slow
def test_broker_killed_in_the_middle_of_records(own: tuple[EmbeddedBroker, Host]) -> None:
    broker, host = own
    source, sink = host.topic("in"), host.topic("out")
    host.produce(source, numbered(60_000))
    deployment = host.deploy(counting(source, sink))
    settle(lambda: deployment.reports.records > 0, "the first records")
    broker.kill()
    deployment.wait(1.0)
    broker.start()
    processed(deployment, 60_000)
    deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(numbered(60_000))
    assert decoded(host.table(f"{deployment.application_id}-counts-changelog")) == expected_counts(numbered(60_000))
