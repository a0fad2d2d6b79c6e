"""From the failure in a worker's report to the error that the driver shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstreams_repl import errors
from kstreams_repl.errors import ApplicationFailedError, KStreamsError


def error_from(failure: Mapping[str, Any]) -> KStreamsError:
    """The same typed error as in the worker, with its fields; its traceback there is in ``worker_trace``."""
    kind = getattr(errors, str(failure.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, KStreamsError)):
        kind = ApplicationFailedError
        message = f"{failure.get('error')}: {failure.get('message')}"
    else:
        message = str(failure.get("message"))
    fields = {**dict(failure.get("fields") or {}), "worker_trace": failure.get("trace")}
    return kind(message, hint=failure.get("hint"), **fields)
