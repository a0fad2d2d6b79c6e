"""A store that is reset by an edit, on a real broker and real Spark: empty, the others and the offsets kept, exactly once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import TopologyError

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]
CONFIG = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "auto.offset.reset": "earliest"}


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


def two_stores(topic: str, value_serde: str) -> ks.StreamsBuilder:
    builder = ks.StreamsBuilder()
    grouped = builder.stream(topic, key_serde="string", value_serde="string").group_by_key()
    grouped.count(store="counts", name="counts", value_serde=value_serde)
    grouped.count(store="kept", name="kept")
    return builder


def rows(app: ks.Application, store: str) -> dict[str, int]:
    return dict(app.sql(store).df()[["key", "value"]].itertuples(index=False, name=None))


@pytest.mark.parametrize("state", ["running", "paused"])
def test_a_reset_store_begins_empty_and_nothing_else_is_lost(session: ks.Session, state: str) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000 + i) for i in range(100)])
    app = session.deploy(two_stores(topic, "long"), name, config=CONFIG)
    assert app.wait(120)
    if state == "paused":
        app.pause()
    with pytest.raises(TopologyError, match="cannot be kept") as refused:
        app.edit(two_stores(topic, "integer"))
    assert "reset_state=['counts']" in str(refused.value.hint)
    app.edit(two_stores(topic, "integer"), reset_state=["counts"])
    app.resume()
    session.produce(topic, [("a", "word", 2000 + i) for i in range(7)])
    assert app.wait(120)
    assert rows(app, "counts") == {"a": 7}
    assert rows(app, "kept") == {"a": 107}


@pytest.mark.parametrize("end", ["stop", "pause"])
def test_an_application_that_was_reset_is_resumed_in_the_same_session(session: ks.Session, end: str) -> None:
    name = f"app-{uuid.uuid4().hex[:8]}"
    topic = f"{name}-in"
    session.produce(topic, [("a", "word", 1000 + i) for i in range(100)])
    app = session.deploy(two_stores(topic, "long"), name, config=CONFIG)
    assert app.wait(120)
    getattr(app, end)()
    session.reset(name)
    app.resume()
    assert app.wait(120)
    assert rows(app, "counts") == rows(app, "kept") == {"a": 100}
