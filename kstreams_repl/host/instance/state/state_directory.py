"""Directories of local state: ``<state.dir>/<application.id>/tasks/<task>`` with one environment per task, next to the control
directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.system.errors import InvalidNameError
from kstreams_repl.system.types import TaskId


def state_root(config: StreamsConfig) -> Path:
    """Return ``state.dir``; by default ``$KSTREAMS_STATE``, else ``kstreams-repl`` under ``$XDG_STATE_HOME`` or
    ``~/.local/state``.
    """
    chosen = config["state.dir"] or os.environ.get("KSTREAMS_STATE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "kstreams-repl"


def application_directory(root: Path, application_id: str) -> Path:
    """Return the application's own directory; it is always inside the root.

    Raises:
        InvalidNameError: the name would lead out of the root.
    """
    path = (root / application_id).resolve()
    if path.parent != root.resolve() or application_id in ("", ".", ".."):
        raise InvalidNameError(f"{application_id!r} is not a valid name of a state directory", hint="use letters, digits, '.', '_' and '-'")
    return path


def control_directory(root: Path, application_id: str) -> Path:
    """Return the directory of signals and reports."""
    return application_directory(root, application_id) / "control"


def task_directory(root: Path, application_id: str, task: TaskId, executor: str = "driver") -> Path:
    """Return the directory of one task's environment on one executor; local Spark has the single executor ``driver``."""
    return tasks_folder(root, application_id, executor) / str(task)


def files_directory(root: Path, application_id: str, task: TaskId, executor: str = "driver") -> Path:
    """Create the directory for files of the task's processors (`context.state_dir`) inside the task's own, so that both are
    removed together.
    """
    path = task_directory(root, application_id, task, executor) / "files"
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def tasks_folder(root: Path, application_id: str, executor: str = "driver") -> Path:
    """Return the folder of an executor's task directories."""
    return application_directory(root, application_id) / ("tasks" if executor == "driver" else f"executor-{executor}")
