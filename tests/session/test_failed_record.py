"""An application that failed at a record: the error shows it, `skip` leaves out exactly it, on a real broker and real Spark."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import kstreams_repl as ks
from kernel_ext.live.live_picture import LivePicture
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory
from kstreams_repl.system.errors import DeployError, KStreamsError, StreamsProcessingError

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

SCRIPT = """
import kstreams_repl as ks
builder = ks.StreamsBuilder()
orders = builder.stream(topic, key_serde="string", value_serde="json")
priced = orders.map_values(lambda order: order["price"] * 2, name="priced")
priced.group_by_key(key_serde="string", value_serde="json").count(store="counts")
priced.to(out, value_serde="json")
app = session.deploy(builder, name, config=config)
"""


def open_session(broker: Any, directory: Path) -> ks.Session:
    session = ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(directory), report=lambda line: None)
    session.topic_configs["retention.ms"] = "-1"
    return session


@pytest.mark.slow
def test_an_error_shows_its_record_and_skip_leaves_out_exactly_that(broker: Any, tmp_path: Path) -> None:
    name = f"skip-{uuid.uuid4().hex[:8]}"
    topic, out, dead = (f"{name}-{what}" for what in ("in", "out", "dead"))
    config = {
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": 5000,  # what came before the record is not committed when it fails
        "errors.dead.letter.queue.topic.name": dead,
    }
    orders: list[tuple[str, Any]] = [(f"k{n % 5}", {"price": n}) for n in range(200)]
    orders[120] = ("k0", {"prize": "\x1b[31m<b>120</b>", "long": "x" * 5000})
    orders[160] = ("k0", {"prize": 160})
    (tmp_path / "script.py").write_text(SCRIPT)
    with open_session(broker, tmp_path) as session:
        session.produce(topic, orders, partitions=1)
        for other in (out, dead):
            session.create_topic(other, partitions=1)
        space: dict[str, Any] = {"__name__": "script", "topic": topic, "out": out, "name": name, "config": config, "session": session}
        exec(compile(SCRIPT, str(tmp_path / "script.py"), "exec"), space)
        app: ks.Application = space["app"]
        with pytest.raises(StreamsProcessingError) as failed:
            app.wait(120)
        first, second = f"{topic}-0@120", f"{topic}-0@160"
        message = failed.value.message
        assert f"record {first}: key 'k0', value {{'prize'" in message and "\x1b" not in message and len(message) < 2000
        assert failed.value.record.value == orders[120][1] and failed.value.application == name
        assert app.failed_record is not None and app.failed_record.offset == 120
        for wrong, why in ((second, "it failed at"), (f"{topic}-0@119", "it failed at")):
            with pytest.raises(DeployError, match=why):
                app.skip(wrong)
        with pytest.raises(KStreamsError, match="TOPIC-PARTITION@OFFSET"):
            app.skip("120")
        live = LivePicture(app, lambda changed: None)  # the panel opens the node that failed, and its button skips
        live.refresh()
        end = time.monotonic() + 60
        while first not in live.state["failure"] and time.monotonic() < end:
            time.sleep(0.1)
        assert live.state["selected"] == "node:priced" and f"record {first}: key" in live.state["failure"]
        assert "&lt;b&gt;120" in live.state["failure"] and "<b>120" not in live.state["failure"]
        live._control(lambda: app.skip(first))
        assert live.state["failure"] == "" or f"{topic}-0@160" in live.state["failure"], live.state["detail"]
        with pytest.raises(StreamsProcessingError, match="@160"):
            app.wait(120)
        assert app.skip(first) is app and app.status == "failed", "a cell that runs again does nothing more"
        app.skip(app.failed_record)
        assert app.wait(120)
        assert [version.number for version in app.versions] == [1, 2, 3]
        assert f"{first}, {second}" in app.versions[-1].source
        session.produce(topic, [("k2", {"prize": 7})])
        with pytest.raises(StreamsProcessingError, match="@200"):
            app.wait(120)
        live.refresh()
        app.edit(space["builder"].replace("priced", lambda order: order.get("price", 0) * 2))
        assert app.wait(120) and app.error is None, "the edit resumes it (L8)"
        live.refresh()
        assert live.state["status"] == "running" and live.state["failure"] == "" and "failed" not in live.state["note"]
        assert [version.number for version in app.versions] == [1, 2, 3, 4]
        app.stop()
    with open_session(broker, tmp_path) as session:  # the next session reads the settings with the text
        app = session.attach(name)
        assert second in app.config["repl.skip.records"]
        with pytest.raises(DeployError, match="it is stopped"):
            app.skip(f"{topic}-0@5")
        session.produce(topic, [("k1", {"price": 1})])
        app.resume()
        assert app.wait(120)
        doubled = session.read(out, None, key_serde="string", value_serde="json")
        assert [record.value for record in doubled] == [*(n * 2 for n in range(200) if n not in (120, 160)), 0, 2]
        counts = {row[0]: row[1] for row in app.sql("SELECT key, value FROM counts").df().itertuples(index=False, name=None)}
        assert counts == {"k0": 38, "k1": 41, "k2": 41, "k3": 40, "k4": 40}
        letters = session.read(dead, None, key_serde="string", value_serde="json")
        assert [record.value for record in letters] == [orders[120][1], orders[160][1]], "each of them once"
        app.stop()
