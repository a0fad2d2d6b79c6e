"""Translate failures from elsewhere (a worker, Spark, the driver's disk) to the error that the driver raises."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from kstreams_repl.system import errors
from kstreams_repl.system.disk_errors import free_bytes, is_full, room
from kstreams_repl.system.errors import ApplicationFailedError, DeployError, KStreamsError, StateStoreError, TaskMigratedError
from kstreams_repl.system.types import JsonMapping

_RAISED = re.compile(r"^\s*((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt)): ?(.*)$")
_NO_CLASS = re.compile(r"(?:NoClassDefFoundError|ClassNotFoundException): ([\w./$]+)")
_UNEXPECTED = "no committed data are lost; session.logs() has the logs of Spark and of the instances; resume() tries again"
_NO_MODULE = re.compile(r"No module named '?([\w.]+)'?")


def error_from(failure: JsonMapping) -> KStreamsError:
    """Return the typed error that the worker raised, with its fields; its traceback is in ``worker_trace``."""
    kind = getattr(errors, str(failure.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, KStreamsError)):
        kind = ApplicationFailedError
        message = f"{failure.get('error')}: {failure.get('message')}"
    else:
        message = str(failure.get("message"))
    fields = {**dict(failure.get("fields") or {}), "worker_trace": failure.get("trace")}
    hint = failure.get("hint") or (_UNEXPECTED if kind is ApplicationFailedError else None)
    return kind(message, hint=hint, **fields)


def failure_from(application_id: str, error: BaseException) -> KStreamsError:
    """Return an error as the reason why an application failed: itself if it is one of ours, else one with a hint, whose cause it is."""
    if isinstance(error, KStreamsError):
        return error
    text = str(getattr(error, "java_exception", None) or error).strip() or "no message"
    ended = type(error).__name__ == "Py4JNetworkError" or isinstance(error, ConnectionError | EOFError)
    lacks = _NO_CLASS.search(text)
    if ended:
        hint = "Spark's JVM does not answer or has ended: session.logs() has its last words; resume() starts another one"
    elif lacks:
        hint = f"Spark lacks the class {lacks[1].replace('/', '.')}: add its jar to spark.jars of the Spark session, and resume()"
    else:
        hint = _UNEXPECTED
    failed = ApplicationFailedError(
        f"{application_id} failed: {type(error).__name__}: {text.splitlines()[0][:400]}",
        hint=hint,
        application=application_id,
        worker_trace="".join(traceback.format_exception(error)),
    )
    failed.__cause__ = error
    return failed


def no_room(where: Path) -> StateStoreError:
    """Return the error for a state directory on a full disk."""
    return StateStoreError(
        f"the disk of the state directory {where} is full: {room(where)}",
        hint="make room and resume the application: it goes on from its last commit",
        path=str(where),
        free_bytes=free_bytes(where),
    )


@contextmanager
def disk_errors(where: Path) -> Iterator[None]:
    """Translate OS errors of the block: a full disk, or a state directory that cannot be written."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise no_room(where) from error
        if error.filename is None or where not in (at := Path(os.fsdecode(error.filename)), *at.parents) and at not in where.parents:
            raise
        raise StateStoreError(
            f"the state directory {where} cannot be used: {error.strerror or error} ({at})",
            hint="set state.dir to a directory that this user can write to, or correct its permissions",
            path=str(at),
        ) from error


def has_failed(reports: Collection[JsonMapping]) -> bool:
    """Return whether an instance has failed or was replaced by one of another session, according to the reports."""
    return any(report.get("state") in ("failed", "superseded") for report in reports)


def error_of_end(
    application_id: str,
    reports: Collection[JsonMapping],
    cause: str | None,
    state: Path,
    python: str,
    lost: KStreamsError | None = None,
) -> tuple[KStreamsError, bool]:
    """Return why an application ended by itself, from its instances' reports or else from Spark, and whether an instance failed.

    Args:
        cause: Spark's reason; None if it gave none.
        lost: another error found by the watcher.
    """
    failed = [report for report in reports if report.get("state") == "failed"]
    if failed:
        return error_from(failed[0].get("failure") or {"error": "an instance failed", "message": "its report contains no reason"}), True
    if any(report.get("state") == "superseded" for report in reports):
        return taken_over(application_id), False
    return lost or query_error(cause, state, python), False


def taken_over(application_id: str, generation: int | None = None, version: int | None = None) -> TaskMigratedError:
    """Return the error of an application that another program runs now."""
    what = "" if generation is None else f" (its generation {generation}, version {version})"
    return TaskMigratedError(
        f"another program took over {application_id}{what}: it is not processed here any more",
        hint=f"session.attach({application_id!r}, builder).resume() takes it back, and continues after that program's last commit: "
        "results and state up to there are that program's",
        application=application_id,
        generation=generation,
    )


def query_error(text: str | None, state: Path, python: str) -> KStreamsError:
    """Return why a streaming query ended by itself: Spark stopped, a full disk, a Python error in a worker, or a worker that died."""
    if text is None:
        return ApplicationFailedError(
            "Spark was stopped while the application was running, or its JVM ended",
            hint="no committed data are lost; resume the application, which starts Spark again unless you passed your own",
        )
    if is_full(text):
        return no_room(state)
    raised = python_error(text)
    if raised is not None:
        return cannot_run(raised, python, trace=text)
    return ApplicationFailedError(
        f"Spark stopped retrying the application: {text.splitlines()[0][:400]}",
        hint="a worker process died repeatedly (a crash in native code, out of memory, os._exit?); no committed data are lost",
    )


def python_error(text: str) -> str | None:
    """Return the last Python exception in Spark's message about a worker, as ``ModuleNotFoundError: No module named 'x'``."""
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
    """Return the error for workers that could not unpickle the application."""
    missing = _NO_MODULE.search(raised)
    if missing:
        hint = (
            f"the workers run {python}: install {missing[1].split('.')[0]} there, or add its directory to their PYTHONPATH; "
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
