"""The magics: ``%topo…``. Each is one call of the Python API, named in its docstring."""

from __future__ import annotations

import ast
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, line_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display
from traitlets import Float, Integer

from kernel_ext.magics.arguments import arguments, setting
from kernel_ext.magics.node_edits import EDIT_FUNCTION, EDITED, EditOptions, edit_text
from kernel_ext.workspace import Workspace
from kstreams_repl.engine.dsl.graph.call_log import Handle
from kstreams_repl.engine.topology.description.source_location import running_cell
from kstreams_repl.host.instance.control.node_taps import MOST_ROWS
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.doc_search import search
from kstreams_repl.repl.inspection.sandbox import quote_identifier
from kstreams_repl.repl.look import Look, look
from kstreams_repl.repl.session import Application, ReadRecord, Records
from kstreams_repl.repl.session.application.edits.edit import EditPlan, refuse_rolled_back
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.applications import applications_table
from kstreams_repl.repl.session.cleanup import Cleanup
from kstreams_repl.repl.session.source.cell_history import history
from kstreams_repl.repl.session.source.source_slice import deployed_as
from kstreams_repl.repl.session.topics.filtering import records_where
from kstreams_repl.repl.session.views.values.live_taps import LiveTap
from kstreams_repl.system.extras import extras

if TYPE_CHECKING:
    from argparse import Namespace

    import pandas as pd
    from IPython.core.interactiveshell import InteractiveShell

UPDATES_PER_SECOND = 3


@magics_class
class TopoMagics(Magics):
    """Thin calls of `kstreams_repl.Session` and `kstreams_repl.Application`."""

    values_rows = Integer(10, min=1, help="default of %topo_values -n").tag(config=True)
    values_timeout = Float(5.0, min=0.0, help="default of %topo_values --timeout, in seconds").tag(config=True)
    tail_rows = Integer(20, min=1, help="default of %topo_tail -n").tag(config=True)
    sql_rows = Integer(100, min=1, help="default of %topo_sql -n").tag(config=True)

    def __init__(self, shell: InteractiveShell, workspace: Workspace) -> None:
        super().__init__(shell)
        self._shell = shell
        self._workspace = workspace
        self.live_tail: Callable[[Callable[[], Table], str, Callable[[], None]], object] | None = None
        """Makes a live table from (function that reads it, title, function called at its end); None without widgets."""

    @magic_arguments()
    @argument("broker", nargs="?", help="host:port, comma separated; default: the embedded broker")
    @argument("--spark", metavar="MASTER", help="a Spark master; default: local Spark, started in the background")
    @argument("--directory", help='directory of data and state; "temporary": a temporary one; default: ./.kstreams')
    @line_magic
    def topo_connect(self, line: str) -> object:
        """`kstreams_repl.connect(...)`; the session is in the variable `session`."""
        given = arguments(self.topo_connect, line)
        return self._workspace.connect(given.broker, spark=given.spark, directory=given.directory).start()

    @magic_arguments()
    @argument("application", help="the application.id of an application that runs elsewhere")
    @argument("broker", nargs="?", help="host:port, comma separated; default: the session's")
    @argument("--describe", metavar="FILE", help="a file with the text of its topology.describe()")
    @line_magic
    def topo_look(self, line: str) -> Look:
        """`kstreams_repl.look(...)`: an application that runs elsewhere, read-only; nothing is changed."""
        given = arguments(self.topo_look, line)
        text = None if given.describe is None else Path(given.describe).read_text(encoding="utf-8")
        return look(given.application, given.broker or self._workspace.session.bootstrap_servers, describe=text)

    @line_cell_magic
    def topo(self, line: str, cell: str | None = None) -> object:
        """``%topo``: a table of applications · ``%topo NAME``: its picture · ``%%topo NAME``: plain DSL with the variable `builder`."""
        name = line.strip()
        if cell is not None:
            return self._define(name, cell)
        return self._workspace.find(name) if name else self._status()

    def _define(self, name: str, cell: str) -> object:
        if not name or len(name.split()) > 1:
            raise UsageError(f"%%topo expects one name, got {name!r}; for example %%topo word_count")
        builder = self._workspace.builder(name)
        namespace = self._shell.user_ns
        namespace["builder"] = builder
        source = self._shell.transform_cell(cell)
        file = self._shell.compile.cache(source, history.number or self._shell.execution_count, raw_code=cell)
        own = name if self._workspace.builders.get(name) is not builder else None
        begin = f"builder = {own or f'__builders__.setdefault({name!r}, kstreams_repl.StreamsBuilder())'}"
        run = running_cell()
        history.note("" if run is None else run.cell, source, file=file, before=begin)
        exec(compile(ast.parse(source, file), file, "exec"), namespace)
        return builder

    def _status(self) -> Table:
        session = self._workspace.current
        return applications_table([] if session is None else session.applications.values(), self._workspace.left)

    @magic_arguments()
    @argument("name", help="a builder, topology or stream: a variable, or the name given to %%%%topo")
    @argument("application", nargs="?", help="the application id; default: the name")
    @argument("--dry-run", action="store_true", help="show what would be created and run; start nothing")
    @argument("--detached", action="store_true", help="run it in a separate driver process, which continues when this kernel ends")
    @argument("--create-topics", action="store_true", help="create missing output topics")
    @argument(
        "--start", metavar="earliest|latest|DATE",
        help="where partitions without a committed offset start; DATE: for example 2013-03-01",
    )
    @argument(
        "-c", "--config", action="append", default=[], metavar="KEY=VALUE", help="a setting by its Kafka Streams name; repeatable"
    )
    @line_magic
    def topo_deploy(self, line: str) -> object:
        """`session.deploy(topology, name, ...)`; returns at once."""
        given = arguments(self.topo_deploy, line)
        settings = dict(map(setting, given.config))
        topology, name = self._workspace.source(given.name), given.application or given.name
        if given.dry_run:
            return self._workspace.session.plan(topology, name, config=settings, start=given.start)
        with deployed_as(self._workspace.expression(given.name)):
            options = {"config": settings, "start": given.start, "detached": given.detached, "create_topics": given.create_topics}
            return self._workspace.session.deploy(topology, name, **options)

    @magic_arguments()
    @argument("application", help="the application")
    @argument("name", nargs="?", help="the changed builder or topology; default: the application's name")
    @line_magic
    def topo_diff(self, line: str) -> object:
        """`app.edit(topology, dry_run=True)`: show what an edit would do to every node and store."""
        given = arguments(self.topo_diff, line)
        app = self._workspace.application(given.application)
        return app.edit(self._workspace.source(given.name or given.application), dry_run=True)

    @magic_arguments()
    @argument("application", help="the application")
    @argument("name", nargs="?", help="the changed builder or topology; default: the application's name")
    @argument("--records", type=int, help="about how many input records; default: 100,000")
    @argument("--start", help="instead of --records: the commit to begin from: a time, '10 minutes ago', 'commit 12'")
    @argument("--end", help="the commit to end at; default: the last one")
    @argument("--calls", action="store_true", help="call functions of asynchronous nodes where no answer is recorded")
    @argument("--samples", type=int, default=20, help="rows kept of each output and store")
    @line_magic
    def topo_compare(self, line: str) -> object:
        """`app.compare(topology)`: process the application's records with the changed topology, too; which rows differ, from which node on.
        """
        given = arguments(self.topo_compare, line)
        app = self._workspace.application(given.application)
        options = {name: getattr(given, name) for name in ("records", "start", "end", "calls", "samples")}
        return app.compare(self._workspace.source(given.name or given.application), **options)

    @magic_arguments()
    @argument("application", help="the application")
    @argument("node", nargs="?", help="cell magic: the node whose function the cell replaces; line magic: the changed builder or topology")
    @argument("--dry-run", action="store_true", help="show the plan only; change neither application nor builder")
    @argument(
        "--reset-state", action="append", nargs="?", const="", default=[], metavar="STORE",
        help="a store to empty; default: the node's stores; repeatable",
    )  # fmt: skip
    @argument(
        "--migrate", action="append", default=[], metavar="STORE=FUNCTION",
        help='convert each value of a store by a function of key and value: its name, or "counts=lambda key, value: ..."; repeatable',
    )  # fmt: skip
    @argument(
        "--migrate-rows", action="append", default=[], metavar="STORE=FUNCTION",
        help="convert each row by a function that returns the new (key, value); repeatable",
    )  # fmt: skip
    @no_var_expand
    @line_cell_magic
    def topo_edit(self, line: str, cell: str | None = None) -> object:
        """`app.edit(builder.replace(node, function))`: the cell's lambda, def or class replaces that node's function.

        ``%topo_edit NAME`` applies the builder as other cells have changed it, `app.edit(builder)`; so does ``%%topo_edit NAME``,
        whose body changes it first (variable `builder`). The plan is shown; a refused plan changes nothing."""
        given = arguments(self.topo_edit, line)
        app = self._workspace.application(given.application)
        if cell is not None and given.node:
            return self._edit_node(app, given, cell)
        name = given.node or given.application
        if cell is not None:
            self._define(name, cell)
        if "" in given.reset_state:
            raise UsageError("--reset-state expects a store's name without a node, for example --reset-state counts")
        what = EditOptions.of(given, given.reset_state, self._shell.user_ns)
        with deployed_as(self._workspace.expression(name)):
            source = self._workspace.source(name)
            plan = self._plan(app, source, what)
            return plan if given.dry_run else app.edit(source, **what.arguments)

    def _edit_node(self, app: Application, given: Namespace, cell: str) -> EditPlan:
        held = self._shell.user_ns.get(given.node)
        node = str(getattr(held, "name", given.node)) if isinstance(held, Handle) else given.node
        definition, builder, expression = self._workspace.definition(app, given.application)
        log = builder._log
        source = edit_text(node, self._shell.transform_cell(cell), log.functions_of(node))
        file = self._shell.compile.cache(source, history.number or self._shell.execution_count, raw_code=cell)
        undo = [log.remember()]
        self._shell.user_ns[EDITED] = builder
        try:
            exec(compile(source, file, "exec"), self._shell.user_ns)
            what = EditOptions.of(given, self._reset(definition, app, node, given.reset_state), self._shell.user_ns)
            plan = self._plan(app, definition, what)
            refuse_rolled_back(app._core, plan, node)
            if given.dry_run:
                return plan
            if expression is not None:
                run = running_cell()
                undo.append(history.note("" if run is None else run.cell, source, file=file, before=f"{EDITED} = {expression}"))
            with deployed_as(expression) if expression and definition is builder else nullcontext():
                plan = app.edit(definition, **what.arguments)
            undo.clear()
            return plan
        finally:
            for take_back in undo:
                take_back()
            for name in [name for name in self._shell.user_ns if name == EDITED or name.startswith(EDIT_FUNCTION)]:
                del self._shell.user_ns[name]

    def _reset(self, definition: object, app: Application, node: str, named: list[str]) -> list[str]:
        if "" not in named:
            return named
        own = getattr(topology_of(definition, app.config).node(node), "stores", ())
        if not own:
            raise UsageError(f"{node} has no store; name one: --reset-state STORE")
        return [*(name for name in named if name), *own]

    def _plan(self, app: Application, source: object, what: EditOptions) -> EditPlan:
        plan = app.edit(source, dry_run=True, **what.arguments)
        if plan.diff.refused:
            display(plan)  # shown in full; the error that follows is a summary in three lines
        return plan

    @magic_arguments()
    @argument("name", nargs="?", help="the application")
    @argument("--all", action="store_true", help="all applications of this session")
    @line_magic
    def topo_pause(self, line: str) -> None:
        """`app.pause()`: stop at a commit; pausing twice does nothing."""
        self._each(arguments(self.topo_pause, line), "pause", "paused")

    @magic_arguments()
    @argument("name", nargs="?", help="the application")
    @argument("--all", action="store_true", help="all applications of this session")
    @line_magic
    def topo_resume(self, line: str) -> None:
        """`app.resume()`: continue from the committed offsets."""
        self._each(arguments(self.topo_resume, line), "resume", "running")

    @magic_arguments()
    @argument("name", nargs="?", help="the application")
    @argument("--all", action="store_true", help="all applications of this session")
    @line_magic
    def topo_stop(self, line: str) -> None:
        """`app.stop()`: pause, and release what the application holds; topics, offsets and state stay."""
        self._each(arguments(self.topo_stop, line), "stop", "stopped")

    @magic_arguments()
    @argument("name", help="an application that is not running, attached or not")
    @argument("--dry-run", action="store_true", help="only list what would be deleted")
    @line_magic
    def topo_remove(self, line: str) -> Cleanup:
        """`session.cleanup(name)`: delete what an application leaves (internal topics, consumer group, local state)."""
        given = arguments(self.topo_remove, line)
        return self._workspace.session.cleanup(given.name, dry_run=given.dry_run)

    def _applications(self, name: str | None) -> list[Application]:
        """Return the application of that name; None: all of the session, if there is one."""
        if name is not None:
            return [self._workspace.application(name)]
        session = self._workspace.current
        return [] if session is None else list(session.applications.values())

    def _each(self, given: Namespace, action: str, reached: str) -> None:
        if given.all == (given.name is not None):
            raise UsageError(f"%topo_{action} expects either an application's name or --all")
        for app in self._applications(given.name):
            before = app.status
            started = time.monotonic()
            getattr(app, action)()
            took = f"in {time.monotonic() - started:.2f} s"
            print(f"{app.name}: already {before}" if before == reached else f"{app.name}: {app.status} {took}")

    @magic_arguments()
    @argument("target", help="a topic, a node, or a variable that holds a stream, table or builder")
    @argument("topology", nargs="?", help="the topology that contains the node, if it is not deployed")
    @argument("-n", type=int, help="number of values; default: TopoMagics.values_rows")
    @argument(
        "--timeout", type=float,
        help="seconds after which no larger sample is started; default: TopoMagics.values_timeout",
    )
    @argument("-o", "--output", metavar="NAME", help="assign a pandas DataFrame to this variable instead of showing the values")
    @line_magic
    def topo_values(self, line: str) -> object:
        """`session.values(target, n, timeout=...)`: the last values of a topic, or between two nodes by a sample run; at a node of a
        running application `app.tap(node, n, timeout=...)`: the next values, from the running tasks."""
        given = arguments(self.topo_values, line)
        topology = self._workspace.find(given.topology) if given.topology else None
        running = self._running(given.target, topology)
        n, seconds = self._rows(given.n, self.values_rows), self.values_timeout if given.timeout is None else given.timeout
        if running is not None:
            app = running[0]
            passed = app.tap(running[1], n, timeout=seconds)
            if len(passed) == 0:  # no record passes at the moment
                sampled = self._workspace.session.values(running[1], n, timeout=seconds, topology=app.topology, config=dict(app.config))
                if isinstance(sampled, Records):
                    why = f"a sample, because no record passed the running node within {seconds:g} s"
                    passed = Records(sampled, note=f"{sampled.note}\n{why}", title=sampled.title)
            return self._out(passed, given.output)
        found = self._workspace.session.values(self._target(given.target), n, timeout=seconds, topology=topology)
        return self._out(found, given.output)

    @magic_arguments()
    @argument("topic", help="a topic, or a node of a running application")
    @argument("-n", type=int, help="number of records shown; default: TopoMagics.tail_rows")
    @argument("--where", metavar="SQL", help="a SQL condition that the records must meet")
    @argument(
        "--timeout", type=float,
        help="seconds after which it stops; default: until the kernel is interrupted (Ctrl-C)",
    )
    @no_var_expand
    @line_magic
    def topo_tail(self, line: str) -> Any:
        """`session.read(topic, n)`, repeatedly in one live table, or `app.tail(node)` at a node of a running application; an
        interrupt stops only the view. In a notebook the table has a Stop button instead, and the next cells can run meanwhile."""
        given = arguments(self.topo_tail, line)
        session = self._workspace.session
        running = self._running(given.topic, None)
        if running is not None:
            app, node = running
            values = NodeValues(app, node, self._rows(given.n, self.tail_rows), given.where, named=given.topic)
            if self.live_tail is not None and given.timeout is None:
                return self.live_tail(values, f"{values.named} of {app.name}{f' where {given.where}' if given.where else ''}", values.close)
            return self._tail_node(values, given.timeout)
        session.read(given.topic, 0)
        query, n = None, self._rows(given.n, self.tail_rows)
        if given.where:
            place = f"topics.{quote_identifier(given.topic)}"
            query = f'SELECT * FROM {place} WHERE {given.where} ORDER BY timestamp DESC, "offset" DESC LIMIT {n}'
        deadline = None if given.timeout is None else time.monotonic() + given.timeout

        def read() -> Table:
            return session.read(given.topic, n).table() if query is None else session.sql(query, topic_limit=20_000).table()

        if self.live_tail is not None and deadline is None:
            return self.live_tail(read, f"{given.topic}{f' where {given.where}' if given.where else ''}", lambda: None)
        _show_live(read, lambda: deadline is None or time.monotonic() < deadline)
        return None

    @magic_arguments()
    @argument("-o", "--output", metavar="NAME", help="assign a pandas DataFrame to this variable instead of showing the rows")
    @argument("-n", type=int, help="number of rows shown; default: TopoMagics.sql_rows")
    @argument("--as-of", metavar="MOMENT", help="'10 minutes ago', 'commit 12', a record orders-0@17, or a time: stores as they were then")
    @argument("query", nargs="*", help="one SELECT over topics, stores and dataframes")
    @no_var_expand
    @line_cell_magic
    def topo_sql(self, line: str, cell: str | None = None) -> object:
        """`session.sql(query)`: DuckDB over topics, stores and your dataframes."""
        options, query = _split_options(line)
        given = arguments(self.topo_sql, options)
        query = f"{query}\n{cell or ''}".strip()
        if not query:
            raise UsageError("%topo_sql expects a query, for example %topo_sql SELECT * FROM my_topic")
        result = self._workspace.session.sql(query, as_of=given.as_of)
        return self._out(result if given.output else result.show(self._rows(given.n, self.sql_rows)), given.output)

    @magic_arguments()
    @argument("words", nargs="+", help="a question, or words of it")
    @line_magic
    def topo_help(self, line: str) -> Table:
        """`kstreams_repl.recipes.search(words)`: pages of the documentation, offline."""
        if not line.strip():
            raise UsageError("%topo_help expects words, for example %topo_help why is my join empty")
        return search(line)

    @magic_arguments()
    @argument("--all", action="store_true", help="include the applications' internal topics: changelogs, repartition topics, journals")
    @line_magic
    def topo_topics(self, line: str) -> object:
        """`session.topics()`."""
        return self._workspace.session.topics(internal=arguments(self.topo_topics, line).all)

    @magic_arguments()
    @argument("name", nargs="?", help="only this application")
    @line_magic
    def topo_stores(self, line: str) -> Table:
        """`app.stores` of every application: kind and rows."""
        given = arguments(self.topo_stores, line)
        apps = self._applications(given.name)
        rows = [(app.name, store.name, store.kind, store.count()) for app in apps for store in app.stores.values()]
        return Table.of(
            ("application", "store", "kind", "rows"), rows, note="" if rows else "no stores: no deployed topology is stateful"
        )

    @magic_arguments()
    @argument("name", nargs="?", help="only this application")
    @argument("-n", type=int, default=20, help="number of lines of each log")
    @line_magic
    def topo_logs(self, line: str) -> Table:
        """`session.logs(name, n=...)`: the last lines of the broker's and Spark's logs, and applications' failures."""
        given = arguments(self.topo_logs, line)
        name = None if given.name is None else self._workspace.application(given.name).name
        return self._workspace.session.logs(name, n=given.n)

    def _tail_node(self, values: NodeValues, seconds: float | None) -> None:
        deadline = None if seconds is None else time.monotonic() + seconds
        try:
            _show_live(values, lambda: values.running and (deadline is None or time.monotonic() < deadline))
        finally:
            values.close()

    @staticmethod
    def _rows(given: int | None, default: int) -> int:
        return default if given is None else given

    def _running(self, target: str, topology: object) -> tuple[Application, str] | None:
        """Return the running application that has a node of that name, or of the stream in the variable of that name."""
        session = self._workspace.current
        if session is None or (topology is not None and not isinstance(topology, Application)):
            return None
        value = self._shell.user_ns.get(target)
        node = str(getattr(value, "name", target)) if isinstance(value, Handle) else target
        apps = [topology] if topology is not None else list(session.applications.values())
        found = [app for app in apps if app.status == "running" and node in app.topology.nodes]
        if not found or (topology is None and session.started and node in session.admin.topics()):
            return None
        if len(found) > 1:
            raise UsageError(f"{node} is a node of {', '.join(app.name for app in found)}: %topo_values {node} APPLICATION")
        return found[0], node

    def _target(self, text: str) -> object:
        value = self._shell.user_ns.get(text)
        return value if hasattr(value, "_log") or isinstance(value, Application) else text

    def _out(self, found: Any, name: str | None) -> object:
        if name is None:
            return found
        if not name.isidentifier():
            raise UsageError(f"-o expects a variable name, got {name!r}")
        self._shell.user_ns[name] = found.df() if not isinstance(found, Table) else _frame(found)
        return None


class NodeValues:
    """Returns the last values at a node (those that meet the SQL condition `where`); a tap is active from the first call to `close`.

    Attributes:
        named: the node as the user named it, by a variable for example, and its own name.
    """

    def __init__(self, application: Application, node: str, n: int, where: str | None = None, *, named: str | None = None) -> None:
        self.named = node if named in (None, node) else f"{named} (node {node})"
        self._application = application
        self._node = node
        self._where = where
        self._last: deque[ReadRecord] = deque(maxlen=n)
        self._tap: LiveTap | None = None

    @property
    def running(self) -> bool:
        return self._application.status in ("starting", "running")

    def __call__(self) -> Table:
        if self._tap is None:
            self._tap = LiveTap(self._application._core, self._node, rows=MOST_ROWS if self._where else self._last.maxlen or 1).__enter__()
        fresh = self._tap.new()
        self._last.extend(fresh if self._where is None else records_where(fresh, self._where))
        note = f"{self.named}: live from {self._application.name} ({self._application.status}), {self._tap.count:,} passed"
        return Records(self._last, note=note if self._where is None else f"{note}; where {self._where}", title=self._node).table()

    def close(self) -> None:
        """Close the tap."""
        if self._tap is not None:
            self._tap.__exit__(None, None, None)
            self._tap = None


def _show_live(read: Callable[[], Table], running: Callable[[], bool]) -> None:
    """Show a table, and redraw it when it has changed, until `running` returns False or the user interrupts."""
    handle = shown = None
    try:
        while running():
            found = read()
            if handle is None:
                handle = display(found, display_id=True)
            elif found != shown:
                handle.update(found)
            shown = found
            time.sleep(1 / UPDATES_PER_SECOND)
    except KeyboardInterrupt:
        return


def _frame(table: Table) -> pd.DataFrame:
    with extras():
        import pandas

    return pandas.DataFrame(list(table.rows), columns=list(table.columns))


_SQL_OPTION = re.compile(r"""\ *(-[on]\ *\S+|--output[=\ ]\ *\S+|--as-of[=\ ]\ *('[^']*'|"[^"]*"|\S+))(?=\s|$)""")
"""An option of %topo_sql, with its value."""


def _split_options(line: str) -> tuple[str, str]:
    """Return the options at the start of a line, and the query after them unchanged: argparse would remove its quotes."""
    position = 0
    while (option := _SQL_OPTION.match(line, position)) is not None:
        position = option.end()
    return line[:position].strip(), line[position:].lstrip(" ")
