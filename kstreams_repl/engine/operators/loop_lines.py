"""A kernel's work as lines of a loop, so that a chain of nodes can run as one function (`engine.runtime.compiler.loop_codegen`).

The lines see one record in `key`, `value`, `timestamp`, `headers` and, if requested, `data`, the serialized key. They change these for
the nodes below and `continue` for a record that goes no further. Names that belong to the node begin with `its_`. The coordinates of
the record are set (`its_locate`) only before a call that may read them: of every function but the user's, which cannot, and those that
the kernel declares as quick. Invariant: a kernel whose work does not fit (it forwards in a loop, or with another timestamp) has no
lines; its node is called through its entry.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kstreams_repl.engine.operators.fields_read import fields_read
from kstreams_repl.engine.operators.operator import Process
from kstreams_repl.system.syntax import parse

if TYPE_CHECKING:
    from kstreams_repl.engine.serdes import Serde

OWN = "its_"
_LOOPS_OWN = frozenset(
    "data offset raw_key raw_value rest now left record clock keys values all_data timestamps offsets all_headers raw_keys "
    "raw_values writes".split()
)
_UNFIT = (
    ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Nonlocal, ast.With, ast.While,
)  # fmt: skip


_SLOT_NAMES = frozenset(
    "slots_" + name for name in "dirty order note check texts written deferrable freeze rewrite serialize frozen".split()
)


class Inline(NamedTuple):
    """One node's part of a generated loop.

    Attributes:
        node: the node's name.
        lines: executed per record.
        names: the values of the names that begin with `its_`, without it.
        ends: the lines forward nothing: output leaves with a flush or has already been sent.
        uses: which of `key` and `value` the lines read. A test for None does not count, because it needs no deserialization.
        calls_user: the lines call user functions.
        rekeys: the lines change `key`, so `data` is not its serialized form below.
        key_serde: the serde whose serialized key the lines need in `data`.
        before, after: lines before and after the loop.
        rekeyed: the same for a loop that does not have the serialized key, because a node above has changed it; None: there are none.
        resends: the serde of a sink's values, which may leave as the bytes that were read if they are equal values; None: they may not.
    """

    node: str
    lines: tuple[str, ...]
    names: Mapping[str, object]
    ends: bool = False
    uses: frozenset[str] = frozenset()
    calls_user: bool = False
    rekeys: bool = False
    key_serde: Serde | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    rekeyed: Inline | None = None
    resends: Serde | None = None


def inline_of(entry: Process) -> Inline | None:
    """Return the lines attached to an entry, or None."""
    inline = getattr(entry, "inline", None)
    return inline if isinstance(inline, Inline) else None


class Roles(NamedTuple):
    """The names of a kernel by what they stand for: the record context, the key's serializer, the cache's `rewrite`, functions that do not
    read the record context, the user's functions."""

    record: frozenset[str]
    serializer: frozenset[str]
    rewrite: frozenset[str]
    quick: frozenset[str]
    users: frozenset[str]


class EntryLines(NamedTuple):
    """What replaces `rewrite(slot, value, at)`, as a function of the two names, and the lines around the loop."""

    body: str
    before: tuple[str, ...] = ("writes = len(its_slots_order) >> 10",)
    after: tuple[str, ...] = ("if len(its_slots_order) >> 10 != writes: its_slots_check()",)


def entry_lines(with_context: bool, variable: bool, checked: bool) -> EntryLines:
    """Return the lines that change a slot of a store's cache in place (`engine.stores.cache.write_back_cache`), for a value that is kept as
    an object; the others are passed to it."""
    lines = ["slot.value = KEPT", "slot.at = AT", "slot.state = slots_dirty", "slot.timestamp = timestamp", "slot.headers = headers"]
    if with_context:
        lines += ["slot.topic = record.topic", "slot.partition = record.partition", "slot.offset = offset"]
    lines.append("slots_note(slot)")
    if checked:
        kept = ["if type(NEW) in slots_deferrable:", "    kept = NEW", "else:"]
        if variable:
            kept += ["    kept = slots_frozen()", "    kept.data = frozen_data = slots_serialize(NEW)"]
            kept += ["    slots_written[0] += len(frozen_data or b'')"]
        else:
            kept += ["    kept = slots_freeze(NEW)"]
        lines = [*kept, *(line.replace("KEPT", "kept") for line in lines)]
    if variable:
        lines += ["if type(NEW) in slots_texts:", "    slots_written[0] += len(NEW)", "if slots_written[0] > slots_written[1]:"]
        lines += ["    slots_check()"]
    lines = [line.replace("KEPT", "NEW") for line in lines]
    return EntryLines("\n".join(lines))


class LoopLines(NamedTuple):
    """The lines of one shape of kernel, for all nodes of that shape; see `Inline`."""

    lines: tuple[str, ...]
    names: frozenset[str]
    ends: bool
    uses: frozenset[str]
    calls_user: bool
    rekeys: bool
    needs_data: bool
    before: tuple[str, ...]
    after: tuple[str, ...]


class _Unfit(Exception):
    """The work cannot be lines of a loop."""


def loop_lines(body: list[ast.stmt], free: frozenset[str], roles: Roles, slots: EntryLines | None) -> LoopLines | None:
    """Return the lines of a specialized body, whose names in `free` are the node's; None if it does not fit."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ("key", "value", "timestamp", "headers")
        if stored or isinstance(node, _UNFIT):
            return None
    work = _Work(free, roles, slots)
    try:
        lines = work.located(work.tail(body))
    except _Unfit:
        return None
    renamed = ast.Module([work.renamed(line) for line in lines], [])
    text = ast.unparse(ast.fix_missing_locations(renamed))
    before, after = (slots.before, slots.after) if slots is not None and work.rewrites else ((), ())
    own = {inner.id for inner in ast.walk(parse("\n".join([text, *before, *after]))) if isinstance(inner, ast.Name)}
    names = frozenset(name.removeprefix(OWN) for name in own if name.startswith(OWN)) - {"locate"}
    return LoopLines(
        tuple(text.splitlines()),
        names,
        not work.forwards,
        frozenset(work.uses),
        bool(names & roles.users),
        work.rekeys,
        work.needs_data,
        before,
        after,
    )


def fields_of_value(statement: ast.stmt, names: Mapping[str, object]) -> frozenset[str] | None:
    """Return the fields of `value` that a line reads through functions; None: it may do anything with it.

    Args:
        names: the values of the names that begin with `its_`, without it.
    """
    known: set[int] = set()
    fields: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            for position, argument in enumerate(node.args):
                if _name(argument) == "value":
                    read = fields_read(names.get(_name(node.func).removeprefix(OWN)), position)
                    if read is None:
                        return None
                    fields |= read
                    known.add(id(argument))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot) and _is_none(node.comparators[0]):
            known.add(id(node.left))
        elif _name(node) == "value" and isinstance(node.ctx, ast.Load) and id(node) not in known:  # type: ignore[attr-defined]
            return None
    return frozenset(fields)


def replaces_value(statement: ast.stmt) -> bool:
    """Return whether a line, or one in it, assigns another value to `value`."""
    return any(_name(node) == "value" and isinstance(node.ctx, ast.Store) for node in ast.walk(statement))  # type: ignore[attr-defined]


class _Work:
    """The transformations of one body."""

    def __init__(self, free: frozenset[str], roles: Roles, slots: EntryLines | None) -> None:
        self._free = free | _SLOT_NAMES
        self._roles = roles._replace(quick=roles.quick | {"slots_note", "slots_freeze", "slots_frozen", "slots_serialize"})
        self._slots = slots
        self.forwards = self.rekeys = self.rewrites = False
        self.needs_data = bool(roles.serializer & free)
        self._kept = {"record", "offset", *(["data"] if self.needs_data else [])}
        self.uses: set[str] = set()

    # ---- the end of the work is the beginning of the next node's

    def tail(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return the statements so that a forwarded record leaves at their end, and all others at a `continue`."""
        made: list[ast.stmt] = []
        for index, statement in enumerate(body):
            rest = body[index + 1 :]
            given = _forwarded(statement)
            if given is not None:
                if rest and not isinstance(rest[0], ast.Return):
                    raise _Unfit
                return made + self._passed(given)
            if isinstance(statement, ast.If):
                if rest and not statement.orelse and isinstance(statement.body[-1], ast.Return) and _forwards(statement):
                    statement, rest = ast.If(statement.test, statement.body, list(rest)), ()
                if not rest and _forwards(statement):
                    then, other = self.tail(statement.body), self.tail(statement.orelse)
                    return made + ([ast.If(statement.test, then, other)] if then else [ast.If(_negated(statement.test), other, [])])
            if isinstance(statement, ast.Return):
                return [*made, ast.Continue()]
            made.append(self._inside(statement))
        return [*made, ast.Continue()]

    def _inside(self, statement: ast.stmt) -> ast.stmt:
        """Return a statement after which the work goes on; it may return, but not forward."""
        if _forwards(statement):
            raise _Unfit
        loops = [inner for inner in ast.walk(statement) if isinstance(inner, ast.For)]
        if any(isinstance(inner, ast.Return) for loop in loops for inner in ast.walk(loop)):
            raise _Unfit
        return _Returns().visit(statement)  # type: ignore[no-any-return]

    def _passed(self, given: list[ast.expr]) -> list[ast.stmt]:
        """Return the assignment for a record that goes on to the next node."""
        self.forwards = True
        if [_name(part) for part in given[2:]] != ["timestamp", "headers"]:
            raise _Unfit
        changed = [(name, part) for name, part in zip(("key", "value"), given, strict=False) if _name(part) != name]
        self.rekeys |= any(name == "key" for name, _ in changed)
        targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name, _ in changed]
        if len(changed) < 2:
            return [ast.Assign(targets, part) for _, part in changed]
        return [ast.Assign([ast.Tuple(targets, ast.Store())], ast.Tuple([part for _, part in changed], ast.Load()))]

    # ---- coordinates, the serialized key, slots

    def located(self, body: Sequence[ast.stmt], rare: bool = False) -> list[ast.stmt]:
        """Return the statements with the coordinates set where they are needed, and with the key as the loop has it. To set them for every
        record costs more than a call of the entry: only work on slots, and what handles errors, may need them."""
        made: list[ast.stmt] = []
        for statement in body:
            if self._is_context(statement) or self._is_data(statement):
                continue
            if self._slots is not None and _called(statement) in self._roles.rewrite:
                made += self._rewritten(statement)  # type: ignore[arg-type]
                continue
            own: list[ast.AST] = [statement]
            if isinstance(statement, ast.If | ast.For | ast.Try):
                own = [statement.test] if isinstance(statement, ast.If) else [statement.iter] if isinstance(statement, ast.For) else []
                statement.body = self.located(statement.body, rare) or [ast.Pass()]
                statement.orelse = self.located(statement.orelse, rare)
            if isinstance(statement, ast.Try):
                for handler in statement.handlers:
                    handler.body = self.located(handler.body, rare=True)
            needed = any(self._reads_coordinates(inner) for part in own for inner in ast.walk(part))
            if needed:
                if not (rare or self._roles.rewrite & self._free):
                    raise _Unfit
                made.append(ast.Expr(ast.Name(f"{OWN}locate", ast.Load())))
            for part in own:
                _Keys(self, needed).visit(part)
            made.append(statement)
        return made

    def _reads_coordinates(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        called = node.func
        while isinstance(called, ast.Attribute):
            called = called.value
        name = _name(called)
        return name in self._free and name not in self._roles.quick | self._roles.users | self._roles.serializer

    def _is_context(self, statement: ast.stmt) -> bool:
        """Return whether it only sets the record context, as `its_locate` does."""
        if not isinstance(statement, ast.Assign):
            return False
        target = statement.targets[0]
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        return all(isinstance(part, ast.Attribute) and _name(part.value) in self._roles.record for part in parts)

    def _is_data(self, statement: ast.stmt) -> bool:
        """Return whether it is `data = serializer(key)`, which the loop has done."""
        value = statement.value if isinstance(statement, ast.Assign) else None
        return isinstance(value, ast.Call) and _name(value.func) in self._roles.serializer and _name(value.args[0]) == "key"

    def _rewritten(self, statement: ast.Expr) -> list[ast.stmt]:
        assert self._slots is not None and isinstance(statement.value, ast.Call)
        self.rewrites = True
        slot, new, at = (_name(part) for part in statement.value.args)
        assert slot == "slot", "kernels call a slot `slot`"
        return self.located(parse(self._slots.body.replace("NEW", new).replace("AT", at)).body)

    def renamed(self, statement: ast.stmt) -> ast.stmt:
        """Return the statement with the node's own names, and with other names for variables that the loop has too."""
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Name) and inner.id in self._free:
                inner.id = OWN + inner.id
            elif isinstance(inner, ast.Name) and inner.id in _LOOPS_OWN - self._kept:
                inner.id += "_"
        return statement


class _Keys(ast.NodeTransformer):
    """Note which of key and value are read; where the loop has the serialized key, tests use it."""

    def __init__(self, work: _Work, located: bool) -> None:
        self._work = work
        self._located = located

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        name = _name(node.left)
        if name in ("key", "value") and isinstance(node.ops[0], ast.Is | ast.IsNot):
            if name == "key" and self._work.needs_data:
                node.left = ast.Name("data", ast.Load())
            return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in ("key", "value") or isinstance(node.ctx, ast.Store):
            return node
        if node.id == "key" and self._located and self._work.needs_data:
            return ast.Call(ast.Name(f"{OWN}from_bytes", ast.Load()), [ast.Name("data", ast.Load())], [])
        self._work.uses.add(node.id)
        return node


class _Returns(ast.NodeTransformer):
    def visit_Return(self, node: ast.Return) -> ast.stmt:
        return ast.Continue()


def _name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _called(statement: ast.stmt) -> str:
    """Return the name of the function that a statement calls and does nothing else."""
    return _name(statement.value.func) if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else ""


def _forwarded(statement: ast.stmt) -> list[ast.expr] | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and _called(statement) == "forward":
        return statement.value.args
    return None


def _forwards(statement: ast.stmt) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == "forward" for inner in ast.walk(statement))


def _negated(test: ast.expr) -> ast.expr:
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else ast.UnaryOp(ast.Not(), test)
