"""Finds, after each cell, the nodes of running applications whose code in the notebook differs from the code that runs.

A builder is rebuilt only if its calls changed since the last check, or if what their functions read has changed; otherwise the
check is cheap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from kernel_ext.workspace import Workspace
from kstreams_repl.engine.topology.differences.fingerprint import all_names, is_users
from kstreams_repl.repl.session import Application


class StaleNodes:
    """Keeps which nodes are stale up to date; call `check` when a cell has ended."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._seen: WeakKeyDictionary[Application, Any] = WeakKeyDictionary()

    def check(self) -> None:
        session = self._workspace.current
        for app in () if session is None or session.closed else tuple(session.applications.values()):
            log = getattr(app._core.definition, "_log", None)
            now = (app.topology, None if log is None else [(call, call.args, call.kwargs, *_read_by(call)) for call in log.calls])
            if not _same(self._seen.get(app), now):
                self._seen[app] = now
                app.changes()


def _same(before: Any, now: Any) -> bool:
    if before is None or before[0] is not now[0] or (before[1] is None) != (now[1] is None):
        return False
    if now[1] is None:
        return True
    return len(before[1]) == len(now[1]) and all(
        len(old) == len(new) and all(one is other for one, other in zip(old, new, strict=True))
        for old, new in zip(before[1], now[1], strict=True)
    )


def _read_by(call: Any) -> list[object]:
    """Return what the functions of a call read from the notebook and from modules: helpers that a cell or `%autoreload` may
    change."""
    found: dict[int, object] = {}

    def visit(item: object) -> None:
        item = getattr(item, "__func__", item)
        if isinstance(item, type) and is_users(item.__module__):
            for value in tuple(vars(item).values()):
                visit(value)
        elif isinstance(item, FunctionType) and is_users(item.__module__) and id(item.__code__) not in found:
            found[id(item.__code__)] = item.__code__
            for value in _named_in(item.__code__, item.__globals__):
                if id(value) not in found:
                    found[id(value)] = value
                    visit(value)

    for item in (*call.args, *call.kwargs.values()):
        with suppress(Exception):  # a user's object may raise when it is inspected
            visit(item)
    return list(found.values())


def _named_in(code: CodeType, known: dict[str, object]) -> Iterator[object]:
    """Yield what a code object reads from a module, and from modules that it names."""
    names = sorted(all_names(code))
    for value in (known[name] for name in names if name in known):
        yield value
        if isinstance(value, ModuleType) and is_users(value.__name__):
            yield from (vars(value)[name] for name in names if name in vars(value))
