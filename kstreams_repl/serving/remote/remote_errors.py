"""Errors of a query server as the errors of this package: the class that the server raised, with its message, hint and fields."""

from __future__ import annotations

from kstreams_repl.system import errors
from kstreams_repl.system.errors import KStreamsError, QueryServerError


def error_of(plain: object, status: int) -> KStreamsError:
    """Return the error that an answer describes; `QueryServerError` if it describes none.

    Example:
        >>> type(error_of({"error": "SqlError", "message": "no such table"}, 400)).__name__
        'SqlError'
    """
    if not isinstance(plain, dict) or not isinstance(plain.get("message"), str):
        return QueryServerError(f"the server answered with status {status}", status=status)
    found = getattr(errors, str(plain.get("error")), None)
    kind = found if isinstance(found, type) and issubclass(found, KStreamsError) else QueryServerError
    hint, fields = plain.get("hint"), plain.get("fields")
    known = {str(name): value for name, value in fields.items() if name not in ("hint", "message")} if isinstance(fields, dict) else {}
    known["status"] = status
    return kind(plain["message"], hint=hint if isinstance(hint, str) else None, **known)
