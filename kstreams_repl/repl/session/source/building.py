"""Whether code only builds: imports, definitions, values, and calls on builders, streams and tables.

A program may run such statements again; anything else may have effects (`session.produce`, a connection, a file, a request). Nothing is
executed to find out: a call is looked up among the notebook's values, and a function of the user's is read. What is not known to build
does not.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Any

from kstreams_repl import serving, table_files
from kstreams_repl.engine import config, dsl, operators, processor, runtime, serdes, stores, topology
from kstreams_repl.engine.dsl.graph.call_log import Handle
from kstreams_repl.engine.topology.differences.fingerprint import is_users
from kstreams_repl.repl.session.source.scopes import FUNCTIONS, names_of
from kstreams_repl.system import errors, secrets
from kstreams_repl.system import types as system_types
from kstreams_repl.system.syntax import parse

_BUILDING = tuple(
    f"{package.__name__}."
    for package in (
        dsl, topology, serdes, processor, operators, config, stores, runtime, system_types, secrets, errors, table_files, serving
    )
)
"""Packages of this one whose functions, classes and methods only build."""
_PLAIN = frozenset(
    "builtins re datetime decimal fractions math cmath statistics collections functools itertools operator string json enum dataclasses"
    " typing typing_extensions copy types abc zoneinfo hashlib base64 binascii struct textwrap calendar bisect heapq contextlib uuid"
    " numbers unicodedata array".split()
)
_TABLES = frozenset(["numpy", "pandas", "polars", "pyarrow"])
_READS_OR_WRITES = ("read", "load", "save", "scan", "to_", "write", "open", "fromfile", "genfromtxt", "memmap", "sink")
_BUILTINS = frozenset(
    "abs all any bin callable chr divmod enumerate filter format getattr hasattr hash hex id isinstance issubclass iter len map max min"
    " next oct ord pow print range repr reversed round sorted sum super type vars zip".split()
)

_PATHS = frozenset("joinpath with_name with_suffix with_stem as_posix relative_to is_absolute is_relative_to match".split())
_RUN_AT_CALLS = ("__init__", "__new__", "__post_init__")


class _Unknown:
    """A value that is not looked up."""


_UNKNOWN = _Unknown()
_BUILDER = Handle()
"""Any builder, stream or table."""
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class Building:
    """Judges the code of one notebook or file.

    Args:
        namespace: its values.
        definitions: the functions and classes that it defines, as last run.
        builders: names of builders that are not in the namespace.
    """

    def __init__(
        self, namespace: Mapping[str, object], definitions: Mapping[str, Definition], builders: frozenset[str] = frozenset()
    ) -> None:
        self._namespace = namespace
        self._definitions = definitions
        self._builders = builders
        self.seen: set[int] = set()

    def refusal(self, node: ast.AST) -> str | None:
        """Return what the code does besides building, in words; None if nothing is known."""
        self.seen = set()
        return next(self.refused(node, {}), None)

    def builds(self, node: ast.AST) -> bool:
        """Return whether a statement calls a method of a builder, stream or table, whatever else it does."""
        calls = (item.func for item in ast.walk(node) if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute))
        return any(_is_building(self._value(call.value, {})) for call in calls)

    def is_users(self, function: ast.expr) -> bool:
        """Return whether a function is the user's own."""
        value = self._value(function, {})
        if isinstance(function, ast.Attribute):
            on = self._value(function.value, {})
            value = getattr(on if isinstance(on, types.ModuleType | type) else type(on), function.attr, value)
        return isinstance(value, Definition) or is_users(getattr(value, "__module__", None))

    def without_effects(self, node: ast.stmt) -> tuple[ast.stmt, list[str]]:
        """Return a statement without the calls in its blocks that may have effects, and these calls."""
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return node, []
        pruner = _Pruner(self)
        rest = pruner.generic_visit(copy.deepcopy(node))
        assert isinstance(rest, ast.stmt)
        return rest, pruner.left

    # ---- code that runs

    def refused(self, node: ast.AST, local: dict[str, object]) -> Iterator[str]:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            for decorator in node.decorator_list:
                yield from self.refused(decorator, local)
                if not isinstance(decorator, ast.Call):
                    yield from self._called(decorator, [], local)
            if isinstance(node, ast.ClassDef):
                inner = dict(local)
                for part in (*node.bases, *node.keywords, *node.body):
                    yield from self.refused(part, inner)
            else:
                for default in (*node.args.defaults, *node.args.kw_defaults):
                    if default is not None:
                        yield from self.refused(default, local)
            local[node.name] = node
            return
        if isinstance(node, ast.Lambda):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    yield from self.refused(default, local)
            return
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith):
            yield "awaits"
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            inner = dict(local)
            for generator in node.generators:
                inner |= dict.fromkeys(_targets(generator.target), _UNKNOWN)
            local = inner
        if isinstance(node, ast.For):
            local |= dict.fromkeys(_targets(node.target), _UNKNOWN)
        if isinstance(node, ast.withitem):
            yield from self._entered(node.context_expr, local)
        if isinstance(node, ast.For | ast.comprehension) and not self._is_plain(self._value(node.iter, local)):
            yield f"reads {spelled(node.iter)}"
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed = self._value(node.value, local)
            if isinstance(changed, types.ModuleType) or not self._is_plain(changed):
                yield f"changes {spelled(node.value)}"
        for child in ast.iter_child_nodes(node):
            yield from self.refused(child, local)
        if isinstance(node, ast.Call):
            yield from self._called(node.func, [*node.args, *(keyword.value for keyword in node.keywords)], local, node)
        if isinstance(node, ast.Assign) and local.get("") is not None:  # in a function: its locals
            for target in node.targets:
                value = self._value(node.value, local) if isinstance(target, ast.Name) else _UNKNOWN
                local |= dict.fromkeys(_targets(target), value)

    def _entered(self, node: ast.expr, local: dict[str, object]) -> Iterator[str]:
        if not isinstance(node, ast.Call) and not self._is_plain(self._value(node, local)):
            yield f"enters {spelled(node)}"

    # ---- calls

    def _called(
        self, function: ast.expr, given: list[ast.expr], local: dict[str, object], call: ast.Call | None = None
    ) -> Iterator[str]:
        if not self._allows(function, local, call):
            yield f"calls {spelled(function)}()"
        on = self._value(function.value, local) if isinstance(function, ast.Attribute) else None
        if on is not None and _is_building(on):
            return  # functions given to a stream run on the workers
        for argument in given:  # `map`, `sorted(key=…)` and the like call them
            value = self._value(argument, local)
            if isinstance(value, Definition | types.FunctionType) and not self.runs(value, None, local):
                yield f"calls {spelled(argument)}"

    def _allows(self, function: ast.expr, local: dict[str, object], call: ast.Call | None) -> bool:
        if not isinstance(function, ast.Attribute):
            return self._callable(self._value(function, local), call, local)
        on, name = self._value(function.value, local), function.attr
        if isinstance(on, types.ModuleType):
            return self._callable(getattr(on, name, _UNKNOWN), call, local)
        if isinstance(on, _Unknown | ast.AST):
            return name in _known_methods()
        if _is_building(on):
            return True
        kind = on if isinstance(on, type) else type(on)
        root = _root(kind)
        if root == "pathlib":
            return name in _PATHS
        if root in _TABLES:
            return not name.startswith(_READS_OR_WRITES)
        if root in _PLAIN:
            return True
        return is_users(kind.__module__) and self._callable(getattr(kind, name, _UNKNOWN), call, local)

    def _callable(self, thing: Any, call: ast.Call | None, local: dict[str, object]) -> bool:
        if isinstance(thing, Definition):
            return self.runs(thing, call, local)
        if isinstance(thing, _Unknown) or not callable(thing):
            return False
        root, name = _root(thing), str(getattr(thing, "__name__", ""))
        if root == "builtins":
            return isinstance(thing, type) or name in _BUILTINS
        if root in _TABLES:
            return not name.startswith(_READS_OR_WRITES)
        if _is_building(thing) or root in _PLAIN or root == "pathlib":
            return True
        if isinstance(thing, types.FunctionType):
            return is_users(thing.__module__) and self.runs(thing, call, local)
        if isinstance(thing, type) and is_users(thing.__module__):
            own = [vars(kind).get(method) for kind in thing.__mro__ if is_users(kind.__module__) for method in _RUN_AT_CALLS]
            return all(self.runs(method, None, local) for method in own if isinstance(method, types.FunctionType))
        return False

    def runs(self, thing: Any, call: ast.Call | None, local: dict[str, object]) -> bool:
        """Return whether a function of the user's only builds when it is called."""
        if id(thing) in self.seen:
            return True
        self.seen.add(id(thing))
        judge: Building = self
        if isinstance(thing, types.FunctionType):
            if thing.__code__.co_filename.startswith("<string>"):  # written by `dataclass`
                return True
            definition = _definition(thing)
            if definition is None:
                return False
            closed = inspect.getclosurevars(thing).nonlocals
            judge = Building({**thing.__globals__, **closed}, {}, self._builders)
            judge.seen = self.seen
            thing = definition
        if isinstance(thing, ast.ClassDef):
            methods = [item for item in thing.body if isinstance(item, FUNCTIONS) and item.name in _RUN_AT_CALLS]
            return all(judge.runs(method, None, local) for method in methods)
        names = [argument.arg for argument in (*thing.args.posonlyargs, *thing.args.args, *thing.args.kwonlyargs)]
        names += [argument.arg for argument in (thing.args.vararg, thing.args.kwarg) if argument is not None]
        inner: dict[str, object] = {**dict.fromkeys(names, _UNKNOWN), "": True}
        if call is not None and not any(isinstance(argument, ast.Starred) for argument in call.args):
            inner |= {name: self._value(argument, local) for name, argument in zip(names, call.args, strict=False)}
            inner |= {word.arg: self._value(word.value, local) for word in call.keywords if word.arg is not None}
        body = [thing.body] if isinstance(thing, ast.Lambda) else thing.body
        return all(next(judge.refused(item, inner), None) is None for item in body)

    # ---- values

    def _value(self, node: ast.AST, local: Mapping[str, object]) -> object:
        """Return the value of an expression as far as it can be looked up without running anything."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Lambda():
                return node
            case ast.Name(id=name):
                if name in local:
                    return local[name]
                if name in self._builders:
                    return _BUILDER
                known = self._definitions.get(name)
                return self._namespace.get(name, getattr(builtins, name, _UNKNOWN)) if known is None else known
            case ast.Attribute(value=inner, attr=name):
                on = self._value(inner, local)
                if isinstance(on, types.ModuleType):
                    return getattr(on, name, _UNKNOWN)
                return _BUILDER if _is_building(on) else _UNKNOWN
            case ast.Subscript(value=inner):
                return _BUILDER if self._value(inner, local) is _BUILDER else _UNKNOWN
            case ast.NamedExpr(value=inner):
                return self._value(inner, local)
            case ast.Call(func=function):
                on = self._value(function.value if isinstance(function, ast.Attribute) else function, local)
                if _is_building(on) or _is_building(self._value(function, local)):
                    return _BUILDER
                made = self._value(function, local)
                return made() if made in (list, dict, set, str, tuple) else _UNKNOWN
            case ast.List() | ast.ListComp():
                return []
            case ast.Dict() | ast.DictComp():
                return {}
            case ast.Set() | ast.SetComp():
                return set()
            case ast.Tuple():
                return ()
            case ast.JoinedStr():
                return ""
        return _UNKNOWN

    def _is_plain(self, value: object) -> bool:
        """Return whether a loop over a value, a change of it, or a `with` has no effects outside it."""
        if isinstance(value, _Unknown | ast.AST) or _is_building(value):
            return True
        kind = value if isinstance(value, type) else type(value)
        return _root(kind) in _PLAIN | _TABLES or is_users(kind.__module__)


def _root(thing: object) -> str:
    module = getattr(thing, "__module__", None) or getattr(type(thing), "__module__", "")
    return str(module).partition(".")[0].lstrip("_")


def _is_building(thing: object) -> bool:
    if isinstance(thing, types.ModuleType):
        return False
    kind = thing if isinstance(thing, type | types.FunctionType | types.MethodType) else type(thing)
    return f"{getattr(kind, '__module__', '')}.".startswith(_BUILDING)


@functools.cache
def _known_methods() -> frozenset[str]:
    """Return the methods that build, or read a plain value, whatever they are called on."""
    from kstreams_repl.engine.topology.topology import Topology

    kinds = [Topology, str, bytes, list, tuple, *(kind for kind in vars(dsl).values() if isinstance(kind, type))]
    return frozenset(name for kind in kinds for name in dir(kind) if name[0] != "_") | {"items", "keys", "values"}


def _definition(function: types.FunctionType) -> Definition | None:
    """Return the definition of a function, from its text; None if that is not known or it is a lambda among others."""
    try:
        tree = parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None
    found = [item for item in ast.walk(tree) if isinstance(item, (*FUNCTIONS, ast.Lambda))]
    found = [item for item in found if getattr(item, "name", "<lambda>") == function.__name__]
    return found[0] if len(found) == 1 or (found and function.__name__ != "<lambda>") else None


def _targets(node: ast.AST) -> Iterator[str]:
    for item in ast.walk(node):
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store):
            yield item.id


def spelled(node: ast.AST) -> str:
    """Return what is called as text, without arguments: they may hold a password."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{spelled(value)}.{name}"
        case ast.Call(func=function):
            return f"{spelled(function)}()"
    return "…"


class _Pruner(ast.NodeTransformer):
    """Replaces the calls in blocks that do not build by `pass`."""

    def __init__(self, building: Building) -> None:
        self._building = building
        self.left: list[str] = []

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if not isinstance(node.value, ast.Call) or self._building.refusal(node) is None or self._building.builds(node):
            return node
        names = names_of(node)
        if names.changes or names.binds or self._building.is_users(node.value.func):
            return node  # it may change what the topology reads
        self.left.append(spelled(node.value))
        return ast.Pass()

    def visit_FunctionDef(self, node: ast.AST) -> ast.AST:
        return node

    visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_FunctionDef
