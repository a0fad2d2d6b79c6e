"""`Program`: the source text that rebuilds a topology, sliced from the cells or the file it was built in.

A notebook's cells do more than build: they produce, deploy, draw. The program keeps whole statements, and only those that the
topology depends on: 1. statements that created its nodes and stores (every node has its line) · 2. the expression that was
deployed · 3. transitively, the definitions of the names these use: functions, classes, imports, constants, the definition of
each that ran last, and later changes in place (`names["UA"] = …`, `names.update(…)`). A name with a plain value (text, number)
and no statement is written as a constant. Only statements that build are taken (`building`): one that may have effects is left out, and
named in ``missing``, or in a comment if the topology does not need it. ``missing`` also lists the names that were not found; a program that
lacks something is read-only. Making a program executes nothing; `run` executes it.
"""

from __future__ import annotations

import ast
import builtins
import contextvars
import linecache
import math
import sys
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kstreams_repl.engine.topology.description.source_location import no_cell
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.host.journal.journal_records import source_hash
from kstreams_repl.repl.session.application.edits.topology_resolution import topology_of
from kstreams_repl.repl.session.source.building import Building, Definition
from kstreams_repl.repl.session.source.cell_history import CellText
from kstreams_repl.repl.session.source.cell_history import history as history
from kstreams_repl.repl.session.source.error_source import location_name
from kstreams_repl.repl.session.source.scopes import FUNCTIONS, Names, called_on, globals_of, names_of, shares_lines
from kstreams_repl.system.syntax import parse

RESULT = "__topology__"
BUILDERS = "__builders__"
MODULE = "__kstreams_session__"
_CALLS = frozenset({"deploy", "edit", "attach"})
_SKIPPED = frozenset(
    "kstreams_repl kernel_ext IPython ipykernel ipywidgets anywidget traitlets decorator threading asyncio tornado concurrent runpy".split()
)

_PLAIN = (str, int, float, bool, bytes, types.NoneType)

_expression: contextvars.ContextVar[str | None] = contextvars.ContextVar("deployed expression", default=None)
_module: contextvars.ContextVar[types.ModuleType | None] = contextvars.ContextVar("module of the expression", default=None)


@dataclass(frozen=True, slots=True)
class Program:
    """Source text that sets ``__topology__``.

    Attributes:
        missing: names it uses that were not found; empty when it can be run.
    """

    text: str
    missing: tuple[str, ...] = ()
    lines: Mapping[str, Mapping[int, str]] = field(default_factory=dict, compare=False, repr=False)
    """By file and first line: its statements where the user wrote them."""

    @property
    def hash(self) -> str:
        return source_hash(self.text)

    def run(self, config: Mapping[str, object] | None = None, *, name: str = "session") -> Topology:
        r"""Execute the text in a namespace of its own and return the topology it built.

        Args:
            config: settings that a builder is built with; None: the defaults.
            name: used for the file name in tracebacks.

        Raises:
            Exception: what the text raises, unchanged.

        Example:
            >>> import kstreams_repl as ks
            >>> text = "import kstreams_repl as ks\n__topology__ = ks.StreamsBuilder()\n__topology__.stream('in').to('out')"
            >>> ks.reports.Program(text).run()
            Topology(2 nodes, 0 stores, 1 sub-topology)
        """
        file = f"<{name} {self.hash[:8]}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        namespace: dict[str, object] = {"__name__": MODULE}
        with no_cell():
            exec(compile(self.text, file, "exec"), namespace)
        return topology_of(namespace[RESULT], config)


@contextmanager
def deployed_as(expression: str, module: types.ModuleType | None = None) -> Iterator[None]:
    """Set the expression of the topology deployed in this block, for magics and commands: the user's code has no call that shows it.

    Args:
        module: where its names are defined; None: in the notebook.
    """
    token, other = _expression.set(expression), _module.set(module)
    try:
        yield
    finally:
        _expression.reset(token)
        _module.reset(other)


def program_of(thing: object, topology: Topology, variables: Mapping[str, object] | None = None) -> Program:
    """Return the program of a topology that is being deployed; the caller's frame gives the namespace of its names.

    Args:
        variables: a notebook's, for calls without a frame of the user's (a button).
    """
    frame, module = None, _module.get()
    if module is not None and module.__file__ is not None:
        namespace: dict[str, object] = vars(module)
        texts, call, ends = [_file_text(module.__file__)], None, True
    else:
        frame = _user_frame()
        namespace = dict(variables or {}) if frame is None else {**frame.f_globals, **frame.f_locals}
        texts, call, ends = _texts(frame)
    expression = _expression.get() or _deployed(frame)
    if expression is None:
        names = [name for name, value in namespace.items() if value is thing and name.isidentifier() and not name.startswith("_")]
        expression = names[0] if names else None
    if expression is None:
        return Program(_listing(topology), ("the expression that was deployed",))
    return _Slice(texts, namespace, call, ends=ends).program(topology, thing, expression)


@dataclass(slots=True)
class _Statement:
    place: tuple[int, int]
    text: str
    file: str
    first: int
    last: int
    node: ast.stmt
    defines: frozenset[str]
    uses: frozenset[str]
    certain: frozenset[str]
    """Names that it defines in any case."""
    called_on: frozenset[str]
    before: str
    original: Mapping[int, str]
    ran: int = 0
    built: tuple[str, frozenset[str]] | None = None
    """What it deploys and the names in that, if it also deploys; "" if the topology cannot be separated from the deploy call."""
    taken: bool = field(default=False)
    behind: list[_Statement] = field(default_factory=list)
    """Statements that must precede it, in whichever cell they are: it changes what they define."""


class _Slice:
    """The statements of some texts, and the selection that a program needs."""

    def __init__(
        self, texts: Iterable[CellText], namespace: Mapping[str, object], call: _Call | None, *, ends: bool = False
    ) -> None:
        self._namespace = namespace
        self._call = call
        self._ends = ends
        self._left: set[int] = set()
        self._statements = [statement for number, text in enumerate(texts) for statement in _parsed(number, text)]
        around = [] if call is None else [s for s in self._statements if s.file == call.file and s.first <= call.line <= s.last]
        begun = [s for s in around if call is not None and s.place[1] <= _in_text(call.line, call.column)]
        self._calling = max(begun or around[:1], key=lambda s: s.place, default=None)
        self._constants: dict[str, str] = {}
        self._missing: dict[str, None] = {}
        definitions = self._definitions()
        builders = frozenset({BUILDERS}.union(*(names_of(parse(s.before)).binds for s in self._statements if s.before)))
        self._building = Building(namespace, definitions, builders)
        for statement in self._statements:  # a call of a function defines what that declares global
            called = {item.func.id for item in ast.walk(statement.node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Name)}
            for name in called & definitions.keys():
                statement.defines |= globals_of(definitions[name])

    def _definitions(self) -> dict[str, Definition]:
        """Return the functions and classes by name, as last run."""
        definitions: dict[str, Definition] = {}
        for statement in sorted(self._statements, key=lambda s: (s.ran, s.place)):
            node = statement.node
            for name in statement.certain:
                definitions.pop(name, None)
            if isinstance(node, (*FUNCTIONS, ast.ClassDef)) and not node.decorator_list:
                definitions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
                definitions |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        return definitions

    def program(self, topology: Topology, thing: object, expression: str) -> Program:
        deployed = parse(expression, "eval")
        needed = list(names_of(deployed).reads)
        if (effect := self._building.refusal(deployed)) is not None:
            self._missing[f"what was deployed ({effect})"] = None
        for statement in self._statements:
            if self._makes(statement, topology, thing) or self._builds(statement, topology, thing):
                if statement.built == ("", frozenset()):
                    self._left.add(id(statement))
                    self._missing[f"what line {statement.first} of {statement.file} builds and deploys"] = None
                    continue
                if statement.built is not None:
                    statement.text, statement.uses = statement.built
                    statement.node, statement.defines = ast.Module(parse(statement.text).body, []), frozenset()  # type: ignore[assignment]
                if (effect := self._effect(statement)) is None:
                    needed += self._take(statement)
                elif self._building.builds(statement.node):
                    self._leave(statement, "what it builds", effect)
        self._complete(needed)
        while needed := self._defined_again():
            self._complete(needed)
        taken = _in_order(statement for statement in self._statements if statement.taken)
        lines = ["from __future__ import annotations", "import kstreams_repl", f"{BUILDERS} = {{}}", *self._constants.values()]
        before = None
        for statement in taken:
            if statement.before and (statement.place[0], statement.before) != before:
                lines.append(statement.before)
            before = (statement.place[0], statement.before)
            lines.append(statement.text)
        lines.append(f"{RESULT} = {expression}")
        originals: dict[str, dict[int, str]] = {}
        for statement in taken:
            originals.setdefault(statement.file, {}).update(statement.original)
        return Program("\n".join(lines) + "\n", tuple(self._missing), originals)

    def _defined_again(self) -> list[str]:
        """Take the definitions of names that are defined again after a statement that uses them; return the names that these use."""
        needed = []
        for user in [statement for statement in self._statements if statement.taken]:
            for name in user.uses:
                definers = [s for s in self._statements if name in s.defines and s is not user and id(s) not in self._left]
                before = [s for s in definers if s.place < user.place]
                definer = max(before, key=lambda s: (s.ran, s.place), default=None)
                if definer is None or definer.taken or not any(s.taken for s in definers):
                    continue
                if (effect := self._effect(definer)) is not None:
                    self._leave(definer, name, effect)
                else:
                    needed += self._take(definer)
        return needed

    def _effect(self, statement: _Statement) -> str | None:
        """Return the effect of a statement, in words; None if it builds only, perhaps without calls of its blocks that are left out."""
        if statement.taken or (effect := self._building.refusal(statement.node)) is None:
            return None
        rest, left = self._building.without_effects(statement.node)
        if not left or self._building.refusal(rest) is not None:
            return effect
        comments = [f"# left out, because it has effects: {call}" for call in left]
        statement.node, statement.text = rest, "\n".join([*comments, ast.unparse(rest)])
        statement.uses &= names_of(rest).reads | names_of(rest).changes
        return None

    def _leave(self, statement: _Statement, what: str, effect: str) -> None:
        self._left.add(id(statement))
        self._missing[f"{what} (line {statement.first} of {location_name(statement.file)} {effect})"] = None

    def _makes(self, statement: _Statement, topology: Topology, thing: object) -> bool:
        places = {(node.origin.file, node.origin.line) for node in topology.nodes.values()}
        log = getattr(thing, "_log", None)
        for call in getattr(log, "calls", ()):
            places |= {(origin.file, origin.line) for origin in (call.origin, *call.edited.values())}
        if any(file == statement.file and line and statement.first <= line <= statement.last for file, line in places):
            return not self._beyond(statement)
        return False

    def _builds(self, statement: _Statement, topology: Topology, thing: object) -> bool:
        """Return whether it calls a building method of the deployed topology: not every such call makes a node.

        False for a builder, whose log has its calls.
        """
        if hasattr(thing, "_log"):
            return False
        mine = {name for name, value in self._namespace.items() if value is thing or value is topology}
        return bool(mine & statement.called_on) and not self._beyond(statement)

    def _beyond(self, statement: _Statement) -> bool:
        """Return whether it is the statement with the deploying call, or follows it in a file."""
        call, calling = self._call, self._calling
        if call is None or statement.file != call.file:
            return False
        behind = calling is None or statement.place >= calling.place  # statements may share a line
        return behind and statement.last >= call.line and (self._ends or statement.first <= call.line)

    def _take(self, statement: _Statement) -> list[str]:
        statement.taken = True
        return list(statement.uses)

    def _complete(self, wanted: list[str]) -> None:
        done: set[str] = {"kstreams_repl", BUILDERS}
        while wanted:
            name = wanted.pop()
            if name in done:
                continue
            done.add(name)
            definers = [s for s in self._statements if name in s.defines and not self._beyond(s) and id(s) not in self._left]
            if definers:
                # each after the other, as last run: `x = f(x)` and `x["a"] = 1` need both
                later: _Statement | None = None
                for definer in sorted(definers, key=lambda s: (s.ran, s.place), reverse=True):
                    if (effect := self._effect(definer)) is not None:
                        self._leave(definer, name, effect)
                        break
                    if not definer.taken:
                        wanted += self._take(definer)
                    if later is not None:
                        later.behind.append(definer)
                    later = definer
                    if name in definer.certain and name not in definer.uses:
                        break
            elif name in self._namespace:
                self._write_down(name, self._namespace[name])
            elif not hasattr(builtins, name):
                self._missing[name] = None

    def _write_down(self, name: str, value: object) -> None:
        module, own = getattr(value, "__module__", None), str(getattr(value, "__name__", ""))
        if type(value) is float and not math.isfinite(value):
            self._constants[name] = f"{name} = float({str(value)!r})"
        elif type(value) in _PLAIN:
            self._constants[name] = f"{name} = {value!r}"
        elif isinstance(value, types.ModuleType) and value.__name__ != "__main__":
            self._constants[name] = f"import {value.__name__} as {name}"
        elif module in sys.modules and module != "__main__" and getattr(sys.modules[module], own, None) is value:
            self._constants[name] = f"from {module} import {own} as {name}"
        else:
            self._missing[name] = None


def _used(names: Names, before: str) -> frozenset[str]:
    if not before:
        return names.reads
    first = names_of(parse(before).body[0])
    return (names.reads - first.binds) | first.reads


def _parsed(number: int, text: CellText) -> Iterator[_Statement]:
    try:
        tree = parse(text.text)
    except SyntaxError:  # a cell that did not run
        return
    future = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    lines = text.text.split("\n")  # the lines that the parser counts: a form feed or U+2028 in a text ends none
    for node in tree.body:
        if isinstance(node, ast.If) and "__name__" in names_of(node.test).reads:
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or node.lineno
        alone = node.col_offset == 0 and not shares_lines(tree, node)
        source, built = "\n".join(lines[first - 1 : last]) if alone else ast.unparse(node), _built(node)
        names = names_of(node, annotations=not future)
        original = {first: source} if built is None else dict(_arguments_in(node, lines))
        yield _Statement(
            (number, _in_text(node.lineno, node.col_offset)),
            source,
            text.file,
            first,
            last,
            node,
            names.binds | names.changes,
            _used(names, text.before),
            names.certain,
            frozenset(called_on(node)),
            text.before,
            original,
            text.ran,
            built,
        )


def _arguments_in(node: ast.stmt, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of what a statement deploys."""
    for argument in map(_argument, _deploying(node)):
        if argument is not None and argument.end_lineno is not None:
            taken = [line.encode() for line in lines[argument.lineno - 1 : argument.end_lineno]]  # columns count bytes
            taken[-1] = taken[-1][: argument.end_col_offset]
            taken[0] = taken[0][argument.col_offset :]
            yield argument.lineno, b"\n".join(taken).decode()


def _deploying(node: ast.AST) -> Iterator[ast.Call]:
    """Yield its calls that deploy, edit or attach a topology."""
    for item in ast.walk(node):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr in _CALLS:
            yield item


def _argument(call: ast.Call) -> ast.expr | None:
    """Return the topology argument of a call."""
    assert isinstance(call.func, ast.Attribute)
    given = [keyword.value for keyword in call.keywords if keyword.arg == "topology"]
    index = 1 if call.func.attr == "attach" else 0
    argument = given[0] if given else call.args[index] if len(call.args) > index else None
    return None if isinstance(argument, ast.Starred) else argument


def _built(node: ast.stmt) -> tuple[str, frozenset[str]] | None:
    """Return the value of `_Statement.built`."""
    calls = list(_deploying(node))
    if not calls:
        return None
    if not isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign):
        return "", frozenset()
    arguments = [argument for argument in map(_argument, calls) if argument is not None]
    return "\n".join(map(ast.unparse, arguments)), frozenset().union(*(names_of(argument).reads for argument in arguments))


def _in_order(statements: Iterable[_Statement]) -> list[_Statement]:
    """Return statements in the order of their cells, each after those that must precede it."""
    ordered: dict[int, _Statement] = {}
    begun: set[int] = set()

    def put(statement: _Statement) -> None:
        if id(statement) not in begun:
            begun.add(id(statement))
            for earlier in statement.behind:
                put(earlier)
            ordered[id(statement)] = statement

    for statement in sorted(statements, key=lambda statement: statement.place):
        put(statement)
    return list(ordered.values())


def _user_frame() -> types.FrameType | None:
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _SKIPPED:
        frame = frame.f_back
    return frame


class _Call(NamedTuple):
    """Position of the call that is running in a frame; its end distinguishes it from others in the same statement."""

    file: str
    line: int
    column: int
    end: tuple[int | None, int | None]

    @classmethod
    def of(cls, frame: types.FrameType) -> _Call:
        positions = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        line, end_line, column, end_column = positions
        return cls(frame.f_code.co_filename, frame.f_lineno if line is None else line, column or 0, (end_line, end_column))


def _in_text(line: int, column: int) -> int:
    """Return a sort key for positions in one text."""
    return line * 1000 + min(column, 999)


def _texts(frame: types.FrameType | None) -> tuple[list[CellText], _Call | None, bool]:
    """Return the user's texts, the position of the call, and whether nothing after the call has run yet.

    The texts are the notebook's cells, or the file of the calling module.
    """
    call = None if frame is None else _Call.of(frame)
    if frame is None or frame.f_code.co_filename in history.files() or "get_ipython" in frame.f_globals:
        return history.texts(), call, False
    return [_file_text(frame.f_code.co_filename)], call, frame.f_code.co_name == "<module>"


def _file_text(file: str) -> CellText:
    text = "".join(linecache.getlines(file))
    if not text and Path(file).is_file():
        text = Path(file).read_text(encoding="utf-8")
    return CellText(file, text)


def _deployed(frame: types.FrameType | None) -> str | None:
    """Return the text of the first argument of the call to ``deploy`` or ``edit`` that is running in that frame."""
    if frame is None:
        return None
    text = "".join(linecache.getlines(frame.f_code.co_filename))
    try:
        tree = parse(text)
    except SyntaxError:
        return None
    calls = [call for call in _deploying(tree) if call.lineno <= frame.f_lineno <= (call.end_lineno or call.lineno)]
    running = _Call.of(frame).end
    calls = [call for call in calls if (call.end_lineno, call.end_col_offset) == running] or calls
    argument = _argument(max(calls, key=lambda call: call.lineno)) if calls else None
    return None if argument is None else ast.unparse(argument)


def _listing(topology: Topology) -> str:
    """Return the lines that made the nodes, for reading."""
    texts: dict[str, None] = {}
    for node in topology.nodes.values():
        if node.origin.file is not None:
            texts[linecache.getline(node.origin.file, node.origin.line or 0).rstrip()] = None
    return "\n".join(text for text in texts if text.strip()) + "\n"
