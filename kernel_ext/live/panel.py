"""The control panel: an application's live picture with buttons, as an anywidget. `live_picture.LivePicture` holds its state."""

from __future__ import annotations

from collections.abc import Callable

import anywidget
import traitlets

from kernel_ext.live.live_picture import LivePicture
from kernel_ext.live.subshells import handle_in_subshell
from kstreams_repl.pictures.front_end import bundle
from kstreams_repl.repl.session import Application


class Panel(anywidget.AnyWidget):
    """The panel of one application, for several views. `svg`, `failure`, `detail`, `about`, `values` are markup; the others are
    text."""

    _esm = bundle("panel.js")

    name = traitlets.Unicode("").tag(sync=True)
    svg = traitlets.Unicode("").tag(sync=True)
    marks = traitlets.Dict({}).tag(sync=True)
    flows: traitlets.List[object] = traitlets.List([]).tag(sync=True)
    view = traitlets.Dict({}).tag(sync=True)
    history: traitlets.List[object] = traitlets.List([]).tag(sync=True)
    shape_history: traitlets.List[object] = traitlets.List([]).tag(sync=True)
    beat = traitlets.Int(0).tag(sync=True)
    detached = traitlets.Bool(False).tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)
    busy = traitlets.Bool(False).tag(sync=True)
    changed = traitlets.Bool(False).tag(sync=True)
    planned = traitlets.Bool(False).tag(sync=True)
    outdated = traitlets.Bool(False).tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    failure = traitlets.Unicode("").tag(sync=True)
    detail = traitlets.Unicode("").tag(sync=True)
    about = traitlets.Unicode("").tag(sync=True)
    values = traitlets.Unicode("").tag(sync=True)
    paging = traitlets.Dict({}).tag(sync=True)

    def __init__(self, application: Application, kernel_busy: Callable[[], bool] = lambda: False) -> None:
        self.live = LivePicture(application, self._set_traits, kernel_busy)
        super().__init__(**self.live.state)
        handle_in_subshell(self.comm)
        self.live.refresh()
        self.on_msg(lambda widget, content, buffers: self.live.receive(content))

    @property
    def is_closed(self) -> bool:
        """Return whether it is closed, by the kernel or by a front end: a new view of it would find no model."""
        return self.comm is None or bool(getattr(self.comm, "_closed", False))

    def _set_traits(self, changed: dict[str, object]) -> None:
        with self.hold_sync():
            for name, value in changed.items():
                setattr(self, name, value)
