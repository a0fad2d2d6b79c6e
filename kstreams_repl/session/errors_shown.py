"""The user's own line in an error that came from a worker: the worker knows file and number, the notebook has the text."""

from __future__ import annotations

import linecache
from typing import Any

from kstreams_repl.errors import KStreamsError


def with_source(error: KStreamsError) -> KStreamsError:
    """The error with the text of the user's line filled in where it is missing; else unchanged."""
    line = error.fields.get("user_line")
    if not isinstance(line, list | tuple) or len(line) < 2 or (len(line) > 2 and line[2]):
        return error
    file, number = str(line[0]), int(line[1])
    text = linecache.getline(file, number).strip()
    place = f"{file}:{number}"
    if not text or place not in error.message:
        return error
    error.fields["user_line"] = (file, number, text)
    error.message = error.message.replace(place, f"{place}: {text}", 1)
    error.args = (error.message,)
    return error


def user_place(error: BaseException) -> tuple[str, int, str] | None:
    """(file, line, text) of the user's code that an error names; None when it names none."""
    fields: dict[str, Any] = getattr(error, "fields", {})
    line = fields.get("user_line")
    if isinstance(line, list | tuple) and len(line) >= 2:
        return str(line[0]), int(line[1]), str(line[2]) if len(line) > 2 else ""
    return None
