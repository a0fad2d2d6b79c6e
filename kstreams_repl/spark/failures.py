"""From what went wrong elsewhere (a worker, Spark, the driver's disk) to the error that the driver shows."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kstreams_repl import errors
from kstreams_repl.disk import free_bytes, is_full, room
from kstreams_repl.errors import ApplicationFailedError, DeployError, KStreamsError, StateStoreError, TaskMigratedError

_RAISED = re.compile(r"^\s*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)): ?(.*)$")
_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")


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


def no_room(where: Path) -> StateStoreError:
    """The error for a state directory on a full disk."""
    return StateStoreError(
        f"the disk of the state directory {where} is full: {room(where)}",
        hint="make room and resume the application: it goes on from its last commit",
        path=str(where),
        free_bytes=free_bytes(where),
    )


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """A full disk inside the block is told as one, and a state directory in which nothing can be made."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise no_room(where) from error
        if error.filename is None or where not in (at := Path(os.fsdecode(error.filename)), *at.parents) and at not in where.parents:
            raise
        raise StateStoreError(
            f"the state directory {where} cannot be used: {error.strerror or error} ({at})",
            hint="give a directory that this user may write (state.dir), or mend what is in the way",
            path=str(at),
        ) from error


def error_of_end(
    application_id: str, told: Collection[Mapping[str, Any]], cause: str | None, state: Path, python: str, lost: KStreamsError | None = None
) -> tuple[KStreamsError, bool]:
    """Why an application ended by itself, from its instances' reports or else from what Spark says; and whether an instance failed.

    Args:
        cause: Spark's words; None: it had none.
        lost: what else is wrong.
    """
    failed = [report for report in told if report.get("state") == "failed"]
    if failed:
        return error_from(failed[0].get("failure") or {"error": "an instance failed", "message": "its report does not say why"}), True
    if any(report.get("state") == "superseded" for report in told):
        taken = f"another session has taken {application_id} over"
        return TaskMigratedError(taken, hint=f"nothing is lost; session.attach({application_id!r}) takes it back"), False
    return lost or query_error(cause, state, python), False


def query_error(text: str | None, state: Path, python: str) -> KStreamsError:
    """Why a streaming query ended by itself: Spark went, a full disk, what a worker's Python said, or a process that died."""
    if text is None:
        return ApplicationFailedError(
            "Spark was stopped under the application, or its JVM has ended",
            hint="nothing committed is lost; resume the application: it starts Spark anew, unless the session was given one that has ended",
        )
    if is_full(text):
        return no_room(state)
    raised = python_error(text)
    if raised is not None:
        return cannot_run(raised, python, trace=text)
    return ApplicationFailedError(
        f"Spark gave the application up: {text.splitlines()[0][:400]}",
        hint="a worker process died again and again (a crash in native code, out of memory, os._exit?); nothing committed is lost",
    )


def python_error(text: str) -> str | None:
    """The last Python exception in what Spark tells of a worker, as ``ModuleNotFoundError: No module named 'x'``."""
    _, traced, after = text.rpartition("Traceback (most recent call last)")
    if not traced:
        _, traced, after = text.rpartition("Error from python worker:")
    if not traced:
        return None
    for line in after.splitlines():
        found = _RAISED.match(line)
        if found:
            return f"{found[1]}: {found[2]}".strip()
        if _NO_MODULE.search(line):
            return line.strip()
    return None


def cannot_run(raised: str, python: str, *, trace: str) -> DeployError:
    """The error for workers in which the application could not even be unpacked."""
    missing = _NO_MODULE.search(raised)
    if missing:
        hint = (
            f"the workers run {python}: install {missing[1].split('.')[0]} there, or put its folder on their PYTHONPATH; "
            "then resume the application"
        )
    else:
        hint = f"the workers run {python}: make the application's modules importable there as they are here"
    return DeployError(
        f"Spark's Python workers could not load the application: {raised}",
        hint=hint,
        module=missing[1] if missing else None,
        worker_trace=trace,
    )
