"""What the public API is, for the tests that walk it: the names that modules export, their classes' public methods and constructors."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from kstreams_repl.system.facade import doors

MODULES = (
    *doors("kstreams_repl"), "kstreams_repl.engine.dsl.timestamps", "kstreams_repl.test_driver.tables", "kstreams_repl.engine.serdes",
)  # fmt: skip

UNWALKED = {"StandaloneCluster", "connect_async", "open_state"}
"""Names of other processes' tools, which take what a server or a cluster gives."""


def exported(module: str) -> dict[str, Any]:
    """What a module exports: `__all__`, or what it defines without an underscore."""
    loaded = importlib.import_module(module)
    names = getattr(loaded, "__all__", None)
    if names is None:
        names = [name for name, value in vars(loaded).items() if name[0] != "_" and getattr(value, "__module__", "") == module]
    left_out = UNWALKED | ({"connect"} if module == "kstreams_repl.queries" else set())
    return {name: getattr(loaded, name) for name in names if name not in left_out}


@functools.cache
def classes() -> dict[str, type]:
    """Public classes by name."""
    found = {}
    for module in MODULES:
        for name, value in exported(module).items():
            if inspect.isclass(value):
                found.setdefault(name if module != "kstreams_repl.kip28" else f"kip28.{name}", value)
    return found


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class, inherited ones of ours, too."""
    for owner in reversed(cls.__mro__):
        if owner.__module__.startswith(("kstreams_repl", "kernel_ext")):
            for name, member in vars(owner).items():
                if not name.startswith("_"):
                    yield name, member


def methods(cls: type) -> dict[str, Callable[..., Any]]:
    """Public methods of a class, without decorators."""
    found = {}
    for name, member in members(cls):
        function = getattr(member, "__func__", member)
        if inspect.isfunction(function):
            found[name] = function
    return found


@functools.cache
def functions() -> dict[str, Callable[..., Any]]:
    """Public functions, methods and constructors, by ``name`` or ``Class.method``."""
    found: dict[str, Callable[..., Any]] = {}
    for module in MODULES:
        found |= {name: value for name, value in exported(module).items() if inspect.isfunction(value)}
    for kind, cls in classes().items():
        if issubclass(cls, Enum):
            continue
        if inspect.isfunction(vars(cls).get("__init__")):
            found[f"{kind}.__init__"] = vars(cls)["__init__"]
        found |= {f"{kind}.{name}": function for name, function in methods(cls).items()}
    return found


def handed_out() -> dict[str, str]:
    """Classes of ours that public functions and properties return, by name, with one function that does.

    Annotations are read as text: many names in them are imported for type checking only.
    """
    found: dict[str, str] = {}
    functions_and_properties: dict[str, Any] = dict(functions())
    for kind, cls in classes().items():
        for name, member in members(cls):
            if isinstance(member, property | functools.cached_property):
                functions_and_properties[f"{kind}.{name}"] = member.fget if isinstance(member, property) else member.func
    for where, function in functions_and_properties.items():
        function = inspect.unwrap(function)
        if function.__code__.co_filename.startswith("<"):  # made by dataclasses
            continue
        text = str(getattr(function, "__annotations__", {}).get("return", ""))
        ours = _ours(function.__code__.co_filename)
        for word in re.findall(r"\b[A-Z]\w+", text):
            if word in ours:
                found.setdefault(word, where)
    return found


@functools.cache
def _ours(path: str) -> frozenset[str]:
    """Classes that a module of ours defines or imports from another one of ours."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(("kstreams_repl", "kernel_ext")):
            imported = importlib.import_module(str(node.module))
            names |= {alias.asname or alias.name for alias in node.names if inspect.isclass(getattr(imported, alias.name, None))}
    return frozenset(names)
