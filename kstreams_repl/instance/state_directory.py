"""Where local state lives: ``<state.dir>/<application.id>/tasks/<task>`` with one environment per task, beside the control
directory.
"""

from __future__ import annotations

import os
from pathlib import Path

from kstreams_repl.config import StreamsConfig
from kstreams_repl.errors import InvalidNameError
from kstreams_repl.types import TaskId


def state_root(config: StreamsConfig) -> Path:
    """``state.dir``; by default ``$KSTREAMS_STATE``, else ``kstreams-repl`` under ``$XDG_STATE_HOME`` or ``~/.local/state``."""
    chosen = config["state.dir"] or os.environ.get("KSTREAMS_STATE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "kstreams-repl"


def application_directory(root: Path, application_id: str) -> Path:
    """The application's own directory; never outside the root, whatever the name.

    Raises:
        InvalidNameError: the name would lead elsewhere.
    """
    path = (root / application_id).resolve()
    if path.parent != root.resolve() or application_id in ("", ".", ".."):
        raise InvalidNameError(f"{application_id!r} cannot name a state directory", hint="use letters, digits, '.', '_' and '-'")
    return path


def control_directory(root: Path, application_id: str) -> Path:
    return application_directory(root, application_id) / "control"


def task_directory(root: Path, application_id: str, task: TaskId, executor: str = "driver") -> Path:
    """The environment of one task on one executor; local Spark has the one executor ``driver``."""
    return tasks_folder(root, application_id, executor) / str(task)


def tasks_folder(root: Path, application_id: str, executor: str = "driver") -> Path:
    """Where the tasks' directories of an executor are."""
    return application_directory(root, application_id) / ("tasks" if executor == "driver" else f"executor-{executor}")
