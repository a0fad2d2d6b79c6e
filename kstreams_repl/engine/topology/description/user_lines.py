"""Find the user's own line in a traceback: the last frame that is neither the project's nor the interpreter's."""

from __future__ import annotations

import linecache
import os
import sysconfig
from pathlib import Path
from traceback import walk_tb

from kstreams_repl.engine.topology.nodes import Origin
from kstreams_repl.system.types import UserLine

_PACKAGE = str(Path(__file__).resolve().parents[3]) + os.sep
_STORES = _PACKAGE + "engine" + os.sep + "stores" + os.sep
_NOT_USERS = (_PACKAGE, sysconfig.get_path("stdlib") + os.sep, "<frozen")


def user_line(error: BaseException) -> UserLine | None:
    """Return the innermost line of user code on the traceback; None if there is none."""
    innermost = None
    for frame, line in walk_tb(error.__traceback__):
        name = frame.f_code.co_filename
        if is_users(name):
            innermost = UserLine(name, line, linecache.getline(name, line).strip())
    return innermost


def line_of(origin: Origin) -> UserLine | None:
    """Return the line of user code that made a node; None if it is not known."""
    if not origin.file or origin.line is None or not is_users(origin.file):
        return None
    return UserLine(origin.file, origin.line, linecache.getline(origin.file, origin.line).strip())


def read_by_user(error: BaseException) -> bool:
    """Return whether bytes that a serde could not read came from user code and not from a store."""
    files = [frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)]
    return any(map(is_users, files)) and not any(file.startswith(_STORES) for file in files)


def is_users(file: str) -> bool:
    """Return whether code of that file is user code: not the project's, the interpreter's or a library's."""
    return not file.startswith(_NOT_USERS) and "site-packages" not in file
