"""Records that the broker refuses, on a real broker and real Spark: fail, continue, retry, dead letters, in both guarantees."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import Response, StreamsBuilder, serdes
from kstreams_repl.system.types import Headers
from tests.faults.test_r13_poison_deployed import read_all
from tests.spark.hosting import Host, decoded, failed, processed, settle

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(240)]
LIMIT = 2_000
BIG = (37, 38, 211, 400)


def rows(count: int = 500) -> list[tuple[bytes, bytes]]:
    """Values that do not compress; those at `BIG` are larger than the sink allows."""
    rng = random.Random(7)
    return [(b"k%d" % (i % 20), rng.randbytes(3 * LIMIT if i in BIG else 300)) for i in range(count)]


def small_topic(host: Host, name: str = "out") -> str:
    topic = host.topic(name, 1)
    host.admin.alter_topic_configs(topic, {"max.message.bytes": str(LIMIT)})
    return topic


def topology(source: str, sink: str) -> Any:
    """Each record to a sink that is too small for some, and counted."""
    builder = StreamsBuilder()
    stream = builder.stream(source, key_serde=serdes.bytes, value_serde=serdes.bytes)
    stream.to(sink, name="small-sink")
    stream.group_by_key().count(store="counts", caching=False).to_stream().to(f"{sink}-counts", value_serde=serdes.long)
    return builder.build()


def told(headers: Headers) -> dict[str, str]:
    return {name.removeprefix("__streams.errors."): (text or b"").decode() for name, text in headers}


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_records_too_large_for_their_topic_become_dead_letters_and_everything_else_is_there(host: Host, guarantee: str) -> None:
    source, sink, dead = host.topic("in", 1), small_topic(host), host.topic("dead", 1)
    host.admin.create_topic(f"{sink}-counts", 1)
    host.produce(source, rows())
    deployment = host.deploy(
        topology(source, sink),
        processing_guarantee=guarantee,
        num_stream_threads=1,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name=dead,
    )
    processed(deployment, 500)
    deployment.stop()

    good = [row for number, row in enumerate(rows()) if number not in BIG]
    sent = host.read(sink)
    letters = list(read_all(host, dead).values())
    places = [int(told(headers)["offset"]) for _, _, _, headers in letters]
    if guarantee == "exactly_once_v2":
        assert sent == good
        assert places == list(BIG)
    else:  # what was open when the refusal was found may be there again
        assert set(sent) == set(good)
        assert set(places) == set(BIG)
    for key, value, timestamp, headers in letters:
        about = told(headers)
        assert (key, value) == rows()[int(about["offset"])]
        assert (about["topic"], about["partition"], about["timestamp"]) == (source, "0", str(timestamp))
        assert about["exception"] == "ProductionError"
    most = 25 if guarantee == "exactly_once_v2" else 50
    assert {key: 25 <= count <= most for key, count in decoded(host.table(f"{sink}-counts")).items()} == dict.fromkeys(
        (b"k%d" % i for i in range(20)), True
    )


def test_a_record_too_large_for_its_topic_stops_the_application_and_names_its_source_record(host: Host) -> None:
    source, sink = host.topic("in", 1), small_topic(host)
    host.admin.create_topic(f"{sink}-counts", 1)
    host.produce(source, rows())
    deployment = host.deploy(topology(source, sink), num_stream_threads=1)
    failed(deployment)
    error = deployment.error
    assert error is not None
    assert (error.fields["node"], error.fields["topic"], error.fields["partition"]) == ("small-sink", source, 0)
    assert error.fields["offset"] in BIG[:2]
    assert error.fields["sink_topic"] == sink
    assert all(len(value or b"") < LIMIT for _, value in host.read(sink, settled=False))


@pytest.mark.slow
def test_many_small_records_fit_a_topic_whose_limit_is_below_the_size_of_a_batch(host: Host) -> None:
    source, sink = host.topic("in", 1), small_topic(host)
    host.admin.create_topic(f"{sink}-counts", 1)
    sent = [row for row in rows() if len(row[1]) < LIMIT]
    host.produce(source, sent)
    deployment = host.deploy(topology(source, sink), num_stream_threads=1)
    processed(deployment, len(sent))
    deployment.stop()
    assert host.read(sink) == sent


def test_retry_waits_for_a_topic_that_comes_later_and_writes_each_record_once(host: Host, tmp_path: Path) -> None:
    source, late = host.topic("in", 1), f"{host.name}-late"
    asked = tmp_path / "asked"

    def wait(context: Any, error: Exception) -> Response:
        asked.write_text(f"{type(error).__name__} {context.node} {context.topic} {context.offset}")
        return Response.RETRY

    builder = StreamsBuilder()
    builder.stream(source, key_serde=serdes.bytes, value_serde=serdes.bytes).to(lambda key, value, record: late, name="later")
    host.produce(source, rows(30)[:30])
    deployment = host.deploy(builder.build(), num_stream_threads=1, production_exception_handler=wait)
    settle(asked.exists, "the handler to be asked")
    host.admin.create_topic(late, 1)
    processed(deployment, 30)
    deployment.stop()
    assert asked.read_text() == f"UnknownTopicError later {source} 0"
    assert host.read(late) == rows(30)


@pytest.mark.slow
def test_a_timestamp_that_the_topic_refuses_is_dead_lettered(host: Host) -> None:
    source, sink, dead = host.topic("in", 1), host.topic("out", 1), host.topic("dead", 1)
    host.admin.alter_topic_configs(sink, {"message.timestamp.before.max.ms": "3600000"})
    builder = StreamsBuilder()
    now = int(time.time() * 1000)
    stream = builder.stream(
        source,
        key_serde=serdes.bytes,
        value_serde=serdes.bytes,
        timestamp_extractor=lambda record, partition_time: now - 86_400_000 if record.offset % 10 == 3 else now,
    )
    stream.to(sink)
    host.produce(source, rows(30))
    deployment = host.deploy(
        builder.build(),
        num_stream_threads=1,
        production_exception_handler="continue",
        errors_dead_letter_queue_topic_name=dead,
    )
    processed(deployment, 30)
    deployment.stop()
    assert host.read(sink) == [row for number, row in enumerate(rows(30)) if number % 10 != 3]
    assert [told(headers)["offset"] for _, _, _, headers in read_all(host, dead).values()] == ["3", "13", "23"]
