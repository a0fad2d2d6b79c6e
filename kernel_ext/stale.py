"""After each cell: which nodes of running applications have other code in the notebook now than the one that runs.

Cheap where nothing happened: a builder whose calls are the ones of the last look is not built again.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from kernel_ext.workspace import Workspace
from kstreams_repl.session import Application


class StaleNodes:
    """Keeps `Application.stale` up to date; call `look` when a cell has ended."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._seen: WeakKeyDictionary[Application, Any] = WeakKeyDictionary()

    def look(self) -> None:
        session = self._workspace.current
        for app in () if session is None or session.closed else tuple(session.applications.values()):
            log = getattr(app.definition, "_log", None)
            now = (app.topology, None if log is None else [(call, call.args, call.kwargs) for call in log.calls])
            if not _same(self._seen.get(app), now):
                self._seen[app] = now
                app.changes()


def _same(before: Any, now: Any) -> bool:
    if before is None or before[0] is not now[0] or (before[1] is None) != (now[1] is None):
        return False
    if now[1] is None:
        return True
    return len(before[1]) == len(now[1]) and all(
        one is other for old, new in zip(before[1], now[1], strict=True) for one, other in zip(old, new, strict=True)
    )
