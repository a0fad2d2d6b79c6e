"""Comparable values for what a function, an operator or a processor class does: equal for two cells with the same code.

`fingerprint` inspects the object itself. `whole_fingerprint` also inspects what functions read from their module: helpers and
values of a notebook may change while the function stays the same, so the running code can only be compared with a fingerprint
taken at its start.
"""

from __future__ import annotations

import copyreg
import dataclasses
import dis
import functools
import hashlib
import marshal
import pickle
import sys
import sysconfig
import types
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

DEPTH = 6
DEPTH_OF_LIBRARIES = 12
"""Dataframes and models nest their contents deeply."""
LARGE = 256
"""Larger collections of texts, numbers and nested collections of these are compared by a hash, as are longer texts."""
MOST_ITEMS = 10_000
"""Larger collections of anything else are compared by a hash too; if they contain what cannot be pickled, by length only."""
MOST_THINGS = 100_000
"""After this number of objects only types are compared, for example for a function that reads a whole session."""
_OURS = ("kstreams_repl", "kernel_ext")
_SINGLE = (str, bytes, types.NoneType)
_NUMBERS = (bool, int, float, complex)
_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_COLLECTIONS = (list, tuple, dict, types.MappingProxyType, set, frozenset)
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def fingerprint(value: object, depth: int = DEPTH) -> object:
    """Return a comparable value that is equal for functions that do the same: code, constants, defaults, closure values.

    Values that a function reads from its module are not included; classes are compared by their methods and attributes.
    """
    return _Fingerprint(reads=False).of(value, depth)


def whole_fingerprint(value: object, depth: int = 2 * DEPTH) -> object:
    """Return `fingerprint` together with the functions, classes and values that its functions read from the user's modules."""
    return _Fingerprint(reads=True).of(value, depth)


def canonical(value: object) -> str:
    """Return a fingerprint as text that is the same in every process.

    Example:
        >>> canonical(("a", frozenset({2, 1})))
        "('a',{1,2})"
    """
    if isinstance(value, tuple):
        return f"({','.join(map(canonical, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(canonical, value)))}}}"
    return repr(value)


class _Fingerprint:
    """One inspection. `_inside` holds the objects being inspected, for cyclic references; `_seen` holds the functions and classes
    already inspected (how deep, and under which number), so that helpers that call each other are inspected once, not once per
    path to them.
    """

    def __init__(self, *, reads: bool) -> None:
        self._reads = reads
        self._inside: set[int] = set()
        self._seen: dict[int, tuple[int, int]] = {}
        self._left = MOST_THINGS

    def of(self, value: object, depth: int) -> object:
        if isinstance(value, _SINGLE):
            return value if value is None or len(value) <= 16 * LARGE else _hash_of(value)
        if isinstance(value, _NUMBERS):
            return type(value).__name__, repr(value)  # 1, 1.0 and True are equal but behave differently
        if isinstance(value, types.CodeType):
            return self._code(value)
        self._left -= 1
        if depth == 0 or self._left < 0 or id(value) in self._inside:
            return type(value).__qualname__
        if self._reads and isinstance(value, (types.FunctionType, type)):
            looked, number = self._seen.get(id(value), (0, len(self._seen)))
            if looked >= depth:
                return "again", number
            self._seen[id(value)] = depth, number
        self._inside.add(id(value))
        try:
            return self._deep(value, depth)
        finally:
            self._inside.discard(id(value))

    def _code(self, code: types.CodeType) -> object:
        """Return the fingerprint of a code object, without a depth limit: source code bounds its nesting."""
        constants = tuple(self._constant(constant) for constant in code.co_consts)
        return "code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants

    def _constant(self, constant: object) -> object:
        if isinstance(constant, tuple):
            return "tuple", tuple(self._constant(item) for item in constant)
        if isinstance(constant, frozenset):
            return "set", frozenset(self._constant(item) for item in constant)
        return self.of(constant, 1)

    def _deep(self, value: object, depth: int) -> object:
        if isinstance(value, types.FunctionType):
            cells = tuple(self._closed_over(content_of(cell), depth - 1, value.__code__) for cell in value.__closure__ or ())
            defaults = self.of(value.__defaults__, depth - 1), self.of(value.__kwdefaults__, depth - 1)
            read = (self._read(value, depth),) if self._reads else ()
            return "function", self._code(value.__code__), cells, defaults, *read
        if isinstance(value, types.MethodType):
            return "method", self.of(value.__func__, depth), self.of(value.__self__, depth - 1)
        if isinstance(value, types.ModuleType):
            return "module", value.__name__
        if isinstance(value, _BUILT_IN):
            own = getattr(value, "__self__", None)
            bound = () if own is None or isinstance(own, types.ModuleType) else (self.of(own, depth - 1),)
            return "built-in", getattr(value, "__module__", None), value.__qualname__, *bound
        if isinstance(value, staticmethod | classmethod):
            return type(value).__name__, self.of(value.__func__, depth)
        if isinstance(value, property):
            return "property", *(self.of(one, depth) for one in (value.fget, value.fset, value.fdel))
        if isinstance(value, _COLLECTIONS):
            return self._collection(value, depth)
        if isinstance(value, type):
            return self._class(value, depth)
        if isinstance(value, functools.partial):
            return "partial", self.of(value.func, depth - 1), self.of(value.args, depth - 1), self.of(value.keywords, depth - 1)
        return self._object(value, depth)

    def _collection(self, value: Collection[object], depth: int) -> object:
        kind = type(value).__name__
        own: tuple[object, ...] = ()
        if type(value) not in _COLLECTIONS:  # a defaultdict, a named tuple, a user's class
            more = getattr(value, "default_factory", None), getattr(value, "__dict__", None)
            own = (self._behind(type(value), depth), *(self.of(one, depth - 1) for one in more))
        if len(value) > LARGE:
            content = _content_hash(value)
            if content is not None or len(value) > MOST_ITEMS:
                return kind, len(value), content, *own
        if isinstance(value, Mapping):
            return kind, tuple((self.of(key, depth - 1), self.of(item, depth - 1)) for key, item in value.items()), *own
        items = (self.of(item, depth - 1) for item in value)
        return kind, frozenset(items) if isinstance(value, (set, frozenset)) else tuple(items), *own

    def _class(self, value: type, depth: int) -> object:
        if not is_users(value.__module__) and hasattr(sys.modules.get(value.__module__), value.__qualname__.partition(".")[0]):
            return "class", value.__module__, value.__qualname__
        own = {
            name: item
            for name, item in vars(value).items()
            if isinstance(item, types.FunctionType)
            or not (name[0] == name[-1] == "_" or name == "_abc_impl" or isinstance(item, _SLOTS))
        }
        bases = tuple(self.of(base, depth - 1) for base in value.__bases__ if is_users(base.__module__))
        return "class", value.__qualname__, self.of(own, depth - 1), bases

    def _object(self, value: object, depth: int) -> object:
        kind = type(value)
        if dataclasses.is_dataclass(value):
            return kind.__qualname__, self._behind(kind, depth), self.of(fields_of(value), depth - 1)
        library = not is_users(kind.__module__) and kind.__module__.split(".")[0] not in _OURS
        state = None if library else getattr(value, "__dict__", None)
        depth = max(depth, DEPTH_OF_LIBRARIES) if library else depth
        content = self.of(state, depth - 1) if state else tuple(self.of(part, depth - 1) for part in _reduced(value))
        return kind.__qualname__, self._behind(kind, depth), content

    def _behind(self, kind: type, depth: int) -> object:
        return self.of(kind, depth - 1) if is_users(kind.__module__) else None

    def _read(self, function: types.FunctionType, depth: int) -> object:
        """Return by name what the code of a user's function reads from its module."""
        if not is_users(function.__module__):
            return ()
        names = sorted({name for name in global_names(function.__code__) if name in function.__globals__})
        return tuple((name, self._known(function.__globals__[name], depth - 1, function.__code__)) for name in names)

    def _closed_over(self, value: object, depth: int, code: types.CodeType) -> object:
        return self._known(value, depth, code) if self._reads and isinstance(value, types.ModuleType) else self.of(value, depth)

    def _known(self, value: object, depth: int, code: types.CodeType) -> object:
        if isinstance(value, (types.FunctionType, type)) and not is_users(value.__module__):
            return value.__module__, value.__qualname__
        if isinstance(value, types.ModuleType) and depth > 0 and is_users(value.__name__):
            asked = sorted(all_names(code) & vars(value).keys())  # `helpers.shout`: both names are in the code
            return "module", value.__name__, tuple((name, self._known(vars(value)[name], depth - 1, code)) for name in asked)
        return self.of(value, depth)


def global_names(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a code object, and those nested in it, look up in their module."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from global_names(constant)


def all_names(code: types.CodeType) -> set[str]:
    """Return every name in a code object and those nested in it, including names of attributes."""
    inner = (all_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*inner)


def _hash_of(value: str | bytes) -> object:
    data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return type(value).__name__, len(value), hashlib.sha256(data).digest()


def _content_hash(value: Collection[object]) -> bytes | None:
    """Return a hash of a collection of texts, numbers and nested collections of these; above `MOST_ITEMS` of anything
    picklable."""
    plain: Any = value
    if type(value) not in (list, tuple, dict, set, frozenset):
        kind: Any = dict if isinstance(value, Mapping) else next((kind for kind in (list, tuple) if isinstance(value, kind)), set)
        plain = kind(value)
    try:
        return hashlib.sha256(marshal.dumps(plain, 0)).digest()
    except ValueError:  # it contains something else
        pass
    if len(value) <= MOST_ITEMS:
        return None
    digest = hashlib.sha256()
    pickler = pickle.Pickler(cast("Any", types.SimpleNamespace(write=digest.update)), protocol=4)
    pickler.fast = True  # no memo, so identity of the items does not matter
    try:
        pickler.dump(plain)
    except Exception:  # of a user's class: its items are then visited as those of a small collection
        return None
    return digest.digest()


def _reduced(value: object) -> Iterator[object]:
    """Yield what pickle would keep of a value without attributes: patterns, dates, getters of `operator`, arrays."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        parts = value.__reduce_ex__(4) if reduce is None else reduce(value)
    except Exception:  # a lock or a generator has nothing to compare
        return
    if isinstance(parts, str):  # pickled by name: for example a decorator's result, with the function in its attributes
        parts = parts, getattr(value, "__dict__", None)
    for part in parts if isinstance(parts, tuple) else (parts,):
        yield tuple(part) if isinstance(part, Iterator) else part


@functools.cache
def is_users(module: str | None) -> bool:
    """Return whether a module is the user's own: a notebook, a script or a file next to it."""
    if module is None or module.split(".")[0] in (*_OURS, "builtins"):
        return False
    if module == "__main__":
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return module not in sys.modules
    return not is_installed(file)


def is_installed(file: str) -> bool:
    """Return whether a file belongs to Python or to an installed package."""
    places = {Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).resolve().is_relative_to(folder) for folder in places)


def content_of(cell: types.CellType) -> object:
    """Return the value of a closure cell; None while it is empty."""
    try:
        return cell.cell_contents
    except ValueError:  # empty cell
        return None


def fields_of(operator: object) -> dict[str, Any]:
    """Return an operator's fields by name; anything but a dataclass counts as a single field."""
    if dataclasses.is_dataclass(operator):
        return {f.name: getattr(operator, f.name) for f in dataclasses.fields(operator)}
    return {"supplier": operator}
