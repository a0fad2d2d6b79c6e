"""Topologies with more than one input on real Spark: a table is never missed, global tables are whole before the first
record.
"""

from __future__ import annotations

import pytest

from kstreams_repl import StreamsBuilder, serdes
from tests.spark.hosting import Host, counting, decoded, expected_counts, numbered, passing, processed, running, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_join_misses_no_row_of_a_table_that_was_there_before(host: Host) -> None:
    stream_topic, table_topic, sink = host.topic("orders"), host.topic("users"), host.topic("out")
    host.produce(table_topic, [(b"k%d" % i, b"name-%d" % i) for i in range(20_000)])
    host.produce(stream_topic, [(b"k%d" % (i % 20_000), b"%d" % i) for i in range(30_000)])
    builder = StreamsBuilder()
    table = builder.table(table_topic, key_serde=serdes.string, value_serde=serdes.string)
    orders = builder.stream(stream_topic, key_serde=serdes.string, value_serde=serdes.string)
    orders.left_join(table, lambda order, name: f"{order}:{name}").to(sink, key_serde=serdes.string, value_serde=serdes.string)
    deployment = host.deploy(builder.build(), max_task_idle_ms=0)
    processed(deployment, 50_000)
    deployment.stop()
    joined = [value.decode() for _, value in host.read(sink) if value is not None]
    assert len(joined) == 30_000
    missed = [row for row in joined if row.endswith(":None")]
    assert not missed, f"{len(missed)} joined nothing, first {missed[0]}"


@pytest.mark.slow
def test_join_with_an_empty_table_goes_on(host: Host) -> None:
    stream_topic, table_topic, sink = host.topic("orders"), host.topic("users"), host.topic("out")
    host.produce(stream_topic, numbered(500))
    builder = StreamsBuilder()
    table = builder.table(table_topic, key_serde=serdes.string, value_serde=serdes.string)
    orders = builder.stream(stream_topic, key_serde=serdes.string, value_serde=serdes.string)
    orders.left_join(table, lambda order, name: f"{order}:{name}").to(sink, key_serde=serdes.string, value_serde=serdes.string)
    deployment = host.deploy(builder.build())
    processed(deployment, 500)
    deployment.stop()
    assert len(host.read(sink)) == 500


@pytest.mark.slow
def test_global_table_is_whole_before_the_first_record(host: Host) -> None:
    stream_topic, table_topic, sink = host.topic("orders"), host.topic("items", 3), host.topic("out")
    host.produce(table_topic, [(b"item-%d" % i, b"name-%d" % i) for i in range(5_000)])
    host.produce(stream_topic, [(b"k%d" % i, b"item-%d" % (i % 5_000)) for i in range(10_000)])
    builder = StreamsBuilder()
    items = builder.global_table(table_topic, key_serde=serdes.string, value_serde=serdes.string)
    orders = builder.stream(stream_topic, key_serde=serdes.string, value_serde=serdes.string)
    orders.join(items, lambda item, name: f"{item}={name}", key=lambda key, value: value).to(
        sink, key_serde=serdes.string, value_serde=serdes.string
    )
    deployment = host.deploy(builder.build())
    processed(deployment, 10_000)
    host.produce(table_topic, [(b"item-0", b"renamed")])
    settle(lambda: _ask(host, stream_topic, sink) == b"item-0=renamed", "the global table to follow")
    deployment.stop()
    joined = [value.decode() for _, value in host.read(sink) if value is not None]
    assert len([row for row in joined if row.endswith("=name-" + row.split("=")[0][5:])]) >= 10_000


def _ask(host: Host, stream: str, sink: str) -> bytes | None:
    before = len(host.read(sink))
    host.produce(stream, [(b"ask", b"item-0")])
    settle(lambda: len(host.read(sink)) > before, "an answer")
    return host.table(sink)[b"ask"]


def test_two_applications_and_the_users_own_job_share_one_spark(host: Host) -> None:
    source, first_sink, second_sink = host.topic("in"), host.topic("out1"), host.topic("out2")
    host.produce(source, numbered(2_000))
    first = host.deploy(counting(source, first_sink), "one")
    second = host.deploy(passing(source, second_sink), "two", num_stream_threads=1)
    processed(first, 2_000)
    processed(second, 2_000)
    assert host.spark.range(1000).selectExpr("sum(id)").collect()[0][0] == 499_500
    host.produce(source, numbered(500, start=2_000))
    processed(first, 2_500)
    processed(second, 2_500)
    first.stop()
    host.produce(source, numbered(500, start=2_500))
    processed(second, 3_000)
    running(second)
    second.stop()
    assert decoded(host.table(first_sink)) == expected_counts(numbered(2_500))
    assert sorted(int(value or b"") for _, value in host.read(second_sink)) == list(range(3_000))
