from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.topology.internal_topics import FOR_EVER, changelog_config, repartition_config
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.host.kafka.admin import Admin, NewTopicSpec
from kstreams_repl.host.kafka.clients import (
    ClientSettings,
    ensure_reachable,
    make_consumer,
    make_producer,
    make_transactional_producer,
)
from kstreams_repl.host.kafka.exact_metadata import fetch_offsets, send_offsets
from kstreams_repl.host.kafka.failures import error_of, is_fenced
from kstreams_repl.host.kafka.group_admin import CommittedOffset
from kstreams_repl.host.kafka.internal_topics import ensure_internal_topics, journal_topic
from kstreams_repl.host.kafka.transactional import TransactionalProducer
from kstreams_repl.system.errors import (
    BrokerUnavailableError,
    ConfigError,
    DeployError,
    InvalidNameError,
    KStreamsError,
    UnknownTopicError,
)
from kstreams_repl.system.types import TopicPartition

pytestmark = pytest.mark.kafka


def test_a_broker_that_answers_is_reachable(settings: ClientSettings) -> None:
    ensure_reachable(settings)


def test_an_address_without_a_broker_is_one_typed_error_within_seconds() -> None:
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1 \(.*[Cc]onnect") as caught:
        ensure_reachable(ClientSettings("127.0.0.1:1"), seconds=2)
    assert "Hint: check the address" in str(caught.value)
    assert caught.value.bootstrap_servers == "127.0.0.1:1"
    assert time.monotonic() - started < 30


def test_settings_the_client_does_not_know_are_a_config_error(settings: ClientSettings) -> None:
    with pytest.raises(ConfigError, match="no.such.setting"):
        make_producer(ClientSettings(settings.bootstrap_servers, {"no.such.setting": "1"}))


def test_a_misspelt_topic_is_answered_with_the_near_one(admin: Admin, topic: Callable[..., str]) -> None:
    name = topic()
    with pytest.raises(UnknownTopicError, match=f"did you mean '{name}'"):
        admin.partitions(name + "x")


def test_a_created_topic_has_its_partitions_configs_and_an_id_that_changes_with_its_life(admin: Admin, name: str) -> None:
    admin.create_topic(name, 3, configs={"cleanup.policy": "compact"})
    assert admin.partitions(name) == 3
    assert admin.topic_configs([name, "missing"])[name]["cleanup.policy"] == "compact"
    first = admin.describe_topics([name, "missing"])
    assert list(first) == [name] and first[name].partitions == 3 and not first[name].internal
    assert admin.delete_topics([name, "missing"]) == (name,)
    admin.create_topic(name, 3)
    assert admin.describe_topics([name])[name].id != first[name].id


def test_creating_a_topic_twice_is_an_error_unless_allowed(admin: Admin, topic: Callable[..., str]) -> None:
    name = topic()
    with pytest.raises(KStreamsError, match="exists already"):
        admin.create_topic(name, 1)
    assert admin.create_topic(name, 1, exist_ok=True) is False


def test_a_name_that_kafka_refuses_is_an_invalid_name(admin: Admin) -> None:
    with pytest.raises(InvalidNameError):
        admin.create_topic("../../x", 1)


def test_partitions_added_are_visible(admin: Admin, topic: Callable[..., str]) -> None:
    name = topic(2)
    admin.add_partitions(name, 5)
    assert admin.partitions(name) == 5


def test_the_producer_places_keys_as_the_engine_does(settings: ClientSettings, topic: Callable[..., str]) -> None:
    name, placed = topic(7), {}
    producer = make_producer(settings)
    keys = [f"key-{n}".encode() for n in range(200)] + [b""]
    for key in keys:
        producer.produce(name, key=key, value=b"v")
    producer.flush(10)
    consumer = make_consumer(settings, group_id="placing")
    consumer.assign([ClientTopicPartition(name, p, 0) for p in range(7)])
    while len(placed) < len(keys):
        placed |= {message.key(): message.partition() for message in consumer.consume(500, 0.1)}
    consumer.close()
    producer.close()
    assert placed == {key: partition_for_key(key, 7) for key in keys}


def test_a_record_that_cannot_be_delivered_calls_back_and_others_do_not(settings: ClientSettings, topic: Callable[..., str]) -> None:
    name, failed = topic(**{"max.message.bytes": "2000"}), []
    producer = make_producer(settings, on_delivery_error=lambda error, message: failed.append((error.name(), message.key())))
    producer.produce(name, key=b"small", value=b"v")
    producer.flush(10)
    producer.produce(name, key=b"large", value=os.urandom(20_000))
    producer.flush(10)
    producer.close()
    assert failed == [("MSG_SIZE_TOO_LARGE", b"large")]


def test_an_open_transaction_ends_read_committed_before_the_log(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    at = TopicPartition(topic(), 0)
    producer = make_transactional_producer(settings, transactional_id=at.topic)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(at.topic, b"v")
    producer.flush(10)
    assert admin.end_offsets([at], isolation="read_committed") == {at: 0}
    assert admin.end_offsets([at], isolation="read_uncommitted") == {at: 1}
    producer.commit_transaction(10)
    settled = admin.settled_end_offsets([at])[at]  # 1 or 2: the commit's marker may still be on its way
    assert 1 <= settled <= admin.end_offsets([at], isolation="read_committed")[at] <= 2
    producer.close()


@pytest.mark.slow
def test_a_transaction_that_stays_open_is_told_apart_from_the_end(settings: ClientSettings, topic: Callable[..., str]) -> None:
    at = TopicPartition(topic(), 0)
    producer = make_transactional_producer(settings, transactional_id=at.topic, transaction_timeout_ms=60_000)
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(at.topic, b"v")
    producer.flush(10)
    with pytest.raises(BrokerUnavailableError, match="open transaction"):
        Admin(settings, seconds=8.0).settled_end_offsets([at])  # less, and a busy machine has not even connected
    producer.abort_transaction(10)
    producer.close()


def test_the_older_holder_of_a_transactional_id_is_fenced(settings: ClientSettings, topic: Callable[..., str]) -> None:


    name = topic()
    old, new = (make_transactional_producer(settings, transactional_id=name) for _ in range(2))
    old.init_transactions(10)
    old.begin_transaction()
    old.produce(name, b"zombie")
    new.init_transactions(10)
    with pytest.raises(KafkaException) as caught:
        old.commit_transaction(10)
    assert is_fenced(caught.value)
    new.close()


def test_offsets_are_committed_for_a_group_without_members(admin: Admin, name: str) -> None:
    admin.create_topic(name, 2)
    wanted = {TopicPartition(name, 0): 7, TopicPartition(name, 1): 0}
    admin.commit_offsets(name, wanted)
    assert admin.committed_offsets(name) == {at: CommittedOffset(offset) for at, offset in wanted.items()}
    admin.commit_offsets(name, {})
    admin.delete_groups([name])


def test_committed_offsets_come_with_their_metadata_and_go_with_the_group(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str], name: str
) -> None:
    at = TopicPartition(topic(2), 1)
    assert admin.committed_offsets(name) == {}
    consumer = make_consumer(settings, group_id=name)
    commit = ClientTopicPartition(at.topic, at.partition, 42, "AgAAAAAAAAAq")
    consumer.commit(offsets=[commit], asynchronous=False)
    consumer.close()
    assert admin.committed_offsets(name) == {at: CommittedOffset(42, "AgAAAAAAAAAq")}
    assert admin.committed_offsets(name, [at, TopicPartition(at.topic, 0)]) == {at: CommittedOffset(42, "AgAAAAAAAAAq")}
    assert name in admin.groups()
    assert admin.delete_groups([name, "no-such-group"]) == (name,)
    assert name not in admin.groups()


def test_committed_metadata_has_exactly_the_bytes_that_were_written(
    settings: ClientSettings, admin: Admin, topic: Callable[..., str], name: str
) -> None:
    """The JVM's text has no zero byte at its end, and refuses one in ours. 24 bytes fill their piece of memory: what is read too far
    begins with the head of the next one."""
    texts = {TopicPartition(log, n): (n, "A" * 4 * n) for log in [topic(40)] for n in range(40)}
    producer = TransactionalProducer(settings, name, timeout_ms=10_000)
    consumer = make_consumer(settings, group_id=name)
    try:
        producer.initialise()
        producer.begin()
        producer.send_offsets(texts, consumer.consumer_group_metadata())
        producer.commit()
        found = fetch_offsets(consumer, texts, 10.0)
    finally:
        producer.close()
        consumer.close()
    assert {told.partition: (told.offset, told.metadata.decode()) for told in found} == texts
    assert admin.committed_offsets(name) == {at: CommittedOffset(*text) for at, text in texts.items()}


def test_offsets_that_the_broker_refuses_are_the_client_s_error(settings: ClientSettings, topic: Callable[..., str], name: str) -> None:
    """A transaction that never began: the same exception as confluent-kafka's own call, with what it says about going on."""
    client = make_transactional_producer(settings, transactional_id=name)
    client.init_transactions(10)
    consumer = make_consumer(settings, group_id=name)
    group = consumer.consumer_group_metadata()
    at = TopicPartition(topic(), 0)
    with pytest.raises(KafkaException) as plain:
        client.send_offsets_to_transaction([ClientTopicPartition(*at, 1)], group, 5)
    with pytest.raises(KafkaException) as ours:
        send_offsets(client, {at: (1, "")}, group, 5)
    consumer.close()
    assert [error_of(each.value).code() for each in (ours, plain)] == [KafkaError._STATE] * 2  # type: ignore[union-attr]
    assert str(ours.value) == str(plain.value)
    with pytest.raises(RuntimeError, match="closed"):
        fetch_offsets(consumer, [at], 1.0)


@pytest.mark.slow
def test_offsets_of_a_transaction_that_nobody_ends_are_told_to_be_that(
    settings: ClientSettings, topic: Callable[..., str], name: str
) -> None:
    """It was "no broker answered", beside a broker that answers every other question."""
    client = make_transactional_producer(settings, transactional_id=name)
    client.init_transactions(10)
    client.begin_transaction()
    consumer = make_consumer(settings, group_id=name)
    at = TopicPartition(topic(), 0)
    client.send_offsets_to_transaction([ClientTopicPartition(*at, 1)], consumer.consumer_group_metadata(), 5)
    consumer.close()
    asking = Admin(settings, seconds=5.0)
    with pytest.raises(BrokerUnavailableError, match="or a transaction with these offsets is open") as told:
        asking.committed_offsets(name, [at])
    assert "find-hanging" in (told.value.hint or "")
    assert asking.committed_offsets(name, [at], stable=False) == {}
    client.commit_transaction(10)
    assert asking.committed_offsets(name, [at]) == {at: CommittedOffset(1)}
    client.close()


def test_purged_records_raise_the_beginning(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    at = TopicPartition(topic(), 0)
    producer = make_producer(settings)
    for _ in range(10):
        producer.produce(at.topic, b"v")
    producer.flush(10)
    producer.close()
    admin.delete_records({at: 4})
    assert admin.beginning_offsets([at]) == {at: 4}
    assert admin.end_offsets([at]) == {at: 10}


def changelog(name: str, kind: StoreKind = StoreKind.TIMESTAMPED_KEY_VALUE, **options: Any) -> NewTopicSpec:
    return NewTopicSpec(name, 2, changelog_config(StoreBuilder("s", kind, **options)))


def test_internal_topics_get_configs_that_keep_what_stores_need(admin: Admin, name: str) -> None:
    specs = [
        NewTopicSpec(f"{name}-repartition", 2, repartition_config()),
        changelog(f"{name}-kv-changelog"),
        changelog(f"{name}-window-changelog", StoreKind.TIMESTAMPED_WINDOW, retention_ms=60_000, window_size_ms=10),
        changelog(f"{name}-join-changelog", StoreKind.WINDOW, retention_ms=60_000, window_size_ms=10, retain_duplicates=True),
        changelog(f"{name}-versioned-changelog", StoreKind.VERSIONED, retention_ms=60_000),
        journal_topic(name),
    ]
    assert set(ensure_internal_topics(admin, specs)) == {spec.name for spec in specs}
    configs = admin.topic_configs(spec.name for spec in specs)
    assert configs[f"{name}-repartition"]["retention.ms"] == "-1"
    assert configs[f"{name}-repartition"]["segment.bytes"] == "52428800"
    assert configs[f"{name}-kv-changelog"]["cleanup.policy"] == "compact"
    assert set(configs[f"{name}-window-changelog"]["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert configs[f"{name}-window-changelog"]["retention.ms"] == FOR_EVER
    assert configs[f"{name}-join-changelog"]["cleanup.policy"] == "delete"
    assert configs[f"{name}-versioned-changelog"]["min.compaction.lag.ms"] == FOR_EVER
    assert configs[f"{name}-journal"]["cleanup.policy"] == "compact"
    assert {config["message.timestamp.type"] for config in configs.values()} == {"CreateTime"}
    assert ensure_internal_topics(admin, specs) == ()


def test_what_is_too_low_of_an_existing_internal_topic_is_raised(admin: Admin, name: str) -> None:
    as_made_by_the_jvm = {"cleanup.policy": "compact,delete", "retention.ms": "86460000"}
    admin.create_topic(name, 2, configs=as_made_by_the_jvm)
    ensure_internal_topics(admin, [changelog(name, StoreKind.TIMESTAMPED_WINDOW, retention_ms=60_000, window_size_ms=10)])
    configs = admin.topic_configs([name])[name]
    assert (configs["retention.ms"], configs["message.timestamp.after.max.ms"]) == (FOR_EVER, FOR_EVER)


def test_an_internal_topic_with_other_partitions_is_refused_and_nothing_is_created(admin: Admin, name: str) -> None:
    admin.create_topic(f"{name}-changelog", 3, configs={"cleanup.policy": "compact"})
    with pytest.raises(DeployError, match="has 3 partitions but the topology needs 2") as caught:
        ensure_internal_topics(admin, [NewTopicSpec(f"{name}-repartition", 2, repartition_config()), changelog(f"{name}-changelog")])
    assert "application.id" in str(caught.value)
    assert f"{name}-repartition" not in admin.topics()


def test_a_changelog_that_would_lose_state_is_refused(admin: Admin, name: str) -> None:
    admin.create_topic(f"{name}-changelog", 2, configs={"cleanup.policy": "delete"})
    with pytest.raises(DeployError, match="cleanup.policy=delete but needs compact"):
        ensure_internal_topics(admin, [changelog(f"{name}-changelog")])


def test_a_record_may_be_as_large_as_of_a_java_producer(settings: ClientSettings, admin: Admin, topic: Callable[..., str]) -> None:
    """The client's own limit is 48 KB lower: an application failed at a record that Kafka Streams sends."""
    target, key = topic(), b"k"
    most = 1_048_576 - 61 - 21  # `max.request.size`, the head of a batch, and the most that a record has beside key and value
    value = random.Random(7).randbytes(most - len(key))
    refused: list[object] = []
    producer = make_producer(settings, on_delivery_error=lambda error, message: refused.append(error))
    producer.produce(target, value, key)
    assert producer.flush(20) == 0
    assert not refused and admin.end_offsets([TopicPartition(target, 0)]) == {TopicPartition(target, 0): 1}
    with pytest.raises(KafkaException, match="too large"):
        producer.produce(target, value + b"1", key)
    producer.close()
