"""Show this package's errors in a few lines: message, user's line, record, hint, page, next calls. The traceback is hidden; ``%tb``
shows it."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Mapping
from traceback import walk_tb
from types import TracebackType
from typing import TYPE_CHECKING

from kernel_ext.failures import failure_buttons
from kernel_ext.workspace import Workspace
from kstreams_repl.engine.topology.description.user_lines import is_users
from kstreams_repl.pictures.markup import clean_text, one_line
from kstreams_repl.repl.session import Application
from kstreams_repl.repl.session.source.cell_history import history
from kstreams_repl.repl.session.source.error_source import location_name, user_location, with_source
from kstreams_repl.repl.session.views.picture.failed_record import shown
from kstreams_repl.system.errors import KStreamsError, SerializationError
from kstreams_repl.system.secrets import without_secrets

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def show_error(
    shell: InteractiveShell, kind: type[BaseException], error: BaseException, trace: TracebackType | None, tb_offset: int | None = None
) -> list[str]:
    """Show a `KStreamsError`; called by IPython as its custom exception handler."""
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    if isinstance(error, KStreamsError):
        with_source(error)  # so that %tb names cells by their numbers
    lines = [str(error)] if isinstance(error, KeyboardInterrupt) else [*error_lines(error, trace), *recovery_lines(error, shell.user_ns)]
    shell._showtraceback(kind, error, lines)
    if getattr(shell, "kernel", None) is not None and not isinstance(error, KeyboardInterrupt):
        _show_buttons(shell, error, trace)
    return lines


def _show_buttons(shell: InteractiveShell, error: BaseException, trace: TracebackType | None) -> None:
    """Show buttons below the error output, as a separate output, because the error output itself is text."""
    session = Workspace(shell).current
    buttons = failure_buttons(error, user_location(error) or line_in_cell(trace), () if session is None else session.applications)
    if buttons:
        shell.display_pub.publish(data={"text/html": buttons, "text/plain": ""}, metadata={})


def error_lines(error: BaseException, trace: TracebackType | None) -> list[str]:
    """Return what happened, the user's line where it happened, and what to do about it."""
    message = error.message if isinstance(error, KStreamsError) else str(error)
    first, *rest = clean_text(message).splitlines() or [""]
    lines = [f"{type(error).__name__}: {first}"]
    location = user_location(error) or line_in_cell(trace)
    if location is not None and location[2]:
        written = one_line(without_secrets(_as_written(location[2])), limit=160)
        lines.append(f"  {one_line(_short(location[0]))}, line {location[1]}: {written}")
    elif rest:
        more = [part.strip() for part in rest if not part.startswith(("  in node ", "  record "))]
        lines += ["  " + " ".join(more)] if more else []
    lines += record_line(error)
    advice = error.advice if isinstance(error, KStreamsError) else []
    return [*lines, *(map(clean_text, advice) if advice else ["%tb shows the whole trace"])]


def record_line(error: BaseException) -> list[str]:
    """Return node, task and record of an error on one line; empty if the error names none of them."""
    if not isinstance(error, KStreamsError):
        return []
    position = error.record_position
    names = [f"{what} {one_line(name)}" for what, name in (("node", error.node), ("task", error.task)) if name]
    if position is None:
        return [f"  in {', '.join(names)}"] if len(names) == 2 else []
    record = error.fields.get("record")
    text = f"record {one_line(position)}" + (f": {shown(record)}" if record is not None else "")
    return [f"  in {', '.join([*names, text])}"]


def recovery_lines(error: BaseException, variables: Mapping[str, object]) -> list[str]:
    """Return the calls that continue after an application failed at a record: show it, step through it, skip it, edit the function."""
    if not isinstance(error, KStreamsError):
        return []
    position, name, node = error.record_position, error.application, error.node
    if position is None or name is None or node is None:  # a refused call: the application did not fail there
        return []
    held = [key for key, value in variables.items() if isinstance(value, Application) and value.name == name and not key.startswith("_")]
    app = held[0] if held else f"session.applications[{name!r}]"
    line = error.user_line
    cell = None if line is None else history.cell_of(line.file)
    if cell and line:
        what = "edit its serde" if isinstance(error, SerializationError) else "edit the function"
        edit = f"{what}: {cell}, line {line.line}, then {app}.edit(builder)"
    elif isinstance(error, SerializationError):  # a sink has no function
        edit = f"or give it the serde in the builder, then {app}.edit(builder)"
    else:
        edit = f"edit the function: %%topo_edit {name} {node}"
    stepped = f"step through it: {app}.debug({str(position)!r})"
    return [f"  show this record: {app}.failed_record · {stepped} · skip it: {app}.skip({str(position)!r}) · {one_line(edit)}"]


def line_in_cell(trace: TracebackType | None) -> tuple[str, int, str] | None:
    """Return the last line of a cell (or of the user's module) in a traceback."""
    location = None
    for frame, line in walk_tb(trace):
        file = frame.f_code.co_filename
        if not is_users(file) or file.startswith(_HERE):
            continue
        location = (file, line, linecache.getline(file, line).strip())
    return location


def _as_written(text: str) -> str:
    """Return a magic as the user wrote it, not as IPython runs it."""
    call = re.match(r"get_ipython\(\)\.run_(line|cell)_magic\('(\w+)', '(.*?)'", text)
    return text if call is None else f"{'%' if call[1] == 'line' else '%%'}{call[2]} {call[3]}".replace("\\'", "'").strip()


def _short(file: str) -> str:
    """Return a readable name of a cell's file: its number instead of ``ipykernel_123/456.py`` or ``<ipython-input-…>``."""
    return location_name(file)
