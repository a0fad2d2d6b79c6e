"""Add the user's source line to errors, and name a cell by its execution number.

A worker knows the file under which the notebook compiled a cell, and the line; the notebook has the text and the number.
"""

from __future__ import annotations

import linecache
import re

from kstreams_repl.repl.session.source.cell_history import history
from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import UserLine

_CELL_FILE = re.compile(
    r"(?P<file>[^\s\"'(]*ipykernel_\d+[/\\]\d+\.py|<ipython-input-\d+-[0-9a-f]+>)"
    r"(?:\"?, line (?P<said>\d+)|:(?P<line>\d+))?"
)


def with_source(error: KStreamsError) -> KStreamsError:
    """Return the error with the text of the user's line filled in if missing, and with cells named by their numbers."""
    line = error.user_line
    if line is not None and not line.text:
        text, place = linecache.getline(line.file, line.line).strip(), str(line)
        if text and place in error.message:
            error.fields["user_line"] = (line.file, line.line, text)
            error.message = error.message.replace(place, f"{place}: {text}", 1)
    error.message = with_cell_numbers(error.message)
    error.hint = error.hint and with_cell_numbers(error.hint)
    error.args = (error.message,)
    return error


def with_cell_numbers(text: str) -> str:
    """Return a text with cells named by number, as IPython displays them, not by the files that it compiles them as.

    Example:
        >>> with_cell_numbers("/tmp/ipykernel_17/42.py:3: x / 0")
        'a cell of another kernel, line 3: x / 0'
    """

    def named(found: re.Match[str]) -> str:
        line = found["line"] or found["said"]
        return location_name(found["file"]) + (f", line {line}" if line else "")

    return _CELL_FILE.sub(named, text)


def location_name(file: str) -> str:
    """Return a source file as a user knows it: ``cell [7]``, or the file."""
    cell = history.cell_of(file)
    if cell is not None:
        return str(cell)
    return "a cell of another kernel" if _CELL_FILE.fullmatch(file) else file


def user_location(error: BaseException) -> UserLine | None:
    """Return the line of the user's code that an error names; None when it names none."""
    return error.user_line if isinstance(error, KStreamsError) else None
