"""Parse Python's text in a process in which other threads do so, too."""

from __future__ import annotations

import ast
from typing import Any

_ATTEMPTS = 10


def parse(text: str, mode: str = "exec") -> Any:
    """Return the tree of a text, as `ast.parse`.

    CPython before 3.11.8 and 3.12.1 counts the depth of a tree for all threads together (gh-106905): where the collector runs Python code
    while one thread builds its tree, and another thread builds one then, the first gets a SystemError. The text is parsed again.

    Raises:
        SyntaxError: the text is not Python's.

    Example:
        >>> parse("1 + 1", "eval").body.op
        <ast.Add object at ...>
    """
    for attempt in range(_ATTEMPTS):
        try:
            return ast.parse(text, mode=mode)
        except SystemError:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
