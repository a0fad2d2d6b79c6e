"""Savepoints on a real broker and real Spark: state and offsets as of one commit, and applications that begin there."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import AlreadyOwnedError, DeployError, KStreamsError, RecordingError, TopologyError
from tests.spark.hosting import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50}
MINUTE = 60_000


@pytest.fixture
def session(broker: Any, spark: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), spark=spark, directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def topology(topic: str, out: str, *, value_serde: str = "long") -> ks.StreamsBuilder:
    """A re-keyed count, windows of a minute that are held back until they close, a versioned table."""
    builder = ks.StreamsBuilder()
    words = builder.stream(topic, key_serde="string", value_serde="string")
    by_word = words.group_by(lambda key, value: value, key_serde="string", value_serde="string", name="by-word")
    by_word.aggregate(lambda: 0, lambda key, value, so_far: so_far + 1, store="words", value_serde=value_serde)
    windows = words.group_by_key(key_serde="string", value_serde="string").windowed_by(
        ks.TimeWindows.of_size(MINUTE)
    )
    closed = windows.count(store="minutes").suppress(ks.Suppressed.until_window_closes())
    closed.to_stream().select_key(lambda key, value: f"{key.key}@{key.start}").to(
        out, key_serde="string", value_serde="long"
    )
    return builder


def records(first: int, last: int) -> list[tuple[str, str, int]]:
    return [(f"k{n % 7}", f"word{n % 5}", 1_000 + n * 900) for n in range(first, last)]


def state(app: ks.Application) -> tuple[dict[str, int], list[Any]]:
    words = {f"word{n}": app.store("words").get(f"word{n}") for n in range(5)}
    minutes = app.sql("minutes").df()[["key", "window_start", "value"]]
    return words, sorted(minutes.itertuples(index=False, name=None))


def results(session: ks.Session, topic: str) -> list[tuple[str, int]]:
    return sorted((record.key, record.value) for record in session.read(topic, None, key_serde="string", value_serde="long"))


@pytest.mark.slow
def test_an_application_starts_from_a_savepoint_and_counts_each_later_record_once(session: ks.Session) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic, out = f"{name}-in", f"{name}-out"
    session.create_topic(out, partitions=1)
    session.produce(topic, records(0, 300), partitions=2)
    app = session.deploy(topology(topic, out), name, config=EXACTLY_ONCE)
    assert app.wait(120)
    saved = app.savepoint("first")
    assert app.status == "running" and set(saved.stores) >= {"words", "minutes"}
    with pytest.raises(KStreamsError, match="already"):
        app.savepoint("first")
    before = results(session, out)
    session.produce(topic, records(300, 500))
    assert app.wait(120)
    app.stop()
    undisturbed, after = state(app), results(session, out)
    assert sum(n for n in undisturbed[0].values()) == 500 and len(after) > len(before)
    assert "first" in repr(session.savepoints())

    # under its own name there is state already
    with pytest.raises(DeployError, match="state of its own"):
        session.deploy(topology(topic, out), name, from_savepoint="first", config=EXACTLY_ONCE)
    session.cleanup(name)
    # rows that would be read wrongly
    with pytest.raises(TopologyError, match="value serde was"):
        session.deploy(topology(topic, out, value_serde="json"), name, from_savepoint="first", config=EXACTLY_ONCE)
    with pytest.raises(RecordingError, match="no savepoint 'frist'"):
        session.deploy(topology(topic, out), name, from_savepoint="frist", config=EXACTLY_ONCE)
    # back to the savepoint: what came later is counted once, and its results are written once more
    again = session.deploy(topology(topic, out), name, from_savepoint="first", config=EXACTLY_ONCE)
    assert again.wait(120)
    assert state(again) == undisturbed
    assert results(session, out) == sorted(after + [row for row in after if row not in before])

    # under a second name it would write what the first one writes: refused before anything is there, however it is started
    second_out, trial = f"{name}-second-out", f"{name}-trial"
    session.create_topic(second_out, partitions=1)
    with pytest.raises(AlreadyOwnedError) as refused:
        session.deploy(topology(topic, out), trial, from_savepoint=f"{name}/first", config=EXACTLY_ONCE)
    assert refused.value.message.startswith(f"{trial} would write topic: {out}, which {name} (running) writes")
    assert "with other topics in .to" in str(refused.value.hint) and f"session.attach({name!r}).stop()" in str(refused.value.hint)
    assert again.status == "running" and results(session, out) == sorted(after + [row for row in after if row not in before])
    assert trial not in session.admin.groups() and not any(topic.startswith(trial) for topic in session.admin.topics())
    aside = session.deploy(topology(topic, second_out), trial, from_savepoint=f"{name}/first", config=EXACTLY_ONCE)
    assert aside.wait(120) and state(aside) == undisturbed and again.status == "running"
    assert results(session, second_out) == [row for row in after if row not in before]
    aside.stop()
    again.pause()  # its outputs are still its own
    session.cleanup(trial)
    with pytest.raises(AlreadyOwnedError, match=r"\(paused\) writes"):
        session.deploy(topology(topic, out), trial, from_savepoint=f"{name}/first", config=EXACTLY_ONCE)
    told = session.deploy(topology(topic, out), trial, from_savepoint=f"{name}/first", share_outputs=True, config=EXACTLY_ONCE)
    assert told.wait(120)
    told.stop()
    again.stop()

    # another application, with another number of instances, and records that no one has seen yet
    other = f"{name}-other"
    session.produce(topic, records(500, 520))
    second = session.deploy(
        topology(topic, out), other, from_savepoint=f"{name}/first", config=EXACTLY_ONCE, num_stream_threads=2
    )
    assert second.wait(120)
    assert sum(n for n in state(second)[0].values()) == 520
    second.stop()
    # a savepoint of an application at rest; a file that was changed is refused
    copied = second.savepoint("at-rest")
    assert second.status == "stopped"
    file = copied.path / "records.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"p":0', b'"p":1', 1))
    with pytest.raises(RecordingError, match="changed"):
        session.deploy(topology(topic, out), f"{name}-third", from_savepoint=copied, config=EXACTLY_ONCE)
    saved.delete()
    assert "first" not in repr(session.savepoints())
