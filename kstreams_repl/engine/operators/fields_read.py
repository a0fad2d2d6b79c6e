"""Which fields of a JSON object a user's function reads, so that a source's loop deserializes no others.

Found in the function's bytecode, where each use of the parameter must be one of: `value["name"]`, `value.get("name")`, `"name" in value`,
a comparison with None. Invariant: whatever is not recognised as such a use means that every field may be read.
"""

from __future__ import annotations

import dis
from collections.abc import Sequence
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from types import FunctionType

_OTHER_KINDS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_SEES_ALL = frozenset({"locals", "vars", "dir", "eval", "exec", "breakpoint", "set_trace", "_getframe", "currentframe", "stack"})
"""Names of functions that see a caller's variables."""
_SILENT = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "PRECALL", "RESUME"})
_LOADS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"})


def fields_read(function: object, position: int) -> frozenset[str] | None:
    """Return the fields that a function reads of the object it gets as this argument; None: it may do anything with it.

    Example:
        >>> sorted(fields_read(lambda key, order: order["price"] * order.get("count", 1), 1))
        ['count', 'price']
        >>> fields_read(lambda key, order: order, 1) is None
        True
    """
    if not isinstance(function, FunctionType):
        return None
    code = function.__code__
    if code.co_flags & _OTHER_KINDS or position >= code.co_argcount or _SEES_ALL & {*code.co_names, *code.co_freevars}:
        return None
    name = code.co_varnames[position]
    if name in code.co_cellvars:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in _SILENT]
    found: set[str] = set()
    for index, step in enumerate(steps):
        if not _names(step, name):
            continue
        field = _field(steps, index, name)
        if field is None:
            return None
        found.update(field)
    return frozenset(found)


def _names(step: dis.Instruction, name: str) -> bool:
    """Return whether an instruction is about a variable; some load two at once."""
    return "FAST" in step.opname and (name == step.argval or (isinstance(step.argval, tuple) and name in step.argval))


def _field(steps: Sequence[dis.Instruction], index: int, name: str) -> tuple[str, ...] | None:
    """Return the field that the use at `index` reads, an empty tuple for a comparison with None, None for any other use."""
    step, (one, two, three, four) = steps[index], (*steps[index + 1 : index + 5], *[_END] * 4)[:4]
    if isinstance(step.argval, tuple):
        if step.argval[-1] != name or name in step.argval[:-1]:
            return None
    elif step.opname not in _LOADS:
        return None
    if one.opname == "CONTAINS_OP" and index:
        return _text(steps[index - 1])
    if one.opname.endswith(("IF_NONE", "IF_NOT_NONE")) or (_is_none(one) and two.opname == "IS_OP"):
        return ()
    if two.opname == "BINARY_SUBSCR" or (two.opname == "BINARY_OP" and two.argrepr == "[]"):
        return _text(one)
    if one.opname in ("LOAD_METHOD", "LOAD_ATTR") and one.argval == "get":
        after = three if three.opname != "LOAD_CONST" else four
        given = 1 if after is three else 2
        return _text(two) if after.opname == "CALL" and after.arg == given else None
    return None


_END = next(dis.get_instructions((lambda: None).__code__))


def _is_none(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_CONST" and step.argval is None


def _text(step: dis.Instruction) -> tuple[str, ...] | None:
    return (step.argval,) if step.opname == "LOAD_CONST" and type(step.argval) is str else None
