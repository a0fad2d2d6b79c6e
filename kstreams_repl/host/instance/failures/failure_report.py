"""An error as a report carries it, from an instance to its driver."""

from __future__ import annotations

from kstreams_repl.system.errors import KStreamsError
from kstreams_repl.system.types import JsonObject


def failure_of(error: BaseException) -> JsonObject:
    """Return an error as a report carries it: class, text, the user's line and coordinates, all as plain values."""
    import traceback

    fields: JsonObject = {}
    if isinstance(error, KStreamsError):
        fields = {name: _plain(value) for name, value in error.fields.items()}
    return {
        "error": type(error).__name__,
        "message": error.message if isinstance(error, KStreamsError) else str(error),
        "hint": error.hint if isinstance(error, KStreamsError) else None,
        "fields": fields,
        "trace": "".join(traceback.format_exception(error)),
    }


def _plain(value: object) -> object:
    """Return text and numbers unchanged, a tuple of them (the user's source line) as a list, and any other value as text."""
    if isinstance(value, tuple) and all(isinstance(part, (str, int)) for part in value):
        return list(value)
    return value if isinstance(value, (str, int)) else str(value)
