"""The live picture and the side panel against a running application: real broker, real Spark, a front end played by the test."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import kernel_ext.live.live_picture as live_module
import kernel_ext.live.view_heartbeat as watched
import kstreams_repl as ks
from kernel_ext.live.live_picture import LivePicture
from kernel_ext.live.side_panel import SidePanel, state_of
from kernel_ext.stale_nodes import StaleNodes
from kernel_ext.workspace import Workspace
from kstreams_repl.host.kafka.clients import ClientSettings
from kstreams_repl.repl.session.session_directory import SessionDirectory

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def session(broker: Any, tmp_path: Path) -> Iterator[ks.Session]:
    with ks.Session(ClientSettings(broker.bootstrap_servers), directory=SessionDirectory(tmp_path)) as session:
        session.topic_configs["retention.ms"] = "-1"
        yield session


class Comm:
    """A comm whose other end is the test."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, data: dict[str, Any]) -> None:
        self.sent.append(data)

    def on_msg(self, call: Callable[[Any], None]) -> None:
        self.receive = lambda data: call({"content": {"data": data}})

    def on_close(self, call: Callable[[Any], None]) -> None:
        self.close = lambda: call({})


def eventually(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "did not come"
        time.sleep(0.05)
    return found


@pytest.mark.slow  # in the fast tier test_edit_on_the_fly.py does the same in a browser
def test_a_front_end_watches_looks_behind_edits_pauses_and_leaves(session: ks.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "UPDATE_SECONDS", 0.1)
    monkeypatch.setattr(watched, "SILENT_SECONDS", 600.0)  # one word is enough here
    name = f"app-{uuid.uuid4().hex[:8]}"
    session.produce(name, [(f"k{number % 3}", "word", 1000 + number) for number in range(90)])
    builder = ks.StreamsBuilder()
    words = builder.stream(name, key_serde="string", value_serde="string", name="words").filter(lambda key, value: True, name="kept")
    words.group_by_key(key_serde="string", value_serde="string").count(store="counts", name="count")
    app = session.deploy(builder, name, config={"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 50})
    told: list[dict[str, Any]] = []
    live = LivePicture(app, told.append)
    live.receive({"do": "alive", "view": "one"})
    assert app.wait(120)
    eventually(lambda: live.state["status"] == "running" and ["number", "3 rows"] in live.state["marks"].get("store:counts", []))
    assert not any(kind == "badge" for kind, _ in live.state["marks"]["node:words"]), "only where a node's state is not the application's"
    eventually(lambda: ["number", "90 records"] in live.state["marks"]["node:words"])  # metrics come after the store's rows

    # numbers move without the picture being drawn anew
    eventually(lambda: any(line[1].endswith("records/s") for line in live.state["marks"]["node:words"]))
    drawn = sum("svg" in change for change in told)
    session.produce(name, [("k9", "word", 5000)])
    eventually(lambda: ["number", "4 rows"] in live.state["marks"]["store:counts"])
    assert sum("svg" in change for change in told) == drawn

    # what is behind a shape, and rows that go on changing while it is selected
    live.receive({"do": "select", "shape": "node:count"})
    eventually(lambda: "k9" in live.state["detail"] and "last values" in live.state["values"])
    assert "test_live_picture" in live.state["about"], "the user's line"
    session.produce(name, [("k10", "word", 6000)])
    eventually(lambda: "k10" in live.state["detail"])
    eventually(lambda: "live values" in live.state["values"] and "k10" in live.state["values"])
    live.receive({"do": "select", "shape": "node:<img src=x>"})
    assert live.state["selected"] == "node:count", "there is no such shape"

    # a cell changes a function: the node is stale, the plan is shown, and applied
    builder.replace("kept", lambda key, value: key != "k0")
    StaleNodes(_workspace(session)).check()
    eventually(lambda: live.state["changed"] and ["badge", "✎ stale"] in live.state["marks"]["node:kept"])
    live.receive({"do": "edit"})
    eventually(lambda: live.state["planned"] and "code only" in live.state["detail"])
    # compared and tried beside first: the panel counts how the fork differs so far, until it is gone
    live.receive({"do": "compare"})
    eventually(lambda: not live.state["busy"] and "first difference" in live.state["detail"] and "kept" in live.state["detail"])
    live.receive({"do": "fork"})
    eventually(lambda: "records/s of fork" in live.state["detail"])
    (fork,) = session.forks.values()
    session.produce(name, [("k0", "word", 6500), ("k1", "word", 6501)])
    eventually(lambda: "counts" in live.state["detail"] and counted(fork) == (1, 0, 1, 0))
    eventually(lambda: "same offsets" in live.state["detail"])
    fork.drop()
    eventually(lambda: not live.state["detail"])
    live.receive({"do": "edit"})
    eventually(lambda: live.state["planned"] and "code only" in live.state["detail"])
    live.receive({"do": "apply"})
    eventually(lambda: len(app.versions) == 2 and not live.state["busy"])
    eventually(lambda: not live.state["changed"] and not live.state["planned"])
    session.produce(name, [("k0", "word", 7000), ("k1", "word", 7001)])
    assert app.wait(60)
    assert dict(session.sql("SELECT key, value FROM counts").fetchall()) == {"k0": 31, "k1": 32, "k2": 30, "k9": 1, "k10": 1}

    # the buttons
    live.receive({"do": "pause"})
    eventually(lambda: live.state["status"] == "paused" and not live.state["busy"])
    eventually(lambda: ["state", "is-paused"] in live.state["marks"]["node:words"])
    live.receive({"do": "resume"})
    eventually(lambda: live.state["status"] == "running" and not live.state["busy"])

    # the side panel says the same, and works the same
    panel, comm = SidePanel(_workspace(session)), Comm()
    panel._opened(comm, {})
    state = eventually(lambda: next((message["state"] for message in comm.sent if "state" in message), None))
    assert [row["name"] for row in state["applications"]] == [name] and state["applications"][0]["status"] == "running"
    assert {"name": "counts", "kind": "timestamped-key-value", "application": name} == {
        key: value for key, value in state["stores"][0].items() if key != "rows"
    }
    assert any(topic["name"] == name and topic["records"] == 97 - 1 for topic in state["topics"])
    comm.receive({"do": "pause", "name": name})
    eventually(lambda: any(message.get("done") for message in comm.sent))
    assert app.status == "paused"
    comm.receive({"do": "pause", "name": "nobody"})
    eventually(lambda: any("nobody" in message.get("error", {}).get("message", "") for message in comm.sent))
    comm.receive({"do": "__class__", "name": name})
    tab = Comm()
    panel._picture_opened(tab, {"content": {"data": {"name": name}}})
    eventually(lambda: any("<svg" in message.get("set", {}).get("svg", "") for message in tab.sent))

    # nobody looks any more: the updates end
    live.receive({"do": "gone", "view": "one"})
    eventually(lambda: not live._updating.locked())
    assert live.state["status"] == "paused"


def counted(fork: Any) -> tuple[int, ...]:
    return next(row[2:6] for row in fork.live().rows if row[1] == "counts")


def _workspace(session: ks.Session) -> Workspace:
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.user_ns["session"] = session
    return Workspace(shell)


def test_the_side_panel_of_a_notebook_without_a_session_is_empty() -> None:
    assert state_of(None)["session"] is None and state_of(None)["applications"] == []
