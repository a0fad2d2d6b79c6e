"""`Extension`: what is loaded into one IPython shell and unloaded again: magics, completion, error display, cell tracking."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from weakref import WeakKeyDictionary

from kernel_ext.cell_tracker import CellTracker
from kernel_ext.errors import show_error
from kernel_ext.live.progress_bar import ProgressBar
from kernel_ext.live.side_panel import SidePanel
from kernel_ext.magics.arguments import give_help
from kernel_ext.magics.batch_magics import BatchMagics
from kernel_ext.magics.completion import NameMatcher
from kernel_ext.magics.fork_magics import ForkMagics
from kernel_ext.magics.query_magic import QueryMagics
from kernel_ext.magics.topo_magics import TopoMagics
from kernel_ext.stale_nodes import StaleNodes
from kernel_ext.workspace import Workspace
from kstreams_repl.host.kafka.embedded.jars import KAFKA_VERSION
from kstreams_repl.pictures.graph.objects import install
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session import Application
from kstreams_repl.repl.session.progress_messages import report_to, to_stderr
from kstreams_repl.system.errors import KStreamsError, WaitInterrupted

_ATTRIBUTE = "_kstreams_repl_extension"


class Extension:
    """The extension that is loaded into a shell; `Extension.of(shell)` returns it."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.workspace = Workspace(shell)
        self._panels: WeakKeyDictionary[Application, Any] = WeakKeyDictionary()
        self._cells = CellTracker(shell)
        self._matcher = NameMatcher(self.workspace)
        self._magics = TopoMagics(shell, self.workspace)
        self._batch_magics = BatchMagics(shell, self.workspace)
        self._fork_magics = ForkMagics(shell, self.workspace)
        self._queries = QueryMagics(shell, self.workspace)
        self._stale = StaleNodes(self.workspace)
        self._cells.after_cell(self._stale.check)
        self._side_panel = SidePanel(self.workspace, lambda: self._cells.running)

    @staticmethod
    def of(shell: object) -> Extension | None:
        found = getattr(shell, _ATTRIBUTE, None)
        return found if isinstance(found, Extension) else None

    def load(self) -> None:
        install()
        in_kernel = getattr(self.shell, "kernel", None) is not None
        report_to(print, ProgressBar if in_kernel else None)  # a terminal cannot update what it has shown
        for magics in (self._magics, self._batch_magics, self._fork_magics, self._queries):
            give_help(magics)
            self.shell.register_magics(magics)
        if self._magics not in self.shell.configurables:  # for %config
            self.shell.configurables.append(self._magics)
        self._cells.start()
        self.shell.Completer.custom_matchers.append(self._matcher.match)
        self.shell.set_custom_exc((KStreamsError, WaitInterrupted), show_error)
        if self._has_widgets():
            self._magics.live_tail = self.live_tail
            self.shell.display_formatter.mimebundle_formatter.for_type(Application, self.show_application)
        self._side_panel.register(getattr(getattr(self.shell, "kernel", None), "comm_manager", None))
        setattr(self.shell, _ATTRIBUTE, self)
        print(self.greeting())

    def unload(self) -> None:
        for registered in (self._magics, self._batch_magics, self._fork_magics, self._queries):
            for kind, magics in registered.magics.items():
                for name in magics:
                    self.shell.magics_manager.magics[kind].pop(name, None)
        if self._magics in self.shell.configurables:
            self.shell.configurables.remove(self._magics)
        self._cells.stop()
        self._side_panel.unregister()
        report_to(to_stderr)
        matchers = self.shell.Completer.custom_matchers
        matchers[:] = [matcher for matcher in matchers if matcher != self._matcher.match]
        self.shell.set_custom_exc((), None)
        self.shell.display_formatter.mimebundle_formatter.type_printers.pop(Application, None)
        delattr(self.shell, _ATTRIBUTE)

    def _has_widgets(self) -> bool:
        """Return whether this is a kernel, not a terminal, that has the libraries of the panel."""
        libraries = all(importlib.util.find_spec(name) is not None for name in ("ipywidgets", "anywidget"))
        return libraries and getattr(self.shell, "kernel", None) is not None

    def show_application(self, app: Application, include: object = None, exclude: object = None) -> object:
        """Show text, picture, and the panel where widgets are available; one panel per application."""
        bundle = app._repr_mimebundle_()
        from kernel_ext.live.panel import Panel

        panel = self._panels.get(app)
        if panel is None or panel.is_closed:
            panel = self._panels[app] = Panel(app, lambda: self._cells.running)
        view = panel._repr_mimebundle_() or {}
        data, metadata = view if isinstance(view, tuple) else (view, {})
        return {**data, **bundle}, metadata

    def live_tail(self, read: Callable[[], Table], title: str, close: Callable[[], None]) -> object:
        """Return a live table with a Stop button."""
        from kernel_ext.live.tail_view import TailView

        return TailView(read, title, close=close, kernel_busy=lambda: self._cells.running)

    def greeting(self) -> str:
        """Return three lines: broker, Spark, first steps."""
        session = self.workspace.current
        broker = repr(session) if session is not None else f"embedded Kafka {KAFKA_VERSION}, started when it is first needed"
        return "\n".join(
            [
                f"broker  {broker}",
                f"Spark   {_spark()}",
                "next    session = kstreams_repl.connect()   ·   builder = kstreams_repl.StreamsBuilder()   ·   %topo_connect?",
            ]
        )


def _spark() -> str:
    if importlib.util.find_spec("pyspark") is None:
        return "not installed: pip install 'kstreams-repl[spark]'"
    try:
        return f"{version('pyspark')}, starts in the background"
    except PackageNotFoundError:
        return "found, starts in the background"
