"""Every entry of `golden.json` is checked, one by one; an entry that nobody checks fails here, and so does a check without an entry."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kstreams_repl import serdes
from kstreams_repl.engine.commit.offset_metadata import decode, encode
from kstreams_repl.engine.config import KEYS
from kstreams_repl.engine.partitioning import murmur2, partitioner
from kstreams_repl.engine.processor.record_context import RecordContext
from kstreams_repl.engine.runtime.queues.java_queue import JavaPriorityQueue
from kstreams_repl.engine.serdes.change import change
from kstreams_repl.engine.serdes.foreign_key import (
    Subscription,
    SubscriptionResponse,
    hash128,
    subscription,
    subscription_response,
)
from kstreams_repl.engine.stores.engine.memory import MemoryEnvironment
from kstreams_repl.engine.stores.factory import open_store
from kstreams_repl.engine.stores.kinds.outer_join import side_key
from kstreams_repl.engine.stores.layers.codec import Codec
from kstreams_repl.engine.topology.description.java_order import hash_set_order, string_hash
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.types import Windowed

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "golden.json").read_text(encoding="utf-8"))
HASH = struct.pack(">qq", 1, 2)


def logged(builder: StoreBuilder, work: Callable[[Any], None]) -> tuple[list[bytes], list[bytes]]:
    """Keys and values that the store writes to its changelog."""
    keys: list[bytes] = []
    values: list[bytes] = []

    def send(key: bytes, value: bytes, timestamp: int, headers: Any, partition: int | None) -> None:
        keys.append(key)
        values.append(value)

    context = RecordContext()
    context.timestamp = 5
    store: Any = open_store(builder, MemoryEnvironment(), record_context=context, send=send)  # type: ignore[arg-type]
    work(store)
    store.flush()
    return keys, values


def window_key() -> str:
    builder = StoreBuilder(
        "w",
        StoreKind.WINDOW,
        serdes.string,
        serdes.string,
        retention_ms=10_000,
        window_size_ms=10,
        retain_duplicates=True,
    )

    def seven_times(store: Any) -> None:
        for _ in range(7):
            store.put("a", "v", 1000)

    return logged(builder, seven_times)[0][-1].hex()


def session_key() -> str:
    builder = StoreBuilder("s", StoreKind.SESSION, serdes.string, serdes.string, retention_ms=10_000)
    return logged(builder, lambda store: store.put(Windowed("a", 10, 20), "v"))[0][-1].hex()


def parked_value(left: bool) -> str:
    """One item of the list that the store of a left or outer join keeps, without the list's own bytes."""
    options = {"left_serde": serdes.string, "right_serde": serdes.string}
    builder = StoreBuilder("o", StoreKind.OUTER_JOIN, serdes.string, retention_ms=10_000, options=options)
    return logged(builder, lambda store: store.put(9, left, "a", "v"))[1][-1][9:].hex()


def written(serde: Any, value: Any) -> str:
    data = serde.serialize(value)
    assert data is not None
    return str(data.hex())


def wrapper(instruction: int) -> Callable[[], str]:
    return lambda: written(subscription(serdes.string), Subscription(HASH, instruction, "a", 3))


BYTES: dict[str, Callable[[], str]] = {
    "window_store_key(a,start=1000,seq=7)": window_key,
    "session_store_key(a,[10,20])": session_key,
    "time_windowed_serde(a@1000)": lambda: written(serdes.time_windowed(serdes.string, 10), Windowed("a", 1000, 1010)),
    "session_windowed_serde(a@[10,20])": lambda: written(serdes.session_windowed(serdes.string), Windowed("a", 10, 20)),
    "value_and_timestamp(v,5)": lambda: Codec(serdes.string, timestamped=True).encode(("v", 5)).hex(),
    "long(258)": lambda: written(serdes.long, 258),
    "timestamped_key_join_side(left,a,9)": lambda: side_key(9, True, b"a").hex(),
    "timestamped_key_join_side(right,a,9)": lambda: side_key(9, False, b"a").hex(),
    "left_or_right_value(left,v)": lambda: parked_value(True),
    "left_or_right_value(right,v)": lambda: parked_value(False),
    "changed_serializer(n<-null)": lambda: written(change(serdes.string), ("n", None, True)),
    "changed_serializer(null<-o)": lambda: written(change(serdes.string), (None, "o", True)),
    "changed_serializer(n<-o)": lambda: written(change(serdes.string), ("n", "o", True)),
    "subscription_wrapper(hash=[1,2],DELETE_KEY_NO_PROPAGATE,pk=a,part=3)": wrapper(0),
    "subscription_wrapper(hash=[1,2],DELETE_KEY_AND_PROPAGATE,pk=a,part=3)": wrapper(1),
    "subscription_wrapper(hash=[1,2],PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE,pk=a,part=3)": wrapper(2),
    "subscription_wrapper(hash=[1,2],PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE,pk=a,part=3)": wrapper(3),
    "subscription_wrapper(null hash)": lambda: written(subscription(serdes.string), Subscription(None, 0, "a", 3)),
    "subscription_response(hash=[1,2],v,part=3)": lambda: written(
        subscription_response(serdes.string), SubscriptionResponse(HASH, "v", 3)
    ),
    "topic_partition_metadata(partitionTime=42,empty)": lambda: encode(42),
}
"""By entry: how we make the same bytes (as hex) or text."""

OTHERS = {
    "hash",
    "java_string_hash",
    "priority_queue_order_of_n_equal_elements",
    "hash_set_order_of_first_n_mapvalues_names",
    "config_defaults",
    "processing_threads_default",
    "processing_threads_key",
}
"""Entries with a test of their own below."""


def test_every_entry_is_checked_and_every_check_has_its_entry() -> None:
    assert set(GOLDEN) == set(BYTES) | OTHERS


@pytest.mark.parametrize("entry", BYTES)
def test_bytes_equal_the_jvm_s(entry: str) -> None:
    assert BYTES[entry]() == GOLDEN[entry]


def test_the_jvm_s_offset_metadata_is_read() -> None:
    assert decode(GOLDEN["topic_partition_metadata(partitionTime=42,empty)"]).partition_time == 42


@pytest.mark.parametrize("vector", GOLDEN["hash"], ids=lambda vector: vector["key"] or "empty")
def test_hashes_and_partitions_equal_the_jvm_s(vector: dict[str, Any]) -> None:
    key = bytes.fromhex(vector["key"])
    ours = {
        "key": vector["key"],
        "murmur2": murmur2(key),
        "murmur3_128": list(struct.unpack(">qq", hash128(key))),
        "p3": partitioner(3)(key),
        "p12": partitioner(12)(key),
    }
    assert ours == vector


@pytest.mark.parametrize("text", GOLDEN["java_string_hash"])
def test_text_hashes_equal_the_jvm_s(text: str) -> None:
    assert string_hash(text) == GOLDEN["java_string_hash"][text] & 0xFFFFFFFF


@pytest.mark.parametrize("count", GOLDEN["priority_queue_order_of_n_equal_elements"])
def test_equal_elements_leave_a_queue_in_the_jvm_s_order(count: str) -> None:
    queue: JavaPriorityQueue[int] = JavaPriorityQueue(lambda item: 0)
    for item in range(1, int(count) + 1):
        queue.offer(item)
    assert [queue.poll() for _ in range(int(count))] == GOLDEN["priority_queue_order_of_n_equal_elements"][count]


@pytest.mark.parametrize(
    ("count", "order"), GOLDEN["hash_set_order_of_first_n_mapvalues_names"], ids=lambda value: str(value)[:12]
)
def test_names_have_the_order_of_the_jvm_s_hash_sets(count: int, order: list[str]) -> None:
    assert hash_set_order(f"KSTREAM-MAPVALUES-{number:010d}" for number in range(count)) == order


# ---- configuration -------------------------------------------------------------------------------------------------------------------

SAME_MEANING = {
    "application.id": ("(required)", None),
    "bootstrap.servers": ("(required)", None),
    "application.server": ("", None),
    "default.dsl.store": ("rocksDB", "lmdb"),
    "default.key.serde": ("null", None),
    "default.value.serde": ("null", None),
    "default.timestamp.extractor": ("class org.apache.kafka.streams.processor.FailOnInvalidTimestamp", None),
    "deserialization.exception.handler": ("class org.apache.kafka.streams.errors.LogAndFailExceptionHandler", "fail"),
    "processing.exception.handler": ("class org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler", "fail"),
    "production.exception.handler": ("class org.apache.kafka.streams.errors.DefaultProductionExceptionHandler", "fail"),
    "errors.dead.letter.queue.topic.name": ("null", None),
    "state.dir": ("/tmp/kafka-streams", None),
    "processing.exception.handler.global.enabled": ("false", False),
}
"""Defaults that are written differently: (the JVM's, ours)."""
DIVERGENCES = {"commit.interval.ms": ("30000", 100)}
"""docs/reference/divergences.md has the reason."""
NOT_OURS = set(
    """acceptable.recovery.lag allow.os.group.write.access built.in.metrics.version cache.max.bytes.buffering client.id config.providers
    connections.max.idle.ms default.client.supplier default.deserialization.exception.handler default.list.key.serde.inner
    default.list.key.serde.type default.list.value.serde.inner default.list.value.serde.type default.production.exception.handler
    dsl.store.suppliers.class enable.metrics.push ensure.explicit.internal.resource.naming group.protocol
    log.summary.interval.ms max.warmup.replicas metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    metric.reporters poll.ms probing.rebalance.interval.ms processor.wrapper.class rack.aware.assignment.non_overlap_cost
    rack.aware.assignment.strategy rack.aware.assignment.tags rack.aware.assignment.traffic_cost receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retry.backoff.ms rocksdb.config.setter
    security.protocol send.buffer.bytes state.cleanup.dir.max.age.ms task.assignor.class task.timeout.ms upgrade.from window.size.ms
    windowed.inner.class.serde windowstore.changelog.additional.retention.ms""".split()
)
"""Of Java's clients, of RocksDB, of the group protocol, deprecated names: refused here with the nearest key that there is."""


@pytest.mark.parametrize("key", GOLDEN["config_defaults"])
def test_a_default_equals_the_jvm_s_or_differs_on_purpose(key: str) -> None:
    theirs = GOLDEN["config_defaults"][key]
    if key in NOT_OURS:
        assert key not in KEYS, "it is a key of ours now: compare its default"
        return
    ours = KEYS[key].default
    written_differently = SAME_MEANING.get(key) or DIVERGENCES.get(key)
    assert (theirs, ours) == (written_differently or (theirs, type(ours)(theirs)))


def test_processing_threads_are_off_by_default_as_on_the_jvm() -> None:
    assert GOLDEN["processing_threads_default"] is False
    assert GOLDEN["processing_threads_key"] == "__processing.threads.enabled__"
    assert KEYS["num.processing.threads"].default == 1
