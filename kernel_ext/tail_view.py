"""A live table in a notebook: it updates while later cells run, until Stop is pressed or no front end shows it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from kernel_ext.front_end import one_module
from kernel_ext.subshells import heard_at_once
from kernel_ext.view_heartbeat import Watched
from kstreams_repl.display.markup import clean_text, element
from kstreams_repl.display.table import Table

UPDATE_SECONDS = 0.33


class TailView(anywidget.AnyWidget):
    """One table that is read repeatedly. `html` is markup; the others are text.

    Args:
        look: returns the table; called on a thread, and once more after Stop, when it must hold no resources.
        leave: called when the updates end; `look` may be called again later.
    """

    _esm = one_module("tail.js")

    title = traitlets.Unicode("").tag(sync=True)
    html = traitlets.Unicode("").tag(sync=True)
    running = traitlets.Bool(True).tag(sync=True)

    def __init__(
        self, look: Callable[[], Table], title: str, *, leave: Callable[[], None], kernel_busy: Callable[[], bool] = lambda: False
    ) -> None:
        self._look = look
        self._leave = leave
        self._watched = Watched(kernel_busy)
        self._updating = threading.Lock()
        self._first = look()
        super().__init__(title=clean_text(title, limit=200), html=str(self._first.html()))
        heard_at_once(self.comm)
        self.on_msg(lambda widget, content, buffers: self.receive(content))

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Return the widget, and for front ends without widgets the table as it was first read."""
        view: Any = super()._repr_mimebundle_(**options) or {}
        data, metadata = view if isinstance(view, tuple) else (view, {})
        return {**data, **self._first._repr_mimebundle_()}, metadata

    def receive(self, message: dict[str, Any]) -> None:
        """Handle one message of a front end."""
        action, view = message.get("do"), str(message.get("view", ""))
        if action == "gone":
            self._watched.leave(view)
            return
        self._watched.hear(view)
        if action in ("stop", "go on"):
            self.running = action == "go on"
        if self.running:
            threading.Thread(target=self._update, name="topo-tail", daemon=True).start()

    @property
    def updating(self) -> bool:
        """Return whether the table is being updated."""
        return self._updating.locked()

    def _update(self) -> None:
        if not self._updating.acquire(blocking=False):
            return
        try:
            while self.running and self._watched.now:
                self.html = str(self._look().html())
                time.sleep(UPDATE_SECONDS)
        except Exception as error:  # shown in place of the table: the topic was deleted, or the session is closed
            self.html = str(element("pre", str(error), role="alert"))
            self.running = False
        finally:
            self._leave()
            self._updating.release()
