"""Add the user's source line to errors, and name a cell by its execution number.

A worker knows the file under which the notebook compiled a cell, and the line; the notebook has the text and the number.
"""

from __future__ import annotations

import linecache
import re
from typing import Any

from kstreams_repl.repl.session.source.cell_history import CellLocation, history
from kstreams_repl.system.errors import KStreamsError

_CELL_FILE = re.compile(
    r"(?P<file>[^\s\"'(]*ipykernel_\d+[/\\]\d+\.py|<ipython-input-\d+-[0-9a-f]+>)"
    r"(?:\"?, line (?P<said>\d+)|:(?P<line>\d+))?"
)


def with_source(error: KStreamsError) -> KStreamsError:
    """Return the error with the text of the user's line filled in if missing, and with cells named by their numbers."""
    line = error.fields.get("user_line")
    if isinstance(line, list | tuple) and len(line) == 2 or (isinstance(line, list | tuple) and len(line) > 2 and not line[2]):
        file, number = str(line[0]), int(line[1])
        text, place = linecache.getline(file, number).strip(), f"{file}:{number}"
        if text and place in error.message:
            error.fields["user_line"] = (file, number, text)
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


def user_location(error: BaseException) -> tuple[str, int, str] | None:
    """Return (file, line, text) of the user's code that an error names; None when it names none."""
    fields: dict[str, Any] = getattr(error, "fields", {})
    line = fields.get("user_line")
    if isinstance(line, list | tuple) and len(line) >= 2:
        return str(line[0]), int(line[1]), str(line[2]) if len(line) > 2 else ""
    return None


def cell_of_error(error: BaseException) -> CellLocation | None:
    """Return the cell of the user's line that an error names; None when that is not a cell of this notebook."""
    place = user_location(error)
    return None if place is None else history.cell_of(place[0])
