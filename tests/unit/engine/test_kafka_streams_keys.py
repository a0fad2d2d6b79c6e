"""Every configuration key of Kafka Streams is taken, or refused with what to use instead.

The keys are those of its `StreamsConfig.configDef()`, written by a JVM.
"""

from __future__ import annotations

import pytest

from kstreams_repl import serdes, timestamps
from kstreams_repl.engine import kafka_streams_keys as tables
from kstreams_repl.engine.config import KEYS, StreamsConfig
from kstreams_repl.host.instance.application_plan import client_settings
from kstreams_repl.host.kafka.clients import make_consumer, make_producer
from kstreams_repl.system.errors import ConfigError
from tests.api_coverage import all_config_keys

ALL = all_config_keys()
JAVA = "org.apache.kafka"


@pytest.mark.parametrize("key", ALL)
def test_each_key_is_in_one_table(key: str) -> None:
    known = (KEYS, tables.RENAMED, tables.CLIENT, tables.WITHOUT_EFFECT, tables.REFUSED, {"security.protocol"})
    assert len([table for table in known if key in table]) == 1


def test_the_tables_have_no_other_keys() -> None:
    assert {*tables.RENAMED, *tables.CLIENT, *tables.WITHOUT_EFFECT, *tables.REFUSED} <= set(ALL)
    assert set(tables.RENAMED.values()) <= set(KEYS)


@pytest.mark.parametrize("key", sorted(tables.REFUSED))
def test_what_is_refused_says_what_to_use(key: str) -> None:
    with pytest.raises(ConfigError, match="is not supported here") as caught:
        StreamsConfig({key: "something"})
    assert caught.value.hint == tables.REFUSED[key] and caught.value.fields["key"] == key


@pytest.mark.parametrize("key", sorted(tables.WITHOUT_EFFECT))
def test_what_has_no_effect_is_taken_and_says_so(key: str) -> None:
    values, why = tables.WITHOUT_EFFECT[key]
    config = StreamsConfig({key: values[0] if values else "1", "commit.interval.ms": 7})
    assert config.unused == {key: why} and config["commit.interval.ms"] == 7 and not config.client
    if values:
        with pytest.raises(ConfigError, match="is not supported here"):
            StreamsConfig({key: "something else"})


def test_older_names_are_read_as_the_newer_ones() -> None:
    config = StreamsConfig(
        {
            "cache.max.bytes.buffering": 0,
            "default.deserialization.exception.handler": f"{JAVA}.streams.errors.LogAndContinueExceptionHandler",
            "default.production.exception.handler": f"{JAVA}.streams.errors.DefaultProductionExceptionHandler",
            "dsl.store.suppliers.class": f"{JAVA}.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
        }
    )
    assert config["statestore.cache.max.bytes"] == 0 and config["default.dsl.store"] == "in_memory"
    assert config["deserialization.exception.handler"].endswith("LogAndContinueExceptionHandler")
    assert StreamsConfig({"cache.max.bytes.buffering": 0, "statestore.cache.max.bytes": 5})["statestore.cache.max.bytes"] == 5


def test_class_names_of_the_jvm_are_read() -> None:
    config = StreamsConfig(
        {
            "default.key.serde": f"{JAVA}.common.serialization.Serdes$LongSerde",
            "default.value.serde": f"{JAVA}.common.serialization.Serdes$StringSerde",
            "default.timestamp.extractor": f"{JAVA}.streams.processor.WallclockTimestampExtractor",
        }
    )
    assert serdes.resolve(config["default.key.serde"]) is serdes.long
    assert serdes.resolve(config["default.value.serde"]) is serdes.string
    assert config["default.timestamp.extractor"] is timestamps.wall_clock_timestamp


def test_client_settings_without_a_prefix_reach_the_clients_under_librdkafkas_names() -> None:
    given = {
        "client.id": "me", "enable.metrics.push": False,
        "receive.buffer.bytes": 70_000, "send.buffer.bytes": 70_000, "request.timeout.ms": 9_000, "retry.backoff.ms": 77,
        "reconnect.backoff.ms": 60, "reconnect.backoff.max.ms": 900, "metadata.max.age.ms": 60_000, "connections.max.idle.ms": 70_000,
        "metadata.recovery.strategy": "rebootstrap", "metadata.recovery.rebootstrap.trigger.ms": 100_000,
    }  # fmt: skip
    assert set(given) == set(tables.CLIENT)
    config = StreamsConfig({**given, "bootstrap.servers": "127.0.0.1:1"})
    settings = client_settings(config.with_(commit_interval_ms=9))
    assert settings.properties == {tables.CLIENT[name]: value for name, value in given.items()}
    make_producer(settings).purge()
    make_consumer(settings, group_id="g").close()


def test_a_key_that_nobody_knows_is_still_refused() -> None:
    with pytest.raises(ConfigError, match="unknown configuration key"):
        StreamsConfig({"task.timeout": 1})
