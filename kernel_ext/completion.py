"""Completion of topics, stores, nodes, applications and columns inside the magics, by one v2 matcher.

Names are looked up on a thread; what is not there within a fifth of a second is offered the next time. Nothing is started for a completion.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from kernel_ext.workspace import Workspace
from kstreams_repl.config import KEYS
from kstreams_repl.inspection.sandbox import quote_identifier
from kstreams_repl.session import Session
from kstreams_repl.session.tables import all_stores

PATIENCE_SECONDS = 0.2
FRESH_SECONDS = 5.0

_SQL_CELL = re.compile(r"^\s*%%topo_sql\b")
_SQL_LINE = re.compile(r"^\s*%topo_sql\b")
_LINE = re.compile(r"^\s*%%?(topo\w*)\s")
_TABLES_IN = re.compile(r'\b(?:from|join)\s+("(?:[^"]|"")+"|[\w.]+)', re.IGNORECASE)


class NameMatcher:
    """The matcher, and what it remembers."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._kept: dict[str, tuple[float, list[str]]] = {}
        self._busy: set[str] = set()

        @context_matcher(identifier="kstreams_repl")
        def match(context: CompletionContext) -> SimpleMatcherResult:
            return self._match(context)

        self.match = match

    def _match(self, context: CompletionContext) -> SimpleMatcherResult:
        text = context.full_text
        before = context.text_until_cursor
        first = text.lstrip().split("\n", 1)[0]
        if _SQL_CELL.match(first):
            names = self._sql_names(text)
        elif _SQL_LINE.match(before):
            names = self._sql_names(context.line_with_cursor)
        elif found := _LINE.match(before):
            names = self._magic_names(found.group(1), before)
        else:
            return {"completions": [], "suppress": False}
        token = re.search(r'["\w.\-]*$', before)
        start = token.group() if token else ""
        wanted = start.strip('"').lower()
        hits = [name for name in names if name.strip('"').lower().startswith(wanted)]
        fragment = context.token
        # the shell replaces its own token only; a name with hyphens is cut where that begins
        cut = len(start) - len(fragment) if start.endswith(fragment) else 0
        completions = [SimpleCompletion(text=name[cut:], type="kstreams") for name in hits]
        return {"completions": completions, "suppress": bool(completions), "matched_fragment": fragment}

    def _magic_names(self, magic: str, before: str) -> list[str]:
        if magic == "topo_connect":
            return ["--spark", "--directory"]
        if re.search(r"(-c|--config)\s+\S*$", before):
            return [f"{name}=" for name in KEYS]
        if magic in ("topo_pause", "topo_resume", "topo_stop", "topo_stores", "topo_logs"):
            session = self._workspace.current
            return list(session.applications) if session is not None else []
        if magic in ("topo_peek", "topo_tail"):
            return [*self._topics(), *self._nodes(), *self._workspace.names()]
        if magic == "topo_edit":
            return [*self._workspace.names(), *self._nodes(), "--dry-run", "--reset-state"]
        return self._workspace.names()

    def _sql_names(self, text: str) -> list[str]:
        names = [_quoted(name) for name in dict.fromkeys([*self._stores(), *self._topics()])]
        for found in _TABLES_IN.findall(text)[:5]:
            names += self._columns(found)
        return list(dict.fromkeys(names))

    def _topics(self) -> list[str]:
        return self._remembered("topics", lambda session: list(session.admin.topics()))

    def _columns(self, table: str) -> list[str]:
        def read(session: Session) -> list[str]:
            result = session.sql(f"SELECT * FROM {table} LIMIT 0", records=200, rows=200)
            return [_quoted(column) for column in result.columns]

        return self._remembered(f"columns of {table}", read)

    def _stores(self) -> list[str]:
        session = self._workspace.current
        return [] if session is None else [builder.name for app in session.applications.values() for builder in all_stores(app)]

    def _nodes(self) -> list[str]:
        session = self._workspace.current
        return [] if session is None else [name for app in session.applications.values() for name in app.topology.nodes]

    def _remembered(self, what: str, look: Callable[[Session], list[str]]) -> list[str]:
        session = self._workspace.current
        if session is None or not session.started:
            return []
        at, names = self._kept.get(what, (0.0, []))
        if time.monotonic() - at < FRESH_SECONDS or what in self._busy:
            return names
        done = threading.Event()
        self._busy.add(what)

        def work() -> None:
            try:
                self._kept[what] = (time.monotonic(), look(session))
            except Exception:  # no broker, a query that is not whole yet: there is nothing to offer, and a thread prints nothing
                self._kept[what] = (time.monotonic(), names)
            finally:
                self._busy.discard(what)
                done.set()

        threading.Thread(target=work, name="kstreams-completion", daemon=True).start()
        done.wait(PATIENCE_SECONDS)
        found: list[Any] = self._kept.get(what, (0.0, names))[1]
        return found


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in ("offset", "partition") else quote_identifier(name)
