"""A magic's arguments as they were meant: IPython's parser leaves the quotes round them that keep words together."""

from __future__ import annotations

from typing import Any

from IPython.core.magic_arguments import parse_argstring


def arguments(magic: Any, line: str) -> Any:
    """`parse_argstring`, without those quotes."""
    given = parse_argstring(magic, line)
    for name, value in vars(given).items():
        setattr(given, name, [_unquoted(item) for item in value] if isinstance(value, list) else _unquoted(value))
    return given


def _unquoted(value: Any) -> Any:
    quoted = isinstance(value, str) and len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
