"""The text of the functions that differ between two versions of a topology.

The text of a node is that of the user's functions and classes that its operator holds, from their cells or files. Text that is
not available any more (a function made by `exec`, a file that has changed) is left out; the plan still reports that the node's
code changed.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import sys
import textwrap
import types
from collections.abc import Collection, Iterator
from typing import Any

from kstreams_repl.engine.topology.differences.fingerprint import content_of, fields_of
from kstreams_repl.engine.topology.graph import TopologyGraph
from kstreams_repl.pictures.diff_text import DiffText
from kstreams_repl.system.syntax import parse

_OURS = ("kstreams_repl", "kernel_ext")
_DEPTH = 5


def code_changes(
    old: TopologyGraph, new: TopologyGraph, names: Collection[str] | None = None, *, before: str, after: str
) -> DiffText:
    """Return a unified diff for each node whose functions have another text.

    Args:
        names: these nodes only; None: all that both have, and added or removed ones.
        before, after: names of the two versions.
    """
    wanted = [*new.nodes, *(name for name in old.nodes if name not in new.nodes)]
    changed, seen = [], set()
    for name in wanted if names is None else names:
        was, now = (source_of(graph.nodes[name]) if name in graph.nodes else "" for graph in (old, new))
        if was != now and (was, now) not in seen:  # an operator may be several nodes
            seen.add((was, now))
            changed.append((name, was, now))
    return DiffText.of(changed, before=before, after=after)


def source_of(node: object) -> str:
    """Return the text of the user's functions in a node, one after the other; "" when it has none, or their text is unknown."""
    operator = getattr(node, "operator", None)
    parts = [operator] if operator is not None else [getattr(node, name, None) for name in _NODE_FUNCTIONS]
    texts = dict.fromkeys(text for part in parts for function in _functions(part, _DEPTH, set()) if (text := _text(function)))
    return "\n".join(texts)


_NODE_FUNCTIONS = ("timestamp_extractor", "topic_extractor", "partitioner")


def _functions(value: object, depth: int, seen: set[int]) -> Iterator[object]:
    """Yield the user's functions and classes in one of our values: its fields, its functions' closures, collections of these."""
    if depth == 0 or id(value) in seen or value is None or isinstance(value, str | bytes | int | float):
        return
    seen.add(id(value))
    if isinstance(value, functools.partial):
        yield from _functions(value.func, depth, seen)
        return
    if isinstance(value, types.MethodType):
        yield from _functions(value.__func__ if _is_ours(value.__func__) else type(value.__self__), depth, seen)
        return
    if isinstance(value, types.FunctionType):
        if not _is_ours(value):
            yield value
        for cell in value.__closure__ or ():
            yield from _functions(content_of(cell), depth - 1, seen)
        return
    if isinstance(value, type):
        if not _is_ours(value) and value.__module__.partition(".")[0] not in sys.stdlib_module_names:
            yield value
        return
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _functions(item, depth - 1, seen)
        return
    if isinstance(value, dict):
        for item in value.values():
            yield from _functions(item, depth - 1, seen)
        return
    if not _is_ours(type(value)):
        yield from _functions(type(value), depth, seen)
        return
    for item in fields_of(value).values():
        yield from _functions(item, depth - 1, seen)


def _is_ours(thing: object) -> bool:
    return str(getattr(thing, "__module__", "") or "").partition(".")[0] in _OURS


def _text(thing: Any) -> str:
    try:
        found = _text_of_class(thing) if isinstance(thing, type) else inspect.getsource(thing)
        return textwrap.dedent(found).rstrip()
    except (OSError, TypeError, IndexError, SyntaxError):
        return ""


def _text_of_class(kind: type) -> str:
    """Return the text of a class, found by the file of its methods: a notebook's module has no file."""
    codes = [code for member in vars(kind).values() if (code := getattr(inspect.unwrap(member), "__code__", None)) is not None]
    for code in codes:
        text = "".join(linecache.getlines(code.co_filename))
        for node in ast.walk(parse(text)):
            if not isinstance(node, ast.ClassDef) or node.name != kind.__name__:
                continue
            if node.lineno <= code.co_firstlineno <= (node.end_lineno or 0):
                return "".join(text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno])
    return ""
