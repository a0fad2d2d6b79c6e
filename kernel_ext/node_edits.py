"""``%%topo_edit NAME NODE``: the cell's body becomes a call of `StreamsBuilder.replace`, as text that a version can keep.

A body that is one expression becomes the argument; any other one becomes a function that is called once and returns what the body ends
with, so that its names are its own: a `def paid` does not overwrite the stream in the variable `paid`. Line numbers are those of the
cell with its magic's line, for the error that quotes a line later on.
"""

from __future__ import annotations

import ast
import hashlib
import re
import textwrap
from collections.abc import Collection

from IPython.core.error import UsageError

EDITED = "__edited__"
"""The builder's name in the text."""
EDIT_FUNCTION = "edit_of_"
"""What the names of the functions in it begin with."""


def edit_text(node: str, body: str, parameters: Collection[str]) -> str:
    """Python that puts the function of a cell's body in place of a node's.

    Args:
        body: it ends with a lambda or another expression, a def, a class, or an assignment. Several defs that are called as
            parameters of the call that made the node (``aggregator``, ``initializer``) replace these.
        parameters: what functions that call has, by parameter name.

    Raises:
        UsageError: it ends with nothing that could be called.
        SyntaxError: it is no Python.
    """
    tree = ast.parse(body)
    if not tree.body:
        raise UsageError(f"the cell is empty: give {node} a lambda or a def")
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
    if not _same(inner, statements):  # a text over several lines is not to be indented, a `;` may stand before the last expression
        inner = "\n".join(textwrap.indent(ast.unparse(item), "    ") for item in statements)
    head = f"def {name}():\n{inner}\n" if inner.strip() else f"def {name}():\n"
    return f"{head}    return {given}\n{EDITED}.replace({node!r}, {call}{name}())\n"


def _bound_by(statement: ast.stmt, node: str) -> str:
    """The name that a body's last statement binds."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return statement.name
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    raise UsageError(f"the cell must end with what {node} is to call: a lambda, a def or a class")


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
