"""Discovery: where each partition is, folded from the journal, followed through moves, without a question to anybody."""

from __future__ import annotations

from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.host.instance.metadata import HostInfo, KeyQueryMetadata, LagInfo, StreamsMetadata
from kstreams_repl.host.journal.journal_records import ServerAddress, decode, encode
from kstreams_repl.serving.remote.discovery import Discovery
from kstreams_repl.system.errors import InvalidStateStoreError, SerializationError
from tests.unit.serving.serving import Journal

TASKS = {"0": ("0_0", "0_2"), "1": ("0_1", "0_3")}


def discovery(journal: Journal) -> Discovery:
    builder = ks.StreamsBuilder()
    words = builder.stream("words", key_serde="string", value_serde="string")
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts")
    builder.global_table("names", key_serde="string", value_serde="string", store="names")
    topology = builder.build()
    config = ks.StreamsConfig({"application.id": "app"})
    return Discovery("app", topology.subtopologies(), topology.internal_topics, config, lambda: journal.state)


def two_hosts() -> Journal:
    return Journal().assign(TASKS, standbys={"1": ("0_0",)}).claim(0, "a").claim(1, "b").serve("a", 8001).serve("b", 8002)


def test_each_host_has_its_stores_partitions_and_standby_copies() -> None:
    a, b = discovery(two_hosts()).metadata_for_all_clients()
    assert a.host_info == HostInfo("127.0.0.1", 8001) and a.place == "a" and (a.host, a.port) == ("127.0.0.1", 8001)
    assert a.topic_partitions == {("words", 0), ("words", 2)} and a.state_store_names == {"counts", "names"}
    assert a.standby_state_store_names == frozenset() == a.standby_topic_partitions
    assert b.standby_state_store_names == {"counts"} and b.standby_topic_partitions == {("words", 0)}
    assert b.plain()["standby_partitions"] == ["words-0"]


def test_a_key_is_where_javas_partitioner_puts_it() -> None:
    found = discovery(two_hosts())
    for key in map(str, range(200)):
        where = found.query_metadata_for_key("counts", key)
        partition = partition_for_key(key.encode(), 4)
        assert where.partition == partition and where.active_host.port == (8001 if partition in (0, 2) else 8002)
        assert where.standby_hosts == ({HostInfo("127.0.0.1", 8002)} if partition == 0 else frozenset())


def test_a_serializer_and_a_partitioner_can_be_given() -> None:
    found = discovery(two_hosts())
    assert found.query_metadata_for_key("counts", 7, serializer=ks.serdes.long).partition == partition_for_key((7).to_bytes(8, "big"), 4)
    asked: list[Any] = []

    def partitioner(topic: str, key: Any, value: Any, count: int) -> int:
        asked.append((topic, key, value, count))
        return 3

    where = found.query_metadata_for_key("counts", "x", partitioner=partitioner)
    assert where == KeyQueryMetadata(HostInfo("127.0.0.1", 8002), frozenset(), 3)
    assert asked == [("words", "x", None, 4)]
    assert found.query_metadata_for_key("counts", "x", partitioner=lambda *_: {1}).partition == 1


def test_it_follows_a_slot_that_moves_and_a_server_that_ends() -> None:
    journal = two_hosts()
    found = discovery(journal)
    key = next(key for key in map(str, range(99)) if partition_for_key(key.encode(), 4) == 1)
    assert found.query_metadata_for_key("counts", key).active_host.port == 8002
    journal.claim(1, "c", epoch=1)
    assert found.query_metadata_for_key("counts", key) == KeyQueryMetadata(StreamsMetadata.UNKNOWN, frozenset(), 1)
    assert not found.query_metadata_for_key("counts", key).is_available
    journal.serve("c", 8003)
    assert found.query_metadata_for_key("counts", key).active_host.port == 8003
    journal.serve("c", 0)
    assert found.query_metadata_for_key("counts", key).active_host.port == -1
    journal.assign(TASKS, generation=2)  # a generation without claims yet: nobody is known to run it
    journal.serve("driver", 8009, generation=2)
    assert found.query_metadata_for_key("counts", key).active_host.port == 8009


def test_before_the_first_start_nothing_is_available() -> None:
    found = discovery(Journal())
    assert found.metadata_for_all_clients() == [] and found.partitions_of("counts") == 0
    assert found.query_metadata_for_key("counts", "a") is KeyQueryMetadata.NOT_AVAILABLE


def test_every_host_has_a_global_store_and_an_unknown_store_is_an_error() -> None:
    found = discovery(two_hosts())
    assert [host.place for host in found.streams_metadata_for_store("names")] == ["a", "b"]
    assert found.query_metadata_for_key("names", "x").active_host.port == 8001
    with pytest.raises(InvalidStateStoreError, match="no store 'count'") as caught:
        found.streams_metadata_for_store("count")
    assert caught.value.hint == "did you mean 'counts'?"


def test_the_journal_refuses_an_address_that_is_none() -> None:
    record = ServerAddress(1, "a", "127.0.0.1", 80)
    assert decode(*encode(record))[1] == record
    for bad in (
        ServerAddress(1, "a", "127.0.0.1", 70_000),
        ServerAddress(1, "a", "evil.example/path?x=", 80),
        ServerAddress(1, "../x", "h", 80),
        ServerAddress(1, "a", "user@host", 80),
    ):
        with pytest.raises(SerializationError):
            decode(*encode(bad))


@pytest.mark.parametrize("text", ["", "8081", "host:", ":1", "host:99999", "ho st:1", "a:b:1", "http://h:1/x"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ks.errors.ConfigError, match="expected host:port"):
        HostInfo.build_from_endpoint(text)


def test_addresses_print_as_they_are_asked() -> None:
    assert str(HostInfo.build_from_endpoint("[::1]:80")) == "[::1]:80" and HostInfo("::1", 80, True).url == "https://[::1]:80"
    assert HostInfo.build_from_endpoint("http://h:1/") == HostInfo("h", 1) and LagInfo(10, 7).offset_lag == 0
