"""The panel without a front end."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm as PlainComm
from IPython.core.interactiveshell import InteractiveShell

from kernel_ext.extension import Extension
from kernel_ext.live.live_picture import LivePicture
from kernel_ext.live.panel import Panel
from kernel_ext.live.side_panel import state_of
from kernel_ext.live.subshells import handle_in_subshell
from kstreams_repl.pictures.front_end import bundle
from kstreams_repl.repl.session.application.application import Application
from kstreams_repl.repl.session.application.life.state import ApplicationState
from kstreams_repl.repl.session.left_applications import LeftApplication
from kstreams_repl.system.errors import StateStoreError
from tests.unit.kernel_ext.test_extension import run
from tests.unit.kernel_ext.test_topo_edit import BUILD, CONFIG, cluster, shell  # noqa: F401 - fixtures

SOURCE = bundle("panel.js")


def test_the_front_end_is_one_file_that_fetches_nothing() -> None:
    for word in ("import ", "import(", "fetch(", "http:", "https:", "XMLHttpRequest", "WebSocket", "eval("):
        assert word not in SOURCE.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "export default { render }" in SOURCE


def test_only_markup_of_ours_becomes_html() -> None:
    """Everything else goes in as text."""
    assert SOURCE.count("innerHTML") == 2
    assert 'innerHTML = model.get("svg")' in SOURCE and "element.innerHTML = html" in SOURCE
    given = re.findall(r"replace\((\w+), model\.get\(\"(\w+)\"\)\)", SOURCE)
    assert given == [(place, place) for place in ("failure", "detail", "values", "about")] and SOURCE.count("replace(") == len(given)


def test_what_a_front_end_says_to_a_subshell_is_handled_there_whoever_spoke_last() -> None:
    """ipykernel asks a comm where a message is to go, before a browser test would notice."""
    from ipykernel.comm.comm import BaseComm

    one = BaseComm(target_name="kstreams_repl", comm_id="1")
    handle_in_subshell(one)
    route = getattr(one, "_reply_subshell_for")  # noqa: B009
    one._reply_subshell_id = None
    assert route({"method": "custom", "content": {"do": "pause"}}, "subshell-1") == "subshell-1"
    handle_in_subshell(None)


class Wire(PlainComm):  # type: ignore[misc]
    """A comm that keeps what a front end would know."""

    seen: dict[str, Any]

    def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any) -> None:
        if not hasattr(self, "seen"):
            self.seen = {}
        self.seen.update((data or {}).get("state", {}))


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "create_comm", Wire)


def a_panel() -> Panel:
    return Panel(SimpleNamespace(name="app", _core=SimpleNamespace(client=SimpleNamespace(closed=True), detached=False)))  # type: ignore[arg-type]


def test_two_threads_that_change_the_picture_lose_no_change(wired: None) -> None:
    """One thread's end of `hold_sync` took away what the other had not sent yet: the buttons stayed as they are while one acts."""
    shown = a_panel()
    sending, second = threading.Event(), threading.Event()
    publish = shown.comm.publish_msg

    def slow(*about: Any, **more: Any) -> None:
        if threading.current_thread().name == "first":
            sending.set()
            second.wait(0.3)
        publish(*about, **more)

    shown.comm.publish_msg = slow
    first = threading.Thread(target=lambda: shown.live.set(note="one"), name="first")

    def in_between(change: Any) -> None:
        second.set()
        first.join(0.3)  # it goes on, and clears what is to be sent

    shown.observe(in_between, "busy")
    first.start()
    assert sending.wait(10)
    shown.live.set(busy=True)
    first.join()
    assert shown.comm.seen["busy"] is True and shown.comm.seen["note"] == "one"


def test_what_was_said_last_is_what_a_front_end_hears_last() -> None:
    told: list[dict[str, Any]] = []
    telling, later = threading.Event(), threading.Event()

    def tell(changed: dict[str, Any]) -> None:
        if changed["status"] == "running":
            telling.set()
            later.wait(0.3)
        told.append(changed)
        later.set()

    live = LivePicture(SimpleNamespace(name="app"), tell)  # type: ignore[arg-type]
    first = threading.Thread(target=lambda: live.set(status="running"))
    first.start()
    assert telling.wait(10)
    live.set(status="paused")
    first.join()
    assert told[-1] == {"status": "paused"} == {"status": live.state["status"]}


def test_a_panel_that_was_closed_is_recreated(shell: InteractiveShell, wired: None) -> None:  # noqa: F811
    """Its model is gone: what was shown in its place was an error of the front end."""
    extension, app = Extension.of(shell), shell.user_ns["app"]
    assert extension is not None
    app.stop()
    extension.show_application(app)
    before = extension._panels[app]
    extension.show_application(app)
    assert extension._panels[app] is before
    before.comm._closed = True  # a front end says so
    extension.show_application(app)
    after = extension._panels[app]
    assert after is not before
    after.close()
    extension.show_application(app)
    assert extension._panels[app] is not after


def plan_button(live: LivePicture) -> str:
    live._control(live._plan)
    return str(live.state["detail"])


def test_apply_applies_the_plan_that_is_shown_and_no_other(shell: InteractiveShell) -> None:  # noqa: F811
    """Cells that ran after the plan was shown were applied unseen."""
    app = shell.user_ns["app"]
    live = LivePicture(app, lambda changed: None)
    run(shell, BUILD.replace("value > 0", "value > 1"), "build")
    assert "kept" in plan_button(live) and live.state["planned"]
    run(shell, BUILD.replace("value > 0", "value > 2").replace('.to("out"', '.to("elsewhere"'), "build")
    live._control(live._apply)
    assert len(app.versions) == 1 and live.state["planned"]
    assert "have run since" in live.state["detail"] and "sink" in live.state["detail"]
    run(shell, BUILD.replace("value > 0", "value > 2"), "build")
    assert "kept" in plan_button(live)
    live._control(live._apply)
    assert len(app.versions) == 2 and not live.state["planned"], live.state["detail"]
    live._control(live._apply)
    assert "equals what runs" in live.state["detail"] and len(app.versions) == 2


def test_edit_tells_why_there_is_no_plan(shell: InteractiveShell) -> None:  # noqa: F811
    """It said that the builder equals what runs, of one that cannot be built, and of one that is not there."""
    app = shell.user_ns["app"]
    live = LivePicture(app, lambda changed: None)
    assert "equals what runs" in plan_button(live)
    run(shell, "b.stream('in', name='numbers')", "more")
    run(shell, "b.stream('other').process(lambda: None, stores=['nowhere'])", "wrong")
    assert "nowhere" in plan_button(live) and "already" not in live.state["detail"]
    app._core.definition = None
    assert "session.attach" in plan_button(live)


def test_a_node_is_stale_when_what_its_function_calls_has_changed(
    shell: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    """In another cell, or in a module that `%autoreload` takes in anew; only a changed cell of the node itself was noticed."""
    (tmp_path / "panel_helpers.py").write_text("def large(value):\n    return value > 10\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    app = shell.user_ns["app"]
    run(shell, "import panel_helpers\nLIMIT = 5\ndef helper(value):\n    return value > LIMIT", "helper")
    run(shell, BUILD.replace("value > 0", "helper(value) or panel_helpers.large(value)"), "build")
    run(shell, "app.edit(b)", "edit")
    assert app._core.stale == frozenset()
    run(shell, "LIMIT = 6", "limit")
    assert app._core.stale == {"kept"}
    run(shell, "LIMIT = 5", "limit")
    assert app._core.stale == frozenset()
    module = sys.modules.pop("panel_helpers")
    module.large.__code__ = (lambda value: value > 20).__code__
    run(shell, "1", "any")
    assert app._core.stale == {"kept"}


def test_nothing_of_a_button_is_printed_by_its_thread() -> None:
    """An error that is none of ours ended the thread with a traceback in whatever cell ran."""

    def picture() -> Any:
        raise RuntimeError("<b>dictionary changed size")

    core: Any = SimpleNamespace(name="app", client=SimpleNamespace(closed=False), stale=())
    core.current = core
    core.handle = Application(core)
    core.handle.picture = picture
    live = LivePicture(core.handle, lambda changed: None)
    live._open_views.heartbeat("one")
    live._update()
    assert live.state["note"] == "RuntimeError: <b>dictionary changed size"
    live.set(note="")
    live._control(lambda: None)
    assert live.state["note"] == "RuntimeError: <b>dictionary changed size" and not live.state["busy"]


def test_a_store_that_cannot_be_counted_leaves_the_side_panel_the_rest(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    from kstreams_repl.repl.session.views.stores.store_view import StoreView

    def damaged(store: StoreView) -> int:
        raise StateStoreError("a page does not fit its checksum")

    monkeypatch.setattr(StoreView, "count", damaged)
    monkeypatch.setattr("kernel_ext.live.side_panel._application_row", lambda app: {"name": app.name})  # reports are a deployment's
    state = state_of(shell.user_ns["session"])
    assert [row["name"] for row in state["applications"]] == ["app"]
    assert [(row["name"], row["rows"]) for row in state["stores"]] == [("totals", None)] and "checksum" in state["problem"]


def test_an_application_that_is_being_attached_is_listed_once(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """The others in the directory are listed before: for seconds the panel had it twice, attached and not attached."""
    monkeypatch.setattr("kernel_ext.live.side_panel._application_row", lambda app: {"name": app.name})
    left = [LeftApplication(name, ApplicationState.STOPPED, False, None, 0.0, "") for name in ("app", "other")]
    state = state_of(shell.user_ns["session"], left)
    assert [row["name"] for row in state["applications"]] == ["app"] and [row["name"] for row in state["left"]] == ["other"]


def test_a_picture_that_stays_open_goes_on_with_what_is_deployed_anew(shell: InteractiveShell) -> None:  # noqa: F811
    """It showed what was stopped, and its resume put the old topology in place of the one that ran."""
    old = shell.user_ns["app"]
    live = LivePicture(old, lambda changed: None)
    old.stop()
    assert run(shell, f"app = session.deploy(b, 'app', {CONFIG}); app._core.finish_start()", "deploy 2")[0].success
    new = shell.user_ns["app"]
    new._core.deployment.reports = SimpleNamespace(instances={}, tasks={}, records=0, rate=0.0, lag=-1)
    live.refresh()
    assert live.application is new is not old and live.state["status"] == "running"


@pytest.mark.parametrize("detached", [False, True])
def test_after_the_session_is_closed_no_node_is_shown_running(shell: InteractiveShell, detached: bool) -> None:  # noqa: F811 - fixture
    """The header said closed, and every node stayed green with its last rate."""
    session = shell.user_ns["session"]
    app = session.applications["app"]
    live = LivePicture(app, lambda changed: None)
    live.refresh()
    assert live.state["status"] == "running" and ["state", "is-running"] in live.state["marks"]["node:kept"]
    app._core.detached = detached  # its process goes on after the close
    session.close()
    live.refresh()
    assert live.state["status"] == "closed"
    rows = [row for mark in live.state["marks"].values() for row in mark]
    assert not [row for row in rows if row[1] == "is-running" or row[1].endswith("records/s")]
    states = {mark[0][1] for shape, mark in live.state["marks"].items() if shape.startswith("node:")}
    assert states == ({""} if detached else {"is-stopped"})
    assert all(not rate for _, rate in live.state["flows"])
    assert ("continues" in live.state["note"]) is detached and "closed" in live.state["note"]
    live.receive({"do": "show", "names": True})
    for thread in threading.enumerate():
        if thread.name.startswith("panel-view"):
            thread.join(10)
    assert "numbers" in live.state["svg"] and not any(mark[0][1] == "is-running" for mark in live.state["marks"].values())
    app._core.detached = False
    if not detached:
        assert app.picture().state == "stopped"
