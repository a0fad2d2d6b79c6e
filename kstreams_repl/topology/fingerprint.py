"""What a function, an operator or a processor's class does, as something comparable: it is equal for two cells that say the same."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def fingerprint(value: Any, depth: int = 6) -> Any:
    """Something comparable that is equal for functions that do the same: code, constants, defaults, values closed over.

    Values that a function reads from its module are not part of it; classes are compared by their methods.
    """
    if depth == 0 or isinstance(value, (str, int, float, bool, bytes, types.NoneType)):
        return value if isinstance(value, (str, int, float, bool, bytes, types.NoneType)) else type(value).__qualname__
    if isinstance(value, types.CodeType):
        constants = tuple(fingerprint(constant, depth - 1) for constant in value.co_consts)
        return "code", value.co_code, value.co_names, value.co_varnames, constants
    if isinstance(value, types.FunctionType):
        cells = tuple(fingerprint(_content(cell), depth - 1) for cell in value.__closure__ or ())
        defaults = fingerprint(value.__defaults__, depth - 1), fingerprint(value.__kwdefaults__, depth - 1)
        return "function", fingerprint(value.__code__, depth), cells, defaults
    if isinstance(value, types.MethodType):
        return "method", fingerprint(value.__func__, depth), fingerprint(value.__self__, depth - 1)
    if isinstance(value, _BUILT_IN):
        return "built-in", getattr(value, "__module__", None), value.__qualname__
    if isinstance(value, (list, tuple)):
        return tuple(fingerprint(item, depth - 1) for item in value)
    if isinstance(value, (dict, types.MappingProxyType)):
        return tuple((str(key), fingerprint(item, depth - 1)) for key, item in value.items())
    if isinstance(value, type):
        methods = {k: v for k, v in vars(value).items() if isinstance(v, (types.FunctionType, str, int, float, bool))}
        methods.pop("__module__", None), methods.pop("__doc__", None), methods.pop("__firstlineno__", None)
        return "class", value.__qualname__, fingerprint(methods, depth - 1)
    if dataclasses.is_dataclass(value):
        return type(value).__qualname__, fingerprint(fields_of(value), depth - 1)
    state = getattr(value, "__dict__", None)
    kind = type(value)
    return (
        kind.__qualname__,
        fingerprint(kind, depth - 1) if kind.__module__ == "__main__" else None,
        fingerprint(state, depth - 1),
    )


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def fields_of(operator: Any) -> dict[str, Any]:
    """Its fields by name; what is no dataclass is one itself."""
    if dataclasses.is_dataclass(operator):
        return {f.name: getattr(operator, f.name) for f in dataclasses.fields(operator)}
    return {"supplier": operator}
