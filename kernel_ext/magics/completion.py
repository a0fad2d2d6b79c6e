"""Completion of topics, stores, nodes, applications, columns and serdes in magics and in string arguments, as one v2 matcher of
IPython.

Names are looked up on a thread; a name that takes longer than a sixth of a second is offered at the next completion. A completion
starts no broker and no Spark, and evaluates nothing of the cell: it reads the receiver of a method only if that is a plain
variable.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from kernel_ext.magics.string_arguments import StringArgument, string_argument
from kernel_ext.workspace import Workspace
from kstreams_repl.engine.config import KEYS
from kstreams_repl.engine.dsl.graph.call_log import Handle
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.session import Application, Session
from kstreams_repl.repl.session.application.forks.fork_record import read_records
from kstreams_repl.repl.session.application.savepoints.savepoints import all_savepoints
from kstreams_repl.repl.session.views.tables.sql_catalog import all_stores

PATIENCE_SECONDS = 0.15
COLUMNS_SECONDS = 1.0
"""For columns: records are read to find them, and only the first completion waits."""
FRESH_SECONDS = 5.0

_SQL_CELL = re.compile(r"^\s*%%topo_sql\b")
_SQL_LINE = re.compile(r"^\s*%topo_sql\b")
_LINE = re.compile(r"^\s*%%?(topo\w*)\s")
_NAME = r'(?:"(?:[^"]|"")+"|\w+)'
_TABLES_IN = re.compile(
    rf"\b(?:from|join)\s+({_NAME}(?:\.{_NAME})*)"
    rf"(?:\s+(?:as\s+)?(?!(?:where|join|on|using|group|order|limit|left|right|inner|full|cross|asof|union|as)\b)({_NAME}))?",
    re.IGNORECASE,
)
"""Tables of a query and their aliases."""
_QUALIFIED = re.compile(rf"({_NAME})\.\w*$")
_TABLE_PLACE = re.compile(rf'\b(?:from|join)\s+(?:{_NAME}\.)*["\w.\-]*$', re.IGNORECASE)
_SOURCES = ("stream", "table", "global_table")
_SINKS = ("to", "through")
_APPLICATIONS = {"attach": 0, "deploy": 1, "cleanup": 0, "logs": 0, "plan": 1}
"""Methods that take an application's name, and the index of that argument."""
_NAMED = ("topic", "topics", "name", "target", "node", "query")


class NameMatcher:
    """The matcher and its cache of names."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._cache: dict[str, tuple[float, list[str]]] = {}
        self._busy: dict[str, threading.Event] = {}
        """Lookups in progress; the event is set at the end."""
        self._until = 0.0
        """Deadline of the current completion (monotonic clock)."""

        @context_matcher(identifier="kstreams_repl")
        def match(context: CompletionContext) -> SimpleMatcherResult:
            return self._match(context)

        self.match = match

    def _match(self, context: CompletionContext) -> SimpleMatcherResult:
        text = context.full_text
        before = context.text_until_cursor
        self._until = time.monotonic() + PATIENCE_SECONDS
        first = text.lstrip().split("\n", 1)[0]
        if _SQL_CELL.match(first):
            names = self._sql_names(text, before)
        elif _SQL_LINE.match(before):
            names = self._sql_names(context.line_with_cursor, before)
        elif call := _LINE.match(before):
            names = self._magic_names(call.group(1), before)
        else:
            lines = text.split("\n")
            argument = string_argument("\n".join([*lines[: context.cursor_line], before]))
            found_names = None if argument is None else self._argument_names(argument, text)
            if argument is None or not found_names:
                return {"completions": [], "suppress": False}
            names = found_names
            before = argument.text
        token = re.search(r'["\w.\-/]*$' if names and "/" in names[0] else r'["\w.\-]*$', before)
        start = token.group() if token else ""
        prefix = start.strip('"').lower()
        hits = [name for name in names if name.strip('"').lower().startswith(prefix)]
        fragment = context.token
        # the shell replaces only its own token; a name with hyphens is cut at the start of that token
        cut = len(start) - len(fragment) if start.endswith(fragment) else 0
        completions = [SimpleCompletion(text=name[cut:], type="kstreams") for name in hits]
        return {"completions": completions, "suppress": bool(completions), "matched_fragment": fragment}

    def _argument_names(self, argument: StringArgument, text: str) -> list[str]:
        """Return the candidates for a string that is an argument of one of this package's methods; none for other objects'
        methods."""
        owner = None if argument.owner is None else self._workspace.shell.user_ns.get(argument.owner)
        ours = isinstance(owner, Session | Application | Handle)
        chained = argument.owner is None and argument.method in _SINKS
        if not ours and not chained:
            return []
        if argument.keyword in ("key_serde", "value_serde"):
            return ["bytes", "double", "integer", "json", "long", "string"]
        if argument.keyword == "from_savepoint" and isinstance(owner, Session):
            return [f"{saved.application}/{saved.name}" for saved in all_savepoints(owner.directory.path)]
        if argument.keyword is not None and argument.keyword not in _NAMED:
            return []
        method = argument.method
        if method == "sql" and isinstance(owner, Session | Application):
            names = self._sql_names(_whole_string(argument, text), argument.text)
            return [name.replace('"', '\\"') for name in names] if argument.quote == '"' else names
        if isinstance(owner, Application):
            nodes = list(owner.topology.nodes)
            return {"store": [store.name for store in all_stores(owner.topology)], "tap": nodes, "tail": nodes}.get(method, [])
        if isinstance(owner, Session):
            if method in _APPLICATIONS and argument.index == _APPLICATIONS[method]:
                return self._applications()
            if argument.index > 0 and method != "record":
                return []
            return {
                "values": [*self._topics(), *self._nodes()],
                "spark_frame": [*self._topics(), *self._stores()],
                **dict.fromkeys(("read", "produce", "record", "create_topic", "serdes_of"), self._topics()),
            }.get(method, [])
        return self._topics() if method in (*_SOURCES, *_SINKS) and argument.index == 0 else []

    def _applications(self) -> list[str]:
        session = self._workspace.current
        names = [] if session is None else [*session.applications, *session.files.names()]
        return list(dict.fromkeys(names))

    def _groups(self) -> list[str]:
        session = self._workspace.current
        return list(session.admin.groups()) if session is not None and session.started else []

    def _magic_names(self, magic: str, before: str) -> list[str]:
        if magic == "topo_connect":
            return ["--spark", "--directory"]
        if re.search(r"(-c|--config)\s+\S*$", before):
            return [f"{name}=" for name in KEYS]
        if magic in ("topo_pause", "topo_resume", "topo_stop", "topo_stores", "topo_logs"):
            session = self._workspace.current
            return list(session.applications) if session is not None else []
        if magic == "topo_remove":
            return [*dict.fromkeys([*self._applications(), *(left.name for left in self._workspace.left)]), "--dry-run"]
        if magic in ("topo_values", "topo_tail"):
            return [*self._topics(), *self._nodes(), *self._workspace.names()]
        if magic == "topo_look":
            return [*self._groups(), "--describe"]
        if magic == "topo_query":
            return [*self._stores(), "--from", "--to", "--as-of"]
        if magic in ("topo_promote", "topo_drop"):
            session = self._workspace.current
            return [] if session is None else [record.id for record in read_records(session.directory.path)]
        if magic == "topo_fork":
            return [*self._workspace.names(), "--dry-run", "--allow"]
        if magic == "topo_compare":
            return [*self._workspace.names(), "--records", "--start", "--end", "--calls", "--samples"]
        if magic == "topo_edit":
            return [*self._workspace.names(), *self._nodes(), "--dry-run", "--reset-state"]
        return self._workspace.names()

    def _sql_names(self, text: str, before: str) -> list[str]:
        """Return the names that fit before the cursor: tables after FROM and JOIN, a table's columns after its name or alias and a dot,
        else columns of the query's tables, then tables."""
        tables = [_quoted(name) for name in dict.fromkeys([*self._stores(), *self._topics()])]
        if _TABLE_PLACE.search(before):
            return tables
        used = _TABLES_IN.findall(text)[:5]
        if qualified := _QUALIFIED.search(before):
            of = {name.lower(): table for table, alias in used for name in (table, alias) if name}
            table = of.get(qualified[1].lower()) or (qualified[1] if qualified[1] in tables else "")
            return [f"{qualified[1]}.{column}" for column in self._columns(table)] if table else []
        columns = [column for table, _ in used for column in self._columns(table)]
        return list(dict.fromkeys([*columns, *tables]))

    def _topics(self) -> list[str]:
        return self._cached("topics", lambda session: list(session.admin.topics()))

    def _columns(self, table: str) -> list[str]:
        def read(session: Session) -> list[str]:
            result = session.sql(f"SELECT * FROM {table} LIMIT 0", topic_limit=200, store_limit=200)
            return [_quoted(column) for column in result.columns]

        return self._cached(f"columns of {table}", read, patience=COLUMNS_SECONDS)

    def _stores(self) -> list[str]:
        session = self._workspace.current
        return [] if session is None else [builder.name for app in session.applications.values() for builder in all_stores(app.topology)]

    def _nodes(self) -> list[str]:
        session = self._workspace.current
        return [] if session is None else [name for app in session.applications.values() for name in app.topology.nodes]

    def _cached(self, what: str, read: Callable[[Session], list[str]], *, patience: float = 0.0) -> list[str]:
        session = self._workspace.current
        if session is None or not session.started:
            return []
        cached_at, names = self._cache.get(what, (0.0, []))
        if time.monotonic() - cached_at < FRESH_SECONDS:
            return names
        done = self._busy.get(what) or self._start_read(what, session, names, read)
        done.wait(max(0.0, self._until - time.monotonic(), 0.0 if names else patience))
        cached: list[str] = self._cache.get(what, (0.0, names))[1]
        return cached

    def _start_read(self, what: str, session: Session, former: list[str], read: Callable[[Session], list[str]]) -> threading.Event:
        done = self._busy[what] = threading.Event()

        def work() -> None:
            try:
                self._cache[what] = (time.monotonic(), read(session))
            except Exception:  # no broker, or an incomplete query: nothing to offer, and a thread must not print
                self._cache[what] = (time.monotonic(), former)
            finally:
                del self._busy[what]
                done.set()

        threading.Thread(target=work, name="kstreams-completion", daemon=True).start()
        return done


def _whole_string(argument: StringArgument, text: str) -> str:
    """Return the whole string, with the part after the cursor: in a query the tables come after the columns."""
    end = text.rfind(argument.text) + len(argument.text) if argument.text else len(text)
    return argument.text + text[end:].partition(argument.quote)[0]


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in ("offset", "partition") else quote_identifier(name)
