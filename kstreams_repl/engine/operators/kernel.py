"""Kernels: an operator's work is written once, as a plain closure, and all forms in which it runs are generated from its source.

Actors: the *work*, a function of one record in an operator's `build`; its *entry*, the same function specialized for one node; the
entry's `Inline` (`engine.operators.loop_lines`), the lines of the same function in the loop of a source. Specializing means: a test of a
name that is None, True or False when the node is built is decided then, a call of an `inlined` function is replaced by its expression, a
loop over one value becomes its body, and the null guard comes first. Invariants: what is generated does what the work says; errors
show the work's own file and line. Source: partial evaluation; see docs/design/016-kernels.md.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar

from kstreams_repl.engine.operators.loop_lines import Inline, LoopLines, Roles, entry_lines, loop_lines
from kstreams_repl.engine.operators.operator import NodeContext, Process
from kstreams_repl.system.errors import DeployError
from kstreams_repl.system.syntax import parse

if TYPE_CHECKING:
    from kstreams_repl.engine.serdes import Serde
    from kstreams_repl.engine.stores.cache.write_back_cache import WriteBackCache

F = TypeVar("F", bound=Callable[..., object])
_CONSTANTS = (None, True, False)
_GUARDS = {
    "": "",
    "key": "if key is None:\n    drop('null key')\n    return",
    "key or value": "if key is None or value is None:\n    drop('null key or value')\n    return",
}


def inlined(function: F) -> F:
    """Mark a function whose source replaces its calls in kernels: a single `return`, or a procedure that is called last."""
    function.kernel_inlined = True  # type: ignore[attr-defined]
    return function


def kernel(
    node: NodeContext,
    work: Process,
    *,
    null: str = "",
    calls: Collection[str] = (),
    quick: Collection[str] = (),
    store: Any = None,
    key_serde: Serde | None = None,
    checked: bool = True,
) -> Process:
    """Return the entry of a node that does `work` for each record, with the lines for a loop attached where there can be any.

    Args:
        work: a function of (key, value, timestamp, headers), without inner functions.
        null: what must not be null: "key" or "key or value"; records without it are dropped and counted.
        calls: names of the user's functions that it calls.
        quick: names of other functions that do not read the coordinates of the current record.
        store: the store whose serialized key the work assigns to `data`, and whose cached slots it rewrites with `rewrite`.
        key_serde: the same without a store.
        checked: new values of slots may be of a type that the cache must serialize at once.
    """
    cache = None if store is None else store.cached
    key_serde = key_serde if store is None else store.key_serde
    names = {"drop": node.drop} | _values(work)
    serializer = store.serialize_key if store is not None else None if key_serde is None else key_serde.serialize
    roles = Roles(
        frozenset(name for name, value in names.items() if value is node.record),
        frozenset(name for name, value in names.items() if serializer is not None and value is serializer),
        frozenset(name for name, value in names.items() if cache is not None and value is cache.rewrite),
        frozenset({"drop", *quick, *(name for name, value in names.items() if isinstance(value, type))}),
        frozenset(name for name in names if name in calls or name.startswith(tuple(f"{call}_" for call in calls))),
    )
    slots = None if cache is None else (cache.with_context, cache.variable, checked)
    shape = _Shape(work.__code__, _shape(names), null, roles, slots)
    made = _GENERATED.get(shape)
    if made is None:
        made = _GENERATED[shape] = _generate(shape, work, names)
    entry: Process = made.make(*(names[name] for name in made.free))
    if made.loop is not None:
        values = names | ({} if cache is None else entry_names(cache))
        if key_serde is not None:
            values["from_bytes"] = key_serde.deserialize
        rekeyed = None if made.rekeyed is None else _inline(node.name, made.rekeyed, values, None)
        entry.inline = _inline(node.name, made.loop, values, key_serde)._replace(rekeyed=rekeyed)  # type: ignore[attr-defined]
    return entry


def _inline(node: str, loop: LoopLines, values: Mapping[str, object], key_serde: Serde | None) -> Inline:
    return Inline(
        node,
        loop.lines,
        {name: values[name] for name in loop.names},
        ends=loop.ends,
        uses=loop.uses,
        calls_user=loop.calls_user,
        rekeys=loop.rekeys,
        key_serde=key_serde if loop.needs_data else None,
        before=loop.before,
        after=loop.after,
    )


def entry_names(cache: WriteBackCache) -> dict[str, object]:
    """Return the names that `loop_lines.entry_lines` uses."""
    return {f"slots_{name}": value for name, value in cache.names.items()} | {
        "slots_deferrable": cache.deferrable,
        "slots_rewrite": cache.rewrite,
    }


# ---- names ---------------------------------------------------------------------------------------------------------------------------


def _values(function: Callable[..., object]) -> dict[str, Any]:
    """Return the values of the names that are free in a function, and in the functions inlined into it, which have a prefix there."""
    code, space = function.__code__, function.__globals__
    names = {name: item.cell_contents for name, item in zip(code.co_freevars, function.__closure__ or (), strict=True)}
    names = {name: space[name] for name in code.co_names if name in space} | names
    for name, value in tuple(names.items()):
        if is_inlined(value):
            names |= {f"{name}_{inner}": used for inner, used in _values(value).items()}
    return names


def is_inlined(value: object) -> TypeGuard[FunctionType]:
    return isinstance(value, FunctionType) and getattr(value, "kernel_inlined", False)


def _shape(names: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """Return what the generated code depends on: which names are constants, and which are inlined functions."""
    return tuple(
        (name, str(value) if _is_constant(value) else value.__code__ if is_inlined(value) else "") for name, value in sorted(names.items())
    )


def _is_constant(value: object) -> bool:
    return any(value is constant for constant in _CONSTANTS)


class _Shape(NamedTuple):
    code: CodeType
    names: tuple[tuple[str, object], ...]
    null: str
    roles: Roles
    slots: tuple[bool, bool, bool] | None


class _Generated(NamedTuple):
    make: Callable[..., Process]
    free: tuple[str, ...]
    loop: LoopLines | None
    rekeyed: LoopLines | None


_GENERATED: dict[_Shape, _Generated] = {}
"""What was generated, by shape. It holds code and names only: an object of a node would keep its task's clients alive."""


def _generate(shape: _Shape, work: Process, names: Mapping[str, object]) -> _Generated:
    """Generate the entry's code and the loop lines."""
    function = definition(work)
    guard = parse(_GUARDS[shape.null]).body
    for part in guard:
        for inner in ast.walk(part):
            ast.copy_location(inner, function)
    function.body = [*guard, *_Specialize(names).block(function.body)]
    function.decorator_list, function.returns = [], None
    for argument in function.args.args:
        argument.annotation = None
    free = tuple(sorted({inner.id for inner in ast.walk(function) if isinstance(inner, ast.Name) and inner.id in names}))
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg(name) for name in free], kwonlyargs=[], kw_defaults=[], defaults=[])
    result = ast.Return(ast.Name(function.name, ast.Load()))
    make = ast.FunctionDef("make", arguments, [function, result], [])
    module = ast.fix_missing_locations(ast.Module([ast.copy_location(make, function)], []))
    space: dict[str, Any] = {}
    exec(compile(module, work.__code__.co_filename, "exec", dont_inherit=True), work.__globals__, space)
    slots = None if shape.slots is None else entry_lines(*shape.slots)
    loop = loop_lines(deepcopy(function.body), frozenset(free), shape.roles, slots)
    rekeyed = None
    if loop is not None and loop.needs_data and slots is None:
        serializing = shape.roles._replace(serializer=frozenset(), quick=shape.roles.quick | shape.roles.serializer)
        rekeyed = loop_lines(function.body, frozenset(free), serializing, None)
    return _Generated(space["make"], free, loop, rekeyed)


@lru_cache(maxsize=256)
def _functions(module: str) -> dict[tuple[str, int], ast.FunctionDef]:
    """Return the functions of a module by name and first line."""
    loaded = sys.modules[module]
    text = "".join(linecache.getlines(str(loaded.__file__), loaded.__dict__))
    nodes = (node for node in ast.walk(parse(text)) if isinstance(node, ast.FunctionDef))
    return {(node.name, min([node.lineno, *(other.lineno for other in node.decorator_list)])): node for node in nodes}


def definition(function: Callable[..., object]) -> ast.FunctionDef:
    """Return a copy of a function's syntax tree.

    Raises:
        DeployError: the module's file is not the one that was imported.
    """
    module, code = function.__globals__["__name__"], function.__code__
    parsed = _functions(module).get((code.co_name, code.co_firstlineno))
    if parsed is None:
        raise DeployError(
            f"the source of {module} has changed since it was imported, or is missing", hint="restart the kernel or process", path=module
        )
    return deepcopy(parsed)


# ---- specializing --------------------------------------------------------------------------------------------------------------------


class _Specialize(ast.NodeTransformer):
    """Decide what is known when a node is built."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in body:
            result = self.visit(statement)
            made += result if isinstance(result, list) else [] if result is None else [result]
            if made and isinstance(made[-1], ast.Return):
                break
        return made

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._names and _is_constant(self._names[node.id]):
            return _constant(self._names[node.id], node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        left, test = node.left, node.ops[0]
        if isinstance(test, ast.Is | ast.IsNot) and isinstance(left, ast.Name) and left.id in self._names and _is_none(node.comparators[0]):
            return _constant((self._names[left.id] is None) == isinstance(test, ast.Is), node)
        self.generic_visit(node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return _constant(not node.operand.value, node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Decide a test (kernels use `and` and `or` only for truth)."""
        decisive, kept = isinstance(node.op, ast.Or), list[ast.expr]()
        for value in map(self.visit, node.values):
            if not isinstance(value, ast.Constant):
                kept.append(value)
            elif bool(value.value) is decisive:
                kept.append(value)
                break
        if not kept:
            return _constant(not decisive, node)
        return kept[0] if len(kept) == 1 else ast.copy_location(ast.BoolOp(node.op, kept), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        node.test = self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            return self.visit(node.body if node.test.value else node.orelse)  # type: ignore[no-any-return]
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt | list[ast.stmt]:
        node.test = self.visit(node.test)
        if isinstance(node.test, ast.Constant):
            return self.block(node.body if node.test.value else node.orelse)
        node.body, node.orelse = self.block(node.body) or [ast.copy_location(ast.Pass(), node)], self.block(node.orelse)
        return node

    def visit_For(self, node: ast.For) -> ast.stmt | list[ast.stmt]:
        node.iter = self.visit(node.iter)
        node.body = self.block(node.body)
        if isinstance(node.iter, ast.Tuple) and len(node.iter.elts) == 1:  # the loop is the last statement of its kernel
            first = ast.copy_location(ast.Assign([node.target], node.iter.elts[0]), node)
            return [first, *map(_Once().visit, node.body)]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt] | None:
        if isinstance(node.value, ast.Constant):
            return None
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and is_inlined(self._names.get(call.func.id)):
            return _statements(self._names[call.func.id], call.func.id, call, self)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        called = self._names.get(name)
        self.generic_visit(node)
        return node if not is_inlined(called) else _expression(called, name, node, self)


class _Once(ast.NodeTransformer):
    """The body of a loop that runs once."""

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return ast.copy_location(ast.Return(None), node)

    def visit_For(self, node: ast.For) -> ast.stmt:
        return node


def _expression(function: Callable[..., object], name: str, call: ast.Call, outer: _Specialize) -> ast.expr:
    """Return the function's result as an expression of the caller's names; an argument that is more than a name must be used once."""
    parsed = definition(function)
    result = parsed.body[-1]
    assert isinstance(result, ast.Return) and result.value is not None, f"{name} is not a single return"
    given: dict[str, ast.expr] = dict(zip([argument.arg for argument in parsed.args.args], call.args, strict=True))
    own = _values(function)
    folded = _Specialize({inner: value for inner, value in own.items() if not is_inlined(value)}).visit(result.value)
    renamed = {inner: ast.Name(f"{name}_{inner}", ast.Load()) for inner in own if inner not in given}
    for parameter, argument in given.items():
        uses = sum(isinstance(inner, ast.Name) and inner.id == parameter for inner in ast.walk(folded))
        assert uses < 2 or isinstance(argument, ast.Name | ast.Constant), f"{name} uses {parameter} {uses} times: assign it to a name first"
    expression: ast.expr = _Substitute(given | renamed).visit(folded)
    for inner in ast.walk(expression):
        ast.copy_location(inner, call)
    return outer.visit(expression)  # type: ignore[no-any-return]


def _statements(function: Callable[..., object], name: str, call: ast.Call, outer: _Specialize) -> list[ast.stmt]:
    """Return a procedure's statements in the caller's names: parameters that are assigned, and other variables, get a prefix."""
    parsed, own = definition(function), _values(function)
    body = _Specialize({inner: value for inner, value in own.items() if not is_inlined(value)}).block(parsed.body)
    names = [inner for statement in body for inner in ast.walk(statement) if isinstance(inner, ast.Name)]
    assigned = {inner.id for inner in names if isinstance(inner.ctx, ast.Store)}
    renamed: dict[str, ast.expr] = {inner: ast.Name(f"{name}_{inner}", ast.Load()) for inner in {*own, *assigned}}
    first: list[ast.stmt] = []
    for parameter, given in zip([argument.arg for argument in parsed.args.args], call.args, strict=True):
        argument = outer.visit(given)
        if parameter in assigned or not isinstance(argument, ast.Name | ast.Constant):
            renamed[parameter] = ast.Name(f"{name}_{parameter}", ast.Load())
            first.append(ast.Assign([ast.Name(f"{name}_{parameter}", ast.Store())], argument))
        else:
            renamed[parameter] = argument
    made = first + [_Substitute(renamed).visit(statement) for statement in body]
    for statement in made:
        for part in ast.walk(statement):
            ast.copy_location(part, call)
    return outer.block(made)


class _Substitute(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        copied = deepcopy(self._names.get(node.id, node))
        if isinstance(copied, ast.Name):
            copied.ctx = node.ctx
        return copied


def _constant(value: Any, origin: ast.AST) -> ast.Constant:
    return ast.copy_location(ast.Constant(value), origin)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


