"""A live table in a notebook: it updates while later cells run, until Stop is pressed or no front end shows it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from kernel_ext.live.subshells import handle_in_subshell
from kernel_ext.live.view_heartbeat import OpenViews
from kstreams_repl.pictures.front_end import bundle
from kstreams_repl.pictures.markup import clean_text, element
from kstreams_repl.pictures.table import Table
from kstreams_repl.system.types import JsonObject

UPDATE_SECONDS = 0.33


class TailView(anywidget.AnyWidget):
    """One table that is read repeatedly. `html` is markup; the others are text.

    Args:
        read: returns the table; called on a thread, and once more after Stop, when it must hold no resources.
        close: called when the updates end; `read` may be called again later.
    """

    _esm = bundle("tail.js")

    title = traitlets.Unicode("").tag(sync=True)
    html = traitlets.Unicode("").tag(sync=True)
    running = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self, read: Callable[[], Table], title: str, *, close: Callable[[], None], kernel_busy: Callable[[], bool] = lambda: False
    ) -> None:
        self._read = read
        self._close = close
        self._open_views = OpenViews(kernel_busy)
        self._updating = threading.Lock()
        self._first = read()
        super().__init__(title=clean_text(title, limit=200), html=str(self._first.html()))
        handle_in_subshell(self.comm)
        self.on_msg(lambda widget, content, buffers: self.receive(content))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the widget, and for front ends without widgets the table as it was first read."""
        view: Any = super()._repr_mimebundle_(**options) or {}
        data, metadata = view if isinstance(view, tuple) else (view, {})
        return {**data, **self._first._repr_mimebundle_()}, metadata

    def receive(self, message: JsonObject) -> None:
        """Handle one message of a front end."""
        action, view = message.get("do"), str(message.get("view", ""))
        if action == "gone":
            self._open_views.close(view)
            return
        self._open_views.heartbeat(view)
        if action in ("stop", "continue"):
            self.running = action == "continue"
        if self.running:
            threading.Thread(target=self._update, name="topo-tail", daemon=True).start()

    def _update(self) -> None:
        if not self._updating.acquire(blocking=False):
            return
        try:
            while self.running and self._open_views.any:
                self.html = str(self._read().html())
                time.sleep(UPDATE_SECONDS)
        except Exception as error:  # shown in place of the table: the topic was deleted, or the session is closed
            self.html = str(element("pre", str(error), role="alert"))
            self.running = False
        finally:
            self._close()
            self._updating.release()
