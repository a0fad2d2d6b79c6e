"""Taps on a deployed application, on a real broker and real Spark."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kernel_ext.magics.topo_magics import NodeValues
from kstreams_repl.host.instance.control.node_taps import TapFiles
from kstreams_repl.host.instance.state.state_directory import control_directory, state_root
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.repl.session.views.values.live_taps import LiveTap
from kstreams_repl.system.errors import TopologyError
from tests.spark.hosting import settle

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


class Feeder:
    """Writes numbered records until it is stopped."""

    def __init__(self, session: ks.Session, topic: str) -> None:
        self._session, self._topic = session, topic
        self.written: list[tuple[str, str]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            start = len(self.written)
            batch = [(f"k{number % 7}", f"v{number}") for number in range(start, start + 50)]
            self._session.produce(self._topic, [(key, value, 1000) for key, value in batch])
            self.written += batch
            self._end.wait(0.05)

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


def requests_of(app: ks.Application) -> TapFiles:
    return TapFiles(control_directory(state_root(app.config), app.name))


@pytest.mark.slow
def test_a_tap_shows_values_and_leaves_state_and_output_exact(session: ks.Session) -> None:
    name = f"tap-{uuid.uuid4().hex[:8]}"
    session.create_topic(f"{name}-in", partitions=2)
    session.create_topic(f"{name}-out", partitions=2)
    builder = ks.StreamsBuilder()
    stream = builder.stream(f"{name}-in", key_serde="string", value_serde="string")
    shaped = stream.map_values(lambda text: {"n": int(text[1:])}, name="shaped")
    table = shaped.group_by_key(key_serde="string", value_serde="json").count(store="counts")
    table.to_stream(name="counted").to(f"{name}-out", key_serde="string", value_serde="long")
    config = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50, "num.stream.threads": 2}
    app = session.deploy(builder, name, config=config)
    feeder = Feeder(session, f"{name}-in")
    try:
        settle(lambda: app.reports.records > 0, "records", story=lambda: app)
        # looked at twice, with values between nodes, on the rows' way to the topic and at the sink
        seen = app.tap("shaped", 20, timeout=30)
        assert len(seen) == 20
        assert all(record.key == f"k{record.value['n'] % 7}" for record in seen)
        assert "live from" in repr(seen)
        counted = app.tap("counted", 5, timeout=30)
        assert len(counted) == 5 and all(isinstance(record.value, int) for record in counted)
        tail = app.tail(shaped)
        assert next(tail).key.startswith("k")
        assert len(requests_of(app).active()) == 1
        tail.close()  # type: ignore[attr-defined]
        assert requests_of(app).active() == []
        values = NodeValues(app, "shaped", 10, "n % 2 = 0 AND key <> 'k1'")
        settle(lambda: len(values().rows) == 10, "values for which a condition holds")
        assert all(row[1]["n"] % 2 == 0 and row[0] != "k1" for row in values().rows)
        values.close()
        # one whose client is gone: nobody renews it, and the instances take it off
        lost = LiveTap(app._core, "shaped")
        lost.__enter__()
        # renewed until both have it
        settle(lambda: lost.new() is not None and len(requests_of(app).seen(app.generation, lost.id)) == 2, "the tap to be on")
        settle(lambda: requests_of(app).active() == [], "the request to be removed")
        settle(lambda: requests_of(app).seen(app.generation, lost.id) == [], "the tap to be taken off")
    finally:
        feeder.stop()
    assert app.wait(60)
    expected = Counter(key for key, _ in feeder.written)
    assert dict(app.sql("counts").df()[["key", "value"]].itertuples(index=False, name=None)) == expected
    finals: dict[Any, Any] = {}
    for record in session.read(f"{name}-out", None):
        finals[record.key] = max(record.value, finals.get(record.key, 0))
    assert finals == expected
    with pytest.raises(TopologyError, match="shapde"):
        app.tap("shapde")
    app.pause()
    assert len(app.tap("shaped", 3)) == 3, "what does not run is sampled"


@pytest.mark.slow
def test_a_quiet_node_says_so(session: ks.Session) -> None:
    name = f"tap-{uuid.uuid4().hex[:8]}"
    session.create_topic(f"{name}-in", partitions=1)
    builder = ks.StreamsBuilder()
    builder.stream(f"{name}-in", value_serde="string").filter(lambda key, value: True, name="all")
    app = session.deploy(builder, name)
    settle(lambda: app.status == "running", "the start")
    started = time.monotonic()
    found = app.tap("all", timeout=0.5)
    assert len(found) == 0 and "nothing passed within 0.5 s" in repr(found)
    assert time.monotonic() - started >= 0.5
