"""The floor that a benchmark measures: the clients read everything and send it twice, committed, or its figure says nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.system.types import TopicPartition
from workshop.bench.clients_alone import Share, run_share
from workshop.bench.rig.testbed import produce

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def test_every_record_of_its_partitions_is_sent_to_each_output_and_committed(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str], name: str
) -> None:
    source, outputs = topic(partitions=2), [topic(partitions=2), topic(partitions=2)]
    now = int(time.time() * 1000)
    produce(settings, source, [(b"k%d" % number, b"%d" % number, now + number) for number in range(500)])
    ends = admin.end_offsets([TopicPartition(source, 0), TopicPartition(source, 1)])
    assert min(ends.values()) > 0
    for at, end in ends.items():
        began, ended = run_share(Share(settings, f"{name}-{at.partition}", {at: end}, outputs, commit_ms=20))
        assert began < ended

    def rows(name: str) -> list[tuple[object, ...]]:
        ranges = ranges_of(admin, name, settled=True)
        return [
            (at.partition, *row)
            for at, batch in read_ranges(settings, ranges)
            for row in zip(batch.keys, batch.values, batch.timestamps, strict=True)
        ]

    expected = sorted(rows(source), key=repr)
    assert len(expected) == 500 and all(sorted(rows(output), key=repr) == expected for output in outputs)
