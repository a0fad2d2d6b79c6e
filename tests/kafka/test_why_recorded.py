"""What is not in the records: answers of asynchronous nodes, which are recorded, and punctuations by the wall clock, which are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.admin import Admin
from kstreams_repl.host.kafka.clients import ClientSettings, make_producer
from kstreams_repl.host.kafka.reading import ranges_of, read_ranges
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.views.past.causes.why import why
from kstreams_repl.system.errors import IllegalStateError, InvalidStateStoreError
from kstreams_repl.system.types import TopicPartition
from tests.kafka.as_of_instance import config_of, start
from tests.kafka.test_why import Application

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

NUMBERS: dict[str, Any] = {"key_serde": "string", "value_serde": "long"}
CALLED: list[int] = []


async def priced(value: int) -> int:
    """Answers differently each time."""
    CALLED.append(value)
    return value * 1_000 + len(CALLED)


class Reporting(ks.Processor):
    """Keeps the newest value of each key; forwards that of k1 each 60 ms of the wall clock."""

    def init(self, context: Any) -> None:
        self.context, self.store, self.sent = context, context.get_state_store("newest"), 0
        context.schedule(60, ks.PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Any) -> None:
        self.store.put(record.key, record.value)

    def tick(self, now: int) -> None:
        value = self.store.get("k1")
        if value is not None:
            self.context.forward(ks.Record("k1", value, now))


@pytest.fixture(scope="module", params=[20, 400], ids=["a commit per record", "records and ticks in one commit"])
def app(
    request: pytest.FixtureRequest, admin: Admin, settings: ClientSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    name, root = f"recorded{request.param}", tmp_path_factory.mktemp("recorded")
    CALLED.clear()
    for topic in ("in", "priced", "ticks"):
        admin.create_topic(f"{name}-{topic}", 1)
    builder = ks.StreamsBuilder()
    orders = builder.stream(f"{name}-in", **NUMBERS, name="orders")
    orders.map_values_async(priced, name="price", durable=True, **NUMBERS).to(f"{name}-priced", **NUMBERS, name="to-priced")
    builder.add_state_store(ks.Stores.key_value_store_builder(ks.Stores.persistent_key_value_store("newest"), "string", "long"))
    orders.process(Reporting, stores=["newest"], name="reporting").to(f"{name}-ticks", **NUMBERS, name="to-ticks")
    often = {"commit.interval.ms": request.param, "repl.commit.eager.ms": request.param}
    config = config_of(name, settings.bootstrap_servers, root).with_(**{"repartition.purge.interval.ms": 3_600_000, **often})
    topology = builder.build()
    threads, stop = start(settings, config, topology, 1)
    producer, at = make_producer(settings), TopicPartition(f"{name}-in", 0)
    for number in range(1, 11):
        producer.produce(
            at.topic, ks.serdes.long.serialize(number), f"k{number % 2}".encode(), timestamp=1_700_000_000_000 + number
        )
        assert producer.flush(20) == 0
        time.sleep(0.05)
    producer.close()
    while (done := admin.committed_offsets(name, [at], stable=False).get(at)) is None or done.offset < 10:
        threads[0].join(0.02)
        assert threads[0].is_alive()
    ticks, deadline = TopicPartition(f"{name}-ticks", 0), time.monotonic() + 60
    while admin.end_offsets([ticks])[ticks] < 8:  # each in a transaction of its own, with its marker
        threads[0].join(0.02)
        assert threads[0].is_alive() and time.monotonic() < deadline
    stop()
    threads[0].join(30)
    made: Any = Application(name, topology, config, ClusterClient(settings))
    yield made
    made.client.close()


def records(app: Any, topic: str) -> list[tuple[str, int]]:
    found = []
    for partition, batch in read_ranges(app.client.settings, ranges_of(app.client.admin, f"{app.name}-{topic}")):
        rows = zip(batch.offsets, batch.values, strict=True)
        found += [(f"{partition}@{offset}", ks.serdes.long.deserialize(value)) for offset, value in rows]
    return found


def test_a_recorded_answer_is_used_instead_of_another_call(app: Any) -> None:
    assert len(CALLED) == 10
    for position, value in records(app, "priced"):
        [cause] = why(app, position, all=False, as_of=None, calls=False).causes
        assert (cause.value, cause.path[-1]) == (value // 1_000, "to-priced")
    assert len(CALLED) == 10


def test_a_punctuation_by_the_wall_clock_is_a_tick_with_the_rows_that_it_read(app: Any) -> None:
    found = records(app, "ticks")
    assert len(found) > 3
    for position, value in found[:: len(found) // 3]:
        tick, *read = why(app, position, all=False, as_of=None, calls=False).causes
        assert tick.role == "tick" and tick.path[-2:] == ("reporting", "to-ticks")
        if read:
            assert [(cause.role, cause.value) for cause in read] == [("read by reporting", value)]
        else:  # the last record before the tick is the one that wrote the row
            assert (tick.key, tick.value) == (b"k1", ks.serdes.long.serialize(value))


def test_an_answer_that_is_not_recorded_is_asked_for_only_if_that_is_allowed(app: Any) -> None:
    topic = TopicPartition(f"{app.name}-price-results-changelog", 0)
    assert topic.topic in app.client.admin.topics()
    app.client.admin.delete_records({topic: app.client.admin.end_offsets([topic])[topic]})
    [*_, (position, _)] = records(app, "priced")
    with pytest.raises(IllegalStateError, match="'price' would be called again"):
        why(app, position, all=False, as_of=None, calls=False)
    assert len(CALLED) == 10
    with pytest.raises(InvalidStateStoreError, match="no record is found whose processing sends"):
        why(app, position, all=False, as_of=None, calls=True)  # it answers differently
    assert len(CALLED) > 10


def test_a_json_value_that_went_on_under_another_key_as_it_was_read_is_found(
    admin: Admin, settings: ClientSettings, tmp_path: Path
) -> None:
    """Processed again, it would be written without the blanks."""
    name, texts = "resent", {"key_serde": "string", "value_serde": "json"}
    admin.create_topic(f"{name}-in", 1)
    builder = ks.StreamsBuilder()
    rows = builder.stream(f"{name}-in", **texts).select_key(lambda key, value: value["group"])
    rows.group_by_key(**texts).aggregate(lambda: 0, lambda key, value, total: total + value["n"], store="sums", value_serde="long")
    topology, config = builder.build(), config_of(name, settings.bootstrap_servers, tmp_path)
    threads, stop = start(settings, config.with_(**{"repartition.purge.interval.ms": 3_600_000}), topology, 1)
    values = [b'{"n": 1, "group": "a"}', b'{"n":1,"group":"a"}', b'{"n": 4, "group": "a"}']
    values = [value for each in values for value in (each, *[b'{"n": 2, "group": "b"}'] * 200)]  # loops are for many records
    producer = make_producer(settings)
    for value in values:
        producer.produce(f"{name}-in", value, b"k", timestamp=1_700_000_000_000)
    assert producer.flush(20) == 0
    producer.close()
    at = TopicPartition(f"{name}-in", 0)
    while (done := admin.committed_offsets(name, [at], stable=False).get(at)) is None or done.offset < len(values):
        threads[0].join(0.02)
        assert threads[0].is_alive()
    [between] = [topic for topic in admin.topics(internal=True) if topic.startswith(name) and topic.endswith("-repartition")]
    read = TopicPartition(between, 0)
    while (done := admin.committed_offsets(name, [read], stable=False).get(read)) is None or done.offset < len(values):
        threads[0].join(0.02)
        assert threads[0].is_alive()
    stop()
    threads[0].join(30)
    made: Any = Application(name, topology, config, ClusterClient(settings))
    try:
        sent = [value for _, batch in read_ranges(settings, ranges_of(admin, between)) for value in batch.values]
        assert values[402] in sent and values[0] in sent  # as they were read
        for all, expected in ((False, [4]), (True, [4, 1, 1])):
            causes = why(made, "sums", "a", all=all, as_of=None, calls=False).causes
            assert [cause.value["n"] for cause in causes] == expected
        assert sorted(cause.position.offset for cause in causes) == [0, 201, 402]
    finally:
        made.client.close()
