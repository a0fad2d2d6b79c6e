"""The Kafka Streams peer, as far as it needs no broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstreams_repl.host.kafka.embedded.jars import locked_jars
from kstreams_repl.system.errors import KStreamsError
from workshop.bench.peers import kafka_streams
from workshop.bench.peers.kafka_streams import KafkaStreamsPeer, chosen_jdk, find_jdk, peer_jars


def test_without_a_compiler_there_is_no_jdk(tmp_path: Path) -> None:
    assert find_jdk({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}) is None
    assert find_jdk({}) is None


def fake_jdk(home: Path, says: str, *, status: int = 0) -> Path:
    (home / "bin").mkdir(parents=True)
    for tool in ("java", "javac"):
        script = home / "bin" / tool
        script.write_text(f"#!/bin/sh\necho '{says}'\necho 'no such class' >&2\nexit {status}\n")
        script.chmod(0o755)
    return home


def test_an_old_jdk_is_passed_over_for_one_on_the_path(tmp_path: Path) -> None:
    old, new = fake_jdk(tmp_path / "old", "javac 11.0.2"), fake_jdk(tmp_path / "new", "javac 21.0.1")
    assert find_jdk({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new
    assert find_jdk({"JAVA_HOME": str(old), "PATH": ""}) is None


def test_a_source_that_does_not_compile_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classes = tmp_path / "classes"
    classes.mkdir()
    monkeypatch.setattr(kafka_streams.tempfile, "mkdtemp", lambda prefix, dir: str(classes))
    with pytest.raises(KStreamsError, match="no such class"):
        KafkaStreamsPeer(fake_jdk(tmp_path / "jdk", "javac 21", status=1), jars=())
    assert not classes.exists()


def test_peer_uses_the_brokers_own_jars_where_both_need_one() -> None:
    of_broker = {(jar.group, jar.artifact): jar for jar in locked_jars()}
    shared = [jar for jar in peer_jars() if (jar.group, jar.artifact) in of_broker]
    own = {jar.artifact for jar in peer_jars()} - {jar.artifact for jar in shared}
    assert own == {"kafka-streams", "rocksdbjni", "avro", "protobuf-java"}
    assert [jar.artifact for jar in shared if of_broker[jar.group, jar.artifact] != jar] == ["kafka-clients"]  # of Kafka Streams' version
    assert any(jar.artifact == "kafka-streams" and jar.version == "4.3.1" for jar in peer_jars())


def test_without_a_jdk_the_peer_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(kafka_streams, "find_jdk", lambda: None)
    assert chosen_jdk("kafka-streams") is None
    assert "no JDK" in capsys.readouterr().err


def test_a_peer_that_nobody_asked_for_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_streams, "find_jdk", lambda: pytest.fail("looked for"))
    assert chosen_jdk(None) is None
