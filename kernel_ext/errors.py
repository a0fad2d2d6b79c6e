"""Errors of ours in three lines: what happened, the user's line, the hint. The trace is folded away; ``%tb`` shows it."""

from __future__ import annotations

import linecache
import os
import re
import sys
from traceback import walk_tb
from types import TracebackType
from typing import Any

from kstreams_repl.display.markup import clean_text, one_line
from kstreams_repl.errors import KStreamsError
from kstreams_repl.runtime.user_error import is_users
from kstreams_repl.session.errors_shown import user_place

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def show_error(
    shell: Any, kind: type[BaseException], error: BaseException, trace: TracebackType | None, tb_offset: int | None = None
) -> list[str]:
    """IPython's custom exception handler for `KStreamsError`."""
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    lines = three_lines(error, trace)
    shell._showtraceback(kind, error, lines)
    return lines


def three_lines(error: BaseException, trace: TracebackType | None) -> list[str]:
    """What happened · where, by the user's own line · what to do about it."""
    message = error.message if isinstance(error, KStreamsError) else str(error)
    first, *rest = clean_text(message).splitlines() or [""]
    lines = [f"{type(error).__name__}: {first}"]
    place = user_place(error) or line_in_cell(trace)
    if place is not None and place[2]:
        lines.append(f"  {one_line(_short(place[0]))}, line {place[1]}: {one_line(_as_written(place[2]), limit=160)}")
    elif rest:
        lines.append("  " + " ".join(part.strip() for part in rest))
    hint = getattr(error, "hint", None)
    lines.append(f"Hint: {clean_text(hint)}" if hint else "%tb shows the whole trace")
    return lines


def line_in_cell(trace: TracebackType | None) -> tuple[str, int, str] | None:
    """The last line of a cell (or of the user's module) on a trace."""
    found = None
    for frame, line in walk_tb(trace):
        file = frame.f_code.co_filename
        if not is_users(file) or file.startswith(_HERE):
            continue
        found = (file, line, linecache.getline(file, line).strip())
    return found


def _as_written(text: str) -> str:
    """A magic as the user wrote it, not as IPython runs it."""
    found = re.match(r"get_ipython\(\)\.run_(line|cell)_magic\('(\w+)', '(.*?)'", text)
    return text if found is None else f"{'%' if found[1] == 'line' else '%%'}{found[2]} {found[3]}".replace("\\'", "'").strip()


def _short(file: str) -> str:
    """``ipykernel_123/456.py`` and ``<ipython-input-…>`` mean nothing to anybody: they are the cell."""
    return "this cell" if "ipykernel_" in file or file.startswith("<ipython-input") else file
