"""What stands beside a failure, and what its buttons do; on the small cluster."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import kernel_ext.cell_tracker
from kernel_ext.errors import show_error
from kernel_ext.extension import Extension
from kernel_ext.failures import failure_buttons, failure_of
from kernel_ext.live.live_picture import LivePicture
from kernel_ext.live.node_details import about
from kernel_ext.live.side_panel import SidePanel
from kstreams_repl.repl.session import Application
from kstreams_repl.repl.session.source.error_source import user_location
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.system.errors import DeployError, StreamsProcessingError
from tests.unit.kernel_ext.test_topo_edit import cluster, shell  # noqa: F401 - fixtures

HOSTILE = '<img src=x onerror="window.pwned=1">'
PLACE = "in-0@7"


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def failed(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> Application:  # noqa: F811
    """An application that failed in a function of cell [3], at a record with markup in it."""
    for module in ("kernel_ext.failures", "kstreams_repl.repl.session.source.error_source"):
        monkeypatch.setattr(f"{module}.history", kernel_ext.cell_tracker.history)
    shell.execution_count = 3
    shell.run_cell("def double(order):\n    return order['price'] * 2", store_history=True, cell_id="the function's")
    shell.run_cell("def last(order):\n    pass", store_history=True, cell_id="last")
    record = ReadRecord(HOSTILE, {"prize": "\x1b[2J" + "v" * 5000}, 0, "in", 0, 7)
    app: Application = shell.user_ns["app"]
    app.stop()
    monkeypatch.setattr(Application, "failed_record", record)
    deployment: Any = app._core.deployment
    deployment.error = StreamsProcessingError(
        f"KeyError: 'price' {HOSTILE}\n  record {PLACE}: key {HOSTILE!r}", hint="fix it", application="app", node="kept", task="0_0",
        topic="in", partition=0, offset=7, record=record, user_line=(shell.user_ns["double"].__code__.co_filename, 2, "return"),
    )  # fmt: skip
    deployment.status = "failed"
    return app


def buttons(markup: str) -> list[tuple[str, dict[str, str]]]:
    """Label and attributes of each button."""
    return [
        (html.unescape(label), {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', attributes)})
        for attributes, label in re.findall(r"<button([^>]*)>([^<]*)</button>", markup)
    ]


def test_the_drawer_of_the_node_that_failed_has_the_record_and_three_buttons(failed: Application) -> None:
    shown = failure_of(failed, "kept")
    assert "failed in task 0_0" in shown and f"record {PLACE}: key" in shown and "<img" not in shown and "&lt;img" in shown
    found = dict(buttons(shown))
    assert list(found) == ["cell [3], line 2", "show this record", "skip it", "edit the function"]
    assert found["skip it"]["data-at"] == PLACE and PLACE in found["skip it"]["data-ask"]
    assert "data-ask" not in found["show this record"]
    for label in ("cell [3], line 2", "edit the function"):
        assert (found[label]["data-cell"], found[label]["data-line"]) == ("the function's", "2")
    assert failure_of(failed, "scaled") == "", "another node has not failed"
    whole = failure_of(failed, "kept", record=True)
    assert len(shown) < len(whole) < 20_000 and "<img" not in whole and "\x1b" not in whole and "timestamp" in whole
    failed._core.deployment.status = "paused"  # type: ignore[misc]
    assert failure_of(failed, "kept") == ""


def test_a_function_of_no_cell_is_edited_where_its_node_was_made(failed: Application) -> None:
    error: Any = failed.error
    error.fields["user_line"] = ("/somewhere/module.py", 4, "return")
    shown = failure_of(failed, "kept")
    assert dict(buttons(shown))["edit the function"]["data-cell"] == "build" and "%%topo_edit app kept" in shown


def test_an_error_without_a_record_offers_none(failed: Application) -> None:
    error: Any = failed.error
    del error.fields["offset"]
    assert [label for label, _ in buttons(failure_of(failed, "kept"))] == ["cell [3], line 2", "edit the function"]


def test_the_picture_opens_the_node_that_failed_and_its_buttons_act(failed: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped: list[str] = []
    live = LivePicture(failed, lambda changed: None)
    live.refresh()
    assert live.state["selected"] == "node:kept"
    until(lambda: PLACE in live.state["failure"])
    assert "timestamp" not in live.state["failure"]
    live.receive({"do": "record"})
    until(lambda: "timestamp" in live.state["failure"])

    def refused(app: Application, at: str) -> None:
        skipped.append(at)
        raise DeployError(f"it failed at {PLACE} {HOSTILE}")

    monkeypatch.setattr(Application, "skip", refused)
    live.receive({"do": "skip", "at": PLACE})
    until(lambda: "it failed at" in live.state["detail"] and not live.state["busy"])
    assert skipped == [PLACE] and "<img" not in live.state["detail"]
    # it is said once: a drawer that was closed stays closed, until it fails again
    live.receive({"do": "select", "shape": ""})
    live.refresh()
    assert live.state["selected"] == "" == live.state["failure"]
    live.receive({"do": "select", "shape": "node:kept"})
    until(lambda: PLACE in live.state["failure"])
    failed._core.deployment.status = "stopped"  # type: ignore[misc]
    failed._core.deployment.error = None  # type: ignore[misc]
    live.refresh()
    assert live.state["failure"] == ""


def test_a_node_that_is_looked_at_is_not_left_for_the_one_that_failed(failed: Application) -> None:
    live = LivePicture(failed, lambda changed: None)
    live.set(selected="node:scaled")
    live.refresh()
    assert live.state["selected"] == "node:scaled" and live.state["failure"] == ""


def test_defined_in_names_the_cell_by_its_number(failed: Application, shell: InteractiveShell) -> None:  # noqa: F811
    shown = about(failed, "kept")
    assert re.search(r"defined in cell \[[ \d]+\], line 2", shown)
    assert dict(buttons(shown))["go to cell"]["data-line"] == "2"


def test_the_buttons_below_a_red_box_wait_for_an_extension_that_hears_them(failed: Application) -> None:
    error: Any = failed.error
    shown = failure_buttons(error, user_location(error), {"app"})
    assert shown.startswith('<div class="ks-ways" hidden="" data-application="app">')
    found = buttons(shown)
    assert [label for label, _ in found] == ["cell [3], line 2", "show this record", "skip it", "edit the function"]
    # what this kernel has not attached cannot be acted on; the cell is there all the same
    assert [label for label, _ in buttons(failure_buttons(error, user_location(error), ()))] == ["cell [3], line 2"]
    assert failure_buttons(ValueError("x"), None, {"app"}) == ""
    error.fields.update(application=HOSTILE, topic='a"><script>')
    assert "<img" not in failure_buttons(error, None, {HOSTILE}) and "<script" not in failure_buttons(error, None, {HOSTILE})


def test_a_cell_that_raised_itself_is_no_link(shell: InteractiveShell, failed: Application) -> None:  # noqa: F811
    last, other = (shell.user_ns[name].__code__.co_filename for name in ("last", "double"))
    assert failure_buttons(ValueError("x"), (last, 2, "pass"), ()) == ""
    assert [label for label, _ in buttons(failure_buttons(ValueError("x"), (other, 2, "return"), ()))] == ["cell [3], line 2"]


def test_a_kernel_publishes_them_behind_the_box_and_a_terminal_does_not(failed: Application, shell: InteractiveShell) -> None:  # noqa: F811
    said: list[Any] = []
    namespace = {"session": shell.user_ns["session"]}
    front = SimpleNamespace(
        kernel=object(), user_ns=namespace, _showtraceback=lambda kind, error, lines: said.append("box"),
        display_pub=SimpleNamespace(publish=lambda data, metadata: said.append(data["text/html"])),
    )  # fmt: skip
    error = failed.error
    assert error is not None
    show_error(front, type(error), error, None)
    assert said[0] == "box" and len(said) == 2 and f'data-at="{PLACE}"' in said[1]
    front.kernel = None
    show_error(front, type(error), error, None)
    assert said[2:] == ["box"]


class Spoken:
    """A comm that keeps what was sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def send(self, data: dict[str, Any]) -> None:
        self.sent.append(data)

    def on_msg(self, call: Callable[[Any], None]) -> None:
        self.say = lambda **data: call({"content": {"data": data}})

    def heard(self, what: str) -> Any:
        until(lambda: any(what in data for data in self.sent))
        return next(data[what] for data in self.sent if what in data)


def test_the_red_boxs_buttons_act_on_the_record_at_which_it_failed_and_on_no_other(
    shell: InteractiveShell, failed: Application, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:
    skipped: list[str] = []
    monkeypatch.setattr(Application, "skip", lambda app, at: skipped.append(at))
    monkeypatch.setattr("kernel_ext.live.side_panel.state_of", lambda *given: {})
    extension = Extension.of(shell)
    assert extension is not None

    def asked(**message: str) -> Spoken:
        comm = Spoken()
        SidePanel(extension.workspace)._opened(comm, None)
        comm.say(**message)
        assert comm.heard("heard")["name"] == message["name"]
        return comm

    columns = dict(asked(do="record", name="app", at=PLACE).heard("record")["columns"])
    assert columns["offset"] == "7" and HOSTILE in columns["key"] and "\x1b" not in columns["value"] and len(columns["value"]) < 2100
    assert "it failed at in-0@7" in asked(do="record", name="app", at="in-0@8").heard("error")["message"]
    assert "it failed at in-0@7" in asked(do="skip", name="app", at="in-0@8").heard("error")["message"] and skipped == []
    assert "no application 'nope'" in asked(do="skip", name="nope", at=PLACE).heard("error")["message"]
    assert asked(do="skip", name="app", at=PLACE).heard("done") == {"do": "skip", "name": "app"} and skipped == [PLACE]
