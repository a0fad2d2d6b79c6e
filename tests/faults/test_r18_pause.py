"""R18: paused and resumed at random times: nothing comes out once the pause was told, and at last all that a run without pauses gives."""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from typing import Any

import pytest

from kstreams_repl import StreamsBuilder, serdes
from kstreams_repl.host.spark.deployment import Deployment
from kstreams_repl.system.types import TopicPartition
from tests.faults.counts import full
from tests.faults.reliability import note
from tests.spark.hosting import Host, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]


def rekeyed(source: str, sink: str) -> Any:
    """Two sub-topologies with state in the second: a count of what was grouped anew, every one of its updates on a topic."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.string, value_serde=serdes.string)
    grouped = stream.group_by(lambda key, value: value[-1], key_serde=serdes.string, value_serde=serdes.string)
    table = grouped.count(store="counts", caching=False)
    table.to_stream().to(sink, key_serde=serdes.string, value_serde=serdes.long)
    return builder.build()


def ends(host: Host, app: str, sink: str) -> dict[TopicPartition, int]:
    """Where everything ends that the application writes, committed or not."""
    topics = [sink, *(topic for topic in host.admin.topics() if topic.startswith(app) and topic.endswith(("-changelog", "-repartition")))]
    places = [TopicPartition(topic, number) for topic in topics for number in range(host.admin.partitions(topic))]
    host.admin.settled_end_offsets(places)  # the markers of the last commit may come after its answer
    return host.admin.end_offsets(places, isolation="read_uncommitted")


def by_key(host: Host, topic: str) -> dict[bytes | None, list[bytes | None]]:
    found = defaultdict(list)
    for key, value in host.read(topic):
        found[key].append(value)
    return dict(found)


def all_out(host: Host, deployment: Deployment, sink: str, count: int) -> None:
    """Wait until so many results are committed."""

    def reached() -> bool:
        assert deployment.error is None, deployment.error
        return sum(len(values) for values in by_key(host, sink).values()) >= count

    settle(reached, f"{count} results", story=lambda: (deployment, deployment.reports))


@pytest.mark.slow
@pytest.mark.parametrize("times", [3, full(100)])
def test_nothing_comes_out_of_a_pause_and_nothing_is_missing_in_the_end(host: Host, times: int) -> None:
    seed = int(os.environ.get("KSTREAMS_SEED", "18"))
    chance = random.Random(seed)
    source, paused_sink, whole_sink = host.topic("in"), host.topic("paused"), host.topic("whole")
    deployment = host.deploy(rekeyed(source, paused_sink), "paused")
    running(deployment)
    sent = written_late = 0
    for _ in range(times):
        batch = chance.randrange(20, 1500)
        host.produce(source, [(b"k%d" % (n % 7), b"%d" % n) for n in range(sent, sent + batch)])
        sent += batch
        time.sleep(chance.random() * 0.4)
        deployment.pause()
        reached = ends(host, deployment.application_id, paused_sink)
        assert len({at.topic for at in reached}) == 3, reached
        time.sleep(chance.random() * 0.3)
        written_late += ends(host, deployment.application_id, paused_sink) != reached
        deployment.resume()
    what = f"paused at random times, resumed, compared with a run without pauses{'' if times >= 100 else ' (sample)'}"
    if written_late:
        note("R18", what, times, written_late, records=sent)
    assert written_late == 0, f"seed {seed}: written after {written_late} of {times} pauses"
    all_out(host, deployment, paused_sink, sent)
    deployment.stop()
    whole = host.deploy(rekeyed(source, whole_sink), "whole")
    all_out(host, whole, whole_sink, sent)
    whole.stop()
    outcome, expected = by_key(host, paused_sink), by_key(host, whole_sink)
    note("R18", what, times, int(outcome != expected), records=sent)
    assert outcome == expected
    assert {key: len(values) for key, values in outcome.items()} == Counter(b"%d" % (n % 10) for n in range(sent))
