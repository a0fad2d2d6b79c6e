"""`Extension`: what is loaded into one IPython shell, and taken out again: magics, completion, error display, cell tracking."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kernel_ext.cells import CellTracker
from kernel_ext.completion import NameMatcher
from kernel_ext.errors import show_error
from kernel_ext.magics import TopoMagics
from kernel_ext.workspace import Workspace
from kstreams_repl.display.objects import install
from kstreams_repl.errors import KStreamsError
from kstreams_repl.kafka.embedded.jars import KAFKA_VERSION

_ATTRIBUTE = "_kstreams_repl_extension"


class Extension:
    """The loaded extension of a shell; `Extension.of(shell)` finds it."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.workspace = Workspace(shell)
        self._cells = CellTracker(shell)
        self._matcher = NameMatcher(self.workspace)
        self._magics = TopoMagics(shell, self.workspace)

    @staticmethod
    def of(shell: Any) -> Extension | None:
        found = getattr(shell, _ATTRIBUTE, None)
        return found if isinstance(found, Extension) else None

    def load(self) -> None:
        install()
        self.shell.register_magics(self._magics)
        self._cells.start()
        self.shell.Completer.custom_matchers.append(self._matcher.match)
        self.shell.set_custom_exc((KStreamsError,), show_error)
        setattr(self.shell, _ATTRIBUTE, self)
        print(self.greeting())

    def unload(self) -> None:
        for kind, magics in self._magics.magics.items():
            for name in magics:
                self.shell.magics_manager.magics[kind].pop(name, None)
        self._cells.stop()
        matchers = self.shell.Completer.custom_matchers
        matchers[:] = [matcher for matcher in matchers if matcher != self._matcher.match]
        self.shell.set_custom_exc((), None)
        delattr(self.shell, _ATTRIBUTE)

    def greeting(self) -> str:
        """Three lines: broker, Spark, what next."""
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
        return f"{version('pyspark')}, started by the first deploy"
    except PackageNotFoundError:
        return "found, started by the first deploy"
