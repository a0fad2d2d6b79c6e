"""A live table in a notebook: it goes on beside the cells that run next, until Stop, or until nobody looks at it any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kernel_ext.subshells import heard_at_once
from kernel_ext.watched import Watched
from kstreams_repl.display.markup import clean_text, element
from kstreams_repl.display.table import Table

UPDATE_SECONDS = 0.33


class TailView(anywidget.AnyWidget):
    """One table that is read again and again. `html` is markup, the rest is text.

    Args:
        look: gives the table; called on a thread, and once more after Stop with nothing left to hold.
        leave: called when the updates end; `look` may be called again later.
    """

    _esm = Path(__file__).parent / "static" / "tail.js"

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
        """The widget, and below it in the ladder the table as it was at first."""
        view: Any = super()._repr_mimebundle_(**options) or {}
        data, metadata = view if isinstance(view, tuple) else (view, {})
        return {**data, **self._first._repr_mimebundle_()}, metadata

    def receive(self, message: dict[str, Any]) -> None:
        """One message of a front end."""
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
        """Whether the table is being read."""
        return self._updating.locked()

    def _update(self) -> None:
        if not self._updating.acquire(blocking=False):
            return
        try:
            while self.running and self._watched.now:
                self.html = str(self._look().html())
                time.sleep(UPDATE_SECONDS)
        except Exception as error:  # shown where the table is: the topic is gone, the session is closed
            self.html = str(element("pre", str(error), role="alert"))
            self.running = False
        finally:
            self._leave()
            self._updating.release()
