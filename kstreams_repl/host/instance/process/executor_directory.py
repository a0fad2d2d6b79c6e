"""Directories in which executors keep their stores. Such a directory belongs to one executor at a time, and a later executor
finds it again.

Two executors may run on one host with the same state directory, and an executor's number changes at every start; neither can
identify a store's directory. So they are named ``executor-<host>-<random>`` under the application's own; each is held by
one executor process, which its file ``held`` names. A new executor takes the free one that was used most recently.
"""

from __future__ import annotations

import os
import re
import socket
import uuid
from pathlib import Path

from kstreams_repl.host.instance.control.control_files import read_whole, write_whole
from kstreams_repl.host.instance.state.state_directory import application_directory
from kstreams_repl.system.files import locked
from kstreams_repl.system.process_info import EXECUTOR_VARIABLE, parent, start_time

PREFIX = "executor-"
_HELD = "held.json"


def take_directory(root: Path, application_id: str, holder: int) -> str:
    """Return the directory of the executor process `holder`: the one it holds, else a free one, else a new one.

    Returns:
        Its name; the directory is ``executor-<name>`` in the application's.
    """
    base = application_directory(root, application_id)
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    me = {"pid": holder, "start": start_time(holder)}
    with locked(base / ".places.lock"):
        directories = sorted(base.glob(f"{PREFIX}{_host()}-*"), key=lambda path: _used_at(path), reverse=True)
        held = {path: read_whole(path / _HELD) for path in directories}
        mine = next((path for path in directories if held[path] == me), None)
        chosen = mine or next((path for path in directories if not _is_alive(held[path])), None)
        if chosen is None:
            chosen = base / f"{PREFIX}{_host()}-{uuid.uuid4().hex[:8]}"
            chosen.mkdir(mode=0o700)
        if chosen is not mine:
            write_whole(chosen / _HELD, me)
    return chosen.name.removeprefix(PREFIX)


def executor_process(worker: int | None = None) -> int:
    """Return the executor's own process: the parent of the daemon that forked this worker, or of the process that stands in for it."""
    if worker is None and EXECUTOR_VARIABLE in os.environ:
        return int(os.environ[EXECUTOR_VARIABLE])
    daemon = os.getppid() if worker is None else worker
    above = parent(daemon)
    return daemon if above is None else above


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", socket.gethostname())[:60] or "host"


def _is_alive(held: dict[str, object] | None) -> bool:
    return held is not None and isinstance(held.get("pid"), int) and start_time(int(str(held["pid"]))) == held.get("start") != ""


def _used_at(path: Path) -> float:
    try:
        return (path / _HELD).stat().st_mtime
    except OSError:
        return 0.0
