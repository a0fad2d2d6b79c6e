"""The module-level names that a statement reads and binds, by Python's scopes.

Names of comprehensions, lambdas, functions and class bodies are their own; an assignment expression in a comprehension, a pattern of
`match` and a function's `global` bind the module's. The name of `except … as` exists in its handler only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

IN_PLACE = frozenset(
    "append extend insert add update setdefault discard remove pop popitem clear sort reverse appendleft extendleft popleft rotate fit"
    " difference_update intersection_update symmetric_difference_update".split()
)
"""Methods that change the object they are called on."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Names:
    """What a statement does with the module's names.

    Attributes:
        reads: names that it reads before it binds them, also in functions that it defines.
        binds: names that it may bind.
        certain: names that it binds in any case.
        changes: names whose values it changes in place.
    """

    reads: frozenset[str]
    binds: frozenset[str]
    certain: frozenset[str]
    changes: frozenset[str]


def names_of(node: ast.AST, *, annotations: bool = True) -> Names:
    """Return the names of a statement or expression.

    Args:
        annotations: whether annotations are evaluated.
    """
    scope = _Scope(annotations=annotations)
    scope.visit(node)
    return Names(frozenset(scope.reads), frozenset(scope.binds), frozenset(scope.bound), frozenset(scope.changes))


def globals_of(function: ast.AST) -> set[str]:
    """Return the names that a function, or one inside it, declares `global`."""
    return {name for item in ast.walk(function) if isinstance(item, ast.Global) for name in item.names}


class _Scope(ast.NodeVisitor):
    """One scope, read in the order in which it runs."""

    def __init__(self, bound: Iterable[str] = (), *, annotations: bool, of_class: bool = False) -> None:
        self.reads: set[str] = set()
        self.binds: set[str] = set()
        self.bound: set[str] = set(bound)
        self.changes: set[str] = set()
        self.walrus: set[str] | None = None
        self._annotations = annotations
        self._of_class = of_class

    def _read_later(self, names: set[str]) -> None:
        """Note what a function reads: it does not see the names of a class around it."""
        self.reads |= names if self._of_class else names - self.bound

    def _read(self, names: Iterable[str]) -> None:
        self.reads |= set(names) - self.bound

    def _bind(self, name: str) -> None:
        self.binds.add(name)
        self.bound.add(name)

    def visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    @contextmanager
    def _branch(self, ends: list[set[str]]) -> Iterator[None]:
        before = set(self.bound)
        yield
        ends.append(self.bound)
        self.bound = before

    # ---- names

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read([node.id])
        elif isinstance(node.ctx, ast.Store):
            self._bind(node.id)
        else:
            self._read([node.id])
            self.bound.discard(node.id)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target.id)
        if self.walrus is not None:
            self.walrus.add(node.target.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit_all([node.value, *node.targets])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._read([node.target.id])
        self.visit_all([node.value, node.target])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if self._annotations:
            self.visit(node.annotation)
        if node.value is not None:
            self.visit_all([node.value, node.target])
        elif not isinstance(node.target, ast.Name):
            self.visit(node.target)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._changed(node)
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._changed(node)
        self.visit_all([node.value, node.slice])

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in IN_PLACE:
            self._changes(node.func.value)
        self.generic_visit(node)

    def _changed(self, node: ast.Attribute | ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._changes(node.value)

    def _changes(self, target: ast.AST) -> None:
        while isinstance(target, ast.Subscript | ast.Attribute):
            target = target.value
        if isinstance(target, ast.Name):
            self.changes.add(target.id)

    # ---- order

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._either([node.body, node.orelse])

    def _either(self, bodies: list[list[ast.stmt]]) -> None:
        ends: list[set[str]] = []
        for body in bodies:
            with self._branch(ends):
                self.visit_all(body)
        self.bound |= set.intersection(*ends)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit_all([node.iter, node.target])  # a loop that binds its name no time is not expected here
        with self._branch([]):
            self.visit_all(node.body)
        with self._branch([]):
            self.visit_all(node.orelse)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        for body in (node.body, node.orelse):
            with self._branch([]):
                self.visit_all(body)

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit_all([item.context_expr, item.optional_vars])
        self.visit_all(node.body)

    visit_AsyncWith = visit_With

    def visit_Try(self, node: ast.Try) -> None:
        self._try(node)

    def visit_TryStar(self, node: ast.TryStar) -> None:
        self._try(node)

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        ends: list[set[str]] = []
        with self._branch(ends):
            self.visit_all([*node.body, *node.orelse])
        for handler in node.handlers:
            with self._branch(ends):
                self.visit_all([handler.type])
                known = handler.name in self.binds
                if handler.name:
                    self._bind(handler.name)
                self.visit_all(handler.body)
                self.bound.discard(handler.name or "")
                if not known:
                    self.binds.discard(handler.name or "")
        with self._branch([]):
            self.visit_all(node.finalbody)
            final = self.bound
        self.bound |= set.intersection(*ends) | (final - self.bound)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        for case in node.cases:
            with self._branch([]):
                self.visit_all([case.pattern, case.guard, *case.body])

    def _pattern(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> None:
        self.generic_visit(node)
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name:
            self._bind(name)

    visit_MatchAs = visit_MatchStar = visit_MatchMapping = _pattern

    # ---- scopes

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.visit_all(node.decorator_list)
        self._defaults(node.args)
        if self._annotations:
            self.visit_all([*(argument.annotation for argument in _arguments(node.args)), node.returns])
        self._bind(node.name)
        self._read_later(_free(node.args, node.body, annotations=self._annotations))

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._defaults(node.args)
        self._read_later(_free(node.args, [node.body], annotations=self._annotations))

    def _defaults(self, arguments: ast.arguments) -> None:
        self.visit_all([*arguments.defaults, *arguments.kw_defaults])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.visit_all([*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)])
        inner = _Scope(annotations=self._annotations, of_class=True)
        inner.visit_all(node.body)
        self._read(inner.reads)
        self._bind(node.name)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        inner = _Scope(self.bound, annotations=self._annotations)
        inner.walrus = set()
        for number, generator in enumerate(node.generators):
            if number == 0:
                self.visit(generator.iter)
            else:
                inner.visit(generator.iter)
            inner.visit_all([generator.target, *generator.ifs])
        inner.visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
        self._read(inner.reads)
        self.changes |= inner.changes - inner.binds
        for name in inner.walrus:
            self._bind(name)
            if self.walrus is not None:
                self.walrus.add(name)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension


def _arguments(given: ast.arguments) -> list[ast.arg]:
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *(one for one in (given.vararg, given.kwarg) if one is not None)]


def _free(given: ast.arguments, body: Iterable[ast.AST], *, annotations: bool) -> set[str]:
    """Return the names of outer scopes that a function reads, or declares global."""
    body = list(body)
    inner = _Scope((argument.arg for argument in _arguments(given)), annotations=annotations)
    inner.visit_all(body)
    outer = {name for item in body for found in _own(item) if isinstance(found, ast.Global | ast.Nonlocal) for name in found.names}
    handled = {found.name for item in body for found in _own(item) if isinstance(found, ast.ExceptHandler) and found.name}
    return (inner.reads - (inner.binds - outer) - (handled - outer)) | outer


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a statement in its own scope."""
    yield node
    if not isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _own(child)


_BUILDING = ("add_", "connect_", "stream", "table", "global_table")


def called_on(node: ast.AST) -> Iterator[str]:
    """Yield names on which a building method is called."""
    for item in ast.walk(node):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr.startswith(_BUILDING):
            target: ast.AST = item.func.value
            while isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
                target = target.func.value
            if isinstance(target, ast.Name):
                yield target.id


def shares_lines(tree: ast.Module, node: ast.stmt) -> bool:
    """Return whether another statement stands on one of its lines."""
    return any(
        other is not node and other.lineno <= (node.end_lineno or node.lineno) and (other.end_lineno or other.lineno) >= node.lineno
        for other in tree.body
    )
