"""``%%topo_edit NAME NODE``: turns the cell's body into a call of `StreamsBuilder.replace`, as text that a version can keep.

A body that is one expression becomes the argument. Any other body becomes a function that is called once and returns the value of
its last statement, so that its names stay local: a `def paid` does not overwrite the stream in the variable `paid`. Line numbers
count from the magic's line of the cell, so that a later error quotes the right line.
"""

from __future__ import annotations

import ast
import hashlib
import re
import textwrap
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from IPython.core.error import UsageError

from kstreams_repl.system.types import KeyValueMapper

EDITED = "__edited__"
"""The builder's name in the text."""
EDIT_FUNCTION = "edit_of_"
"""Prefix of the names of the functions in that text."""


@dataclass(frozen=True, slots=True)
class EditOptions:
    """The options of an edit that concern stores."""

    reset_state: Sequence[str]
    migrate: Mapping[str, KeyValueMapper]
    migrate_rows: Mapping[str, KeyValueMapper]

    @staticmethod
    def of(given: Namespace, reset_state: Sequence[str], names: Mapping[str, object]) -> EditOptions:
        """Return the options of a parsed line; functions are looked up, or evaluated, in the notebook's namespace.

        Raises:
            UsageError: an option is not STORE=FUNCTION, or FUNCTION is not callable.
        """
        rows = {"migrate": given.migrate, "migrate-rows": given.migrate_rows}
        found = {option: dict(_conversion(option, text, names) for text in texts) for option, texts in rows.items()}
        return EditOptions(reset_state, found["migrate"], found["migrate-rows"])

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for `Application.edit`."""
        return {"reset_state": self.reset_state, "migrate": self.migrate, "migrate_rows": self.migrate_rows}


def _conversion(option: str, text: str, names: Mapping[str, object]) -> tuple[str, KeyValueMapper]:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    store, equals, expression = (text[1:-1] if quoted else text).partition("=")
    store, expression = store.strip(), expression.strip()
    if not equals or not store or not expression:
        raise UsageError(f"--{option} expects STORE=FUNCTION, got {text!r}; for example --{option} counts=to_object")
    try:
        function = eval(expression, dict(names))
    except Exception as error:
        raise UsageError(f"--{option} {store}: {expression} raised {type(error).__name__}: {error}") from error
    if not callable(function):
        raise UsageError(f"--{option} {store}: expected a function of key and value, got {expression}, a {type(function).__name__}")
    return store, function


def edit_text(node: str, body: str, parameters: Collection[str]) -> str:
    """Return Python code that replaces a node's function by the function of a cell's body.

    Args:
        body: ends with a lambda or another expression, a def, a class, or an assignment. Several defs whose names are parameters
            of the call that made the node (``aggregator``, ``initializer``) replace these parameters.
        parameters: names of the parameters of that call that take functions.

    Raises:
            UsageError: the body does not end with anything callable.
            SyntaxError: the body is not valid Python.
    """
    tree = ast.parse(body)
    if not tree.body:
        raise UsageError(f"expected the new function of {node} (a lambda, a def or a class), got an empty cell")
    last = tree.body[-1]
    if len(tree.body) == 1 and isinstance(last, ast.Expr):
        text = f"{EDITED}.replace({node!r}, (\n{body.rstrip()}\n))\n"
        if _parses(text):
            return text
    named = [item.name for item in tree.body if isinstance(item, ast.FunctionDef) and item.name in parameters]
    if named:
        statements, given, call = tree.body, f"{{{', '.join(f'{name!r}: {name}' for name in named)}}}", "**"
    elif isinstance(last, ast.Expr):
        statements, given, call = tree.body[:-1], ast.unparse(last.value), ""
    else:
        statements, given, call = tree.body, _bound_by(last, node), ""
    name = f"{EDIT_FUNCTION}{re.sub(r'[^0-9A-Za-z]', '_', node)}_{hashlib.sha256(body.encode()).hexdigest()[:8]}"
    lines = body.splitlines()[: (last.lineno - 1 if statements != tree.body else len(body.splitlines()))]
    inner = textwrap.indent("\n".join(lines), "    ")
    if not _same(
        inner, statements
    ):  # a text of several lines must not be indented, and a `;` may precede the last expression
        inner = "\n".join(textwrap.indent(ast.unparse(item), "    ") for item in statements)
    head = f"def {name}():\n{inner}\n" if inner.strip() else f"def {name}():\n"
    return f"{head}    return {given}\n{EDITED}.replace({node!r}, {call}{name}())\n"


def _bound_by(statement: ast.stmt, node: str) -> str:
    """Return the name that a body's last statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return statement.name
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    raise UsageError(f"expected the cell to end with the new function of {node}: a lambda, a def or a class")


def _same(inner: str, statements: list[ast.stmt]) -> bool:
    try:
        found = ast.parse(f"def f():\n{inner}\n    return\n").body[0]
    except SyntaxError:
        return False
    assert isinstance(found, ast.FunctionDef)
    return [ast.dump(item) for item in found.body[:-1]] == [ast.dump(item) for item in statements]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
