"""Facades: modules that offer names of other modules and import each on its first use.

A facade is a pair of files: ``queries.py`` with its docstring and one call of `facade`, and the stub ``queries.pyi``, whose lines
``from … import Name as Name`` are the only list of its names, for type checkers and at run time (Scientific Python's SPEC 1).
"""

from __future__ import annotations

import ast
import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from kstreams_repl.system.extras import extras


@functools.cache
def exports(module: str) -> dict[str, str]:
    """Return the names that a facade offers, each with the module that it is imported from.

    Args:
        module: the facade, for example ``kstreams_repl.queries``.

    Example:
        >>> exports("kstreams_repl.queries")["KeyQuery"]
        'kstreams_repl.serving.queries.query_types'
    """
    stub = Path(str(importlib.import_module(module).__file__)).with_suffix(".pyi")
    imports = [node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names if alias.asname}


def doors(package: str) -> list[str]:
    """Return the facades of a package, itself first."""
    return [package, *(f"{package}.{name}" for name, place in exports(package).items() if place == package)]


def facade(module: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a facade.

    ``__getattr__`` raises a `MissingPackageError` if a name needs a library that is not installed, and an `AttributeError` that
    names the right facade for a name of another one.
    """
    places = exports(module)

    def load(name: str) -> object:
        if name not in places:
            others = [] if name.startswith("_") else [door for door in doors(module.partition(".")[0]) if name in exports(door)]
            hint = "".join(f". Hint: it is {door}.{name}" for door in others)
            raise AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[module])
        with extras():
            if places[name] == module:
                return importlib.import_module(f"{module}.{name}")
            value = getattr(__import__(places[name], fromlist=[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return load, lambda: sorted({*vars(sys.modules[module]), *places}), sorted(places)
