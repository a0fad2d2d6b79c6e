"""The control panel: an application's live picture with buttons, and what is behind the shape that is selected.

The picture is drawn by Python a few times a second while somebody looks (the front end sends a heartbeat; without one the updates stop,
with the next one they go on). Control and look-ups run on threads of their own, so that the kernel stays free; nothing is ever printed
from them.
"""

from __future__ import annotations

import linecache
import threading
import time
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kstreams_repl.display.markup import Markup, clean_text, element, join
from kstreams_repl.display.svg import svg_of
from kstreams_repl.display.table import Table
from kstreams_repl.errors import KStreamsError
from kstreams_repl.session import Application

UPDATE_SECONDS = 0.4
SILENT_SECONDS = 12.0
ROWS = 20


class Panel(anywidget.AnyWidget):
    """The panel of one application. Several views may show it."""

    _esm = Path(__file__).parent / "static" / "panel.js"

    svg = traitlets.Unicode("").tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    detail = traitlets.Unicode("").tag(sync=True)

    def __init__(self, application: Application) -> None:
        self._application = application
        self._heard = 0.0
        self._updating = threading.Lock()
        super().__init__()
        self.refresh()
        self.on_msg(self._on_message)
        self.observe(self._on_select, "selected")

    def refresh(self) -> None:
        """Draw what is known now."""
        app = self._application
        if app.session.closed:
            self.status, self.note = "closed", "the session is closed"
            return
        with self.hold_sync():
            self.svg = str(svg_of(app.picture()))
            self.status = app.status
            self.note = clean_text(repr(app))

    def _on_message(self, widget: Any, content: dict[str, Any], buffers: Any) -> None:
        action = content.get("do")
        if action == "alive":
            self._heard = time.monotonic()
            self._start("update", self._update)
        elif action in ("pause", "resume", "stop"):
            self._start(str(action), lambda: self._control(str(action)))

    def _on_select(self, change: Any) -> None:
        name = str(change["new"])
        self.detail = str(element("div", f"reading {name} …"))
        self._start("look", lambda: self._look(name))

    def _start(self, what: str, work: Any) -> None:
        threading.Thread(target=work, name=f"panel-{what}-{self._application.name}", daemon=True).start()

    def _update(self) -> None:
        if not self._updating.acquire(blocking=False):
            return
        try:
            while time.monotonic() - self._heard < SILENT_SECONDS and not self._application.session.closed:
                self.refresh()
                time.sleep(UPDATE_SECONDS)
            self.refresh()
        except KStreamsError as error:  # the broker is away, say; the next heartbeat tries again
            self.note = clean_text(error.message)
        finally:
            self._updating.release()

    def _control(self, action: str) -> None:
        self.busy = True
        try:
            getattr(self._application, action)()
        except Exception as error:  # shown where the button is
            self.detail = str(element("pre", str(error)))
        finally:
            self.busy = False
            self.refresh()

    def _look(self, shape: str) -> None:
        try:
            shown = detail_of(self._application, shape)
        except Exception as error:  # whatever it is, it belongs where the user looks
            shown = element("pre", str(error))
        if self.selected == shape:
            self.detail = str(shown)


def detail_of(app: Application, shape: str) -> Markup:
    """What is behind a shape: a store's rows, a topic's last records, a node's last values, its source and its error."""
    kind, _, name = shape.partition(":")
    if kind == "store":
        return _titled(f"store {name}", app.store(name).rows().table(ROWS).html())
    if kind == "topic":
        real = f"{app.name}-{name}" if name in app.topology.internal_topics else name
        return _titled(f"topic {real}", app.session.read(real, ROWS).table().html())
    node = app.topology.node(name)
    parts: list[Any] = []
    error = app.error
    if error is not None and error.fields.get("node") == name:
        parts.append(element("pre", str(error)))
    stores = getattr(node, "stores", ())
    parts += [_titled(f"store {store}", app.store(store).rows().table(ROWS).html()) for store in stores]
    found = app.session.peek(name, ROWS, topology=app.topology)
    parts.append(
        _titled("last values (a sample of its topics)", found.html() if isinstance(found, Table) else found.table().html())
    )
    if node.origin.file:
        where = f"cell {node.origin.cell}" if node.origin.cell else node.origin.file
        line = linecache.getline(node.origin.file, node.origin.line or 0).strip()
        parts.append(_titled(f"made in {where}, line {node.origin.line}", element("pre", line)))
    return _titled(name, join(parts))


def _titled(title: str, body: Markup) -> Markup:
    return element("div", element("div", element("b", title)), body)
