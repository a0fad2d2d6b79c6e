"""`default.dsl.store=in_memory` deployed: nothing on disk, and every start fills the stores from their changelogs."""

from __future__ import annotations

import pytest

from tests.spark.hosting import Host, counting, decoded, expected_counts, kill_worker, numbered, processed

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(180)]


@pytest.mark.slow
def test_counts_in_memory_go_on_after_a_kill_and_after_a_restart(host: Host) -> None:
    source, sink = host.topic("in", 2), host.topic("out", 2)
    rows = numbered(900)
    host.produce(source, rows[:300])
    deployment = host.deploy(counting(source, sink), default_dsl_store="in_memory", num_stream_threads=1)
    processed(deployment, 300)
    kill_worker(deployment)
    host.produce(source, rows[300:600])
    processed(deployment, 600)
    deployment.stop()
    host.produce(source, rows[600:])
    again = host.deploy(counting(source, sink), default_dsl_store="in_memory", num_stream_threads=1)
    processed(again, 900)
    again.stop()
    assert decoded(host.table(sink)) == expected_counts(rows)
    assert not list((host.directory / "state").rglob("*.mdb"))


@pytest.mark.slow
def test_a_store_that_was_in_memory_for_a_while_is_right_when_it_is_on_disk_again(host: Host) -> None:
    source, sink = host.topic("in", 1), host.topic("out", 1)
    rows = numbered(900)
    for number, kept in enumerate(["lmdb", "in_memory", "lmdb"]):
        host.produce(source, rows[300 * number : 300 * (number + 1)])
        deployment = host.deploy(counting(source, sink), default_dsl_store=kept, num_stream_threads=1)
        processed(deployment, 300 * (number + 1))
        deployment.stop()
    assert decoded(host.table(sink)) == expected_counts(rows)
