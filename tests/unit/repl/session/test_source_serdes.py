"""What a session knows of a topic is how its topologies read it, once and for all; the small cluster stands for broker and Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.serdes.by_topic import SETTING, parse, write
from kstreams_repl.engine.topology.nodes import SinkNode, SourceNode
from kstreams_repl.host.journal.journal_state import JournalState
from kstreams_repl.host.kafka.admin import NewTopicSpec
from kstreams_repl.repl.session.application.starting import journal_lookup
from kstreams_repl.repl.session.topics.source_serdes import built_with_serdes
from kstreams_repl.system.errors import ConfigError
from tests.unit.repl.session.small_cluster import PARTITIONS, SmallCluster, SmallSession


@pytest.fixture
def session(tmp_path: Path) -> SmallSession:
    cluster = SmallCluster()
    cluster.create_topics([NewTopicSpec(name, PARTITIONS) for name in ("orders", "customers", "out")])
    return SmallSession(cluster, tmp_path)


@pytest.fixture
def gone_kernel(session: SmallSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application ran in a process that is gone: its journal is there."""
    session._cluster.create_topics([NewTopicSpec("app-journal", 1)])
    monkeypatch.setattr(journal_lookup, "journal_of", lambda client, name: client.admin.journal or JournalState())


def counting() -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    builder.stream("orders").filter(lambda key, value: True).group_by_key().count(store="n")
    return builder


def read_with(topology: Any, topic: str) -> tuple[Any, Any]:
    node = next(node for node in topology.nodes.values() if isinstance(node, SourceNode) and topic in node.topics)
    return node.key_serde, node.value_serde


def test_a_source_reads_as_the_session_produced_and_what_follows_inherits_it(session: SmallSession) -> None:
    session.client.serdes.remember("orders", serdes.string, serdes.json)
    builder = counting()
    builder.stream("customers", key_serde="bytes", value_serde="bytes").to("out")
    builder.stream("orders").map_values(lambda value: value).to("out")
    before = str(builder.build().describe())
    app = session.deploy(builder, "app")
    assert read_with(app.topology, "orders") == (serdes.string, serdes.json)
    assert read_with(app.topology, "customers") == (serdes.bytes_, serdes.bytes_), "what was given is not overruled"
    assert app.topology.stores["n"].key_serde is serdes.string, "the store inherits the key's serde"
    assert any(isinstance(node, SinkNode) and node.key_serde is serdes.string for node in app.topology.nodes.values())
    assert str(app.describe()) == before, "Kafka Streams' own text has no serdes"
    app.resume()  # in this process, where two cannot open a store at the same time
    assert "string keys and json values" in app.picture().marks["node:KSTREAM-SOURCE-0000000000"].lines
    assert "orders is read as string keys and json values" in "\n".join(session.told)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def told(session: SmallSession) -> None:
    session.told = []  # type: ignore[attr-defined]
    session.client.report = session.told.append  # type: ignore[attr-defined]


def test_the_serdes_are_recorded_and_hold_whatever_the_session_learns(session: SmallSession, gone_kernel: None, tmp_path: Path) -> None:
    session.client.serdes.remember("orders", serdes.string, serdes.json)
    app = session.deploy(counting(), "app")
    assert app.versions[-1].source.splitlines()[0] == '# config: {"repl.source.serdes": "orders=string:json"}'
    session.client.serdes.remember("orders", serdes.long, serdes.string)
    assert app.edit(counting(), dry_run=True).diff.empty
    app.stop()
    again = session.deploy(counting(), "app")
    assert read_with(again.topology, "orders") == (serdes.string, serdes.json)
    again.stop()
    other = SmallSession(session._cluster, tmp_path)
    for how in (None, counting()):
        attached = other.attach("app", how)
        assert read_with(attached.topology, "orders") == (serdes.string, serdes.json)
        other._applications.clear()
    deployed = other.deploy(counting(), "app")
    assert read_with(deployed.topology, "orders") == (serdes.string, serdes.json)


def test_without_its_session_file_an_application_reads_as_before(session: SmallSession, gone_kernel: None, tmp_path: Path) -> None:
    session.client.serdes.remember("orders", serdes.string, serdes.json)
    session.deploy(counting(), "app").stop()
    session.files.remove("app")
    other = SmallSession(session._cluster, tmp_path)
    assert read_with(other.attach("app", counting()).topology, "orders") == (serdes.string, serdes.json)


def test_an_application_that_reads_bytes_goes_on_with_bytes(session: SmallSession) -> None:
    app = session.deploy(counting(), "app")
    assert read_with(app.topology, "orders") == (None, None)
    session.client.serdes.remember("orders", serdes.string, serdes.json)
    session.client.serdes.remember("customers", None, serdes.json)
    builder = counting()
    builder.stream("customers").to("out")
    plan = app.edit(builder)
    assert plan.applied and not plan.diff.refused
    assert read_with(app.topology, "orders") == (None, None), "its rows have these keys"
    assert read_with(app.topology, "customers") == (None, serdes.json), "a topic that is new is known"
    assert app.config[SETTING] == "customers=:json"
    app.stop()
    assert read_with(session.deploy(builder, "app").topology, "orders") == (None, None)


def test_a_default_that_was_set_and_a_finished_topology_are_left_alone(session: SmallSession) -> None:
    session.client.serdes.remember("orders", serdes.string, serdes.json)
    app = session.deploy(counting(), "app", config={"default.value.serde": "bytes"})
    assert read_with(app.topology, "orders") == (serdes.string, None)
    assert read_with(session.deploy(counting().build(), "other").topology, "orders") == (None, None)
    explicit = session.deploy(counting(), "third", config={SETTING: "orders=bytes:bytes"})
    assert read_with(explicit.topology, "orders") == (serdes.bytes_, serdes.bytes_)


def test_serdes_without_a_name_and_topics_that_differ_are_not_filled_in(session: SmallSession) -> None:
    own = serdes.Serde(lambda value: b"", lambda data: "", name="json")
    session.client.serdes.remember("orders", serdes.string, own)
    session.client.serdes.remember("customers", serdes.long, own)
    builder = ks.StreamsBuilder()
    builder.stream(["orders", "customers"]).to("out")
    topology, config = built_with_serdes(session.client, builder, session.client.application_config("app", {}))
    assert read_with(topology, "orders") == (None, None) and config[SETTING] == "customers=long:, orders=string:"


@pytest.mark.parametrize("text", ["orders", "orders=json", "orders=jsonn:", "or ders=:json", "orders=:json;words=:string"])
def test_a_setting_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        StreamsConfig({SETTING: text})


def test_the_setting_is_written_as_it_is_read() -> None:
    text = "a=:json, b=string:"
    assert write(parse(text)) == text and parse(None) == parse("") == {}
