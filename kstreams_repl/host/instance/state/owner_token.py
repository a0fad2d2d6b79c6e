"""Owner tokens: which process of which slot and generation owns an environment or a lock, and whether that process is alive.

A token is ``generation/slot/pid/start time of the process/unique number``; the start time tells a process from a later one with
the same pid.
"""

from __future__ import annotations

import logging
import os
import signal
import uuid
from contextlib import suppress

from kstreams_repl.system.process_info import start_time

_LOG = logging.getLogger("kstreams_repl.host.instance")


def owner_token(generation: int, slot: int) -> str:
    """Return a new owner token of this process."""
    return f"{generation}/{slot}/{os.getpid()}/{start_time(os.getpid())}/{uuid.uuid4().hex}"


def generation_of(token: str) -> int:
    """Return the generation of a token."""
    return int(token.split("/")[0])


def is_alive(token: str) -> bool:
    """Return whether the process of a token is alive and another process than this one."""
    parts = token.split("/")
    if len(parts) < 5 or not parts[2].isdigit() or int(parts[2]) == os.getpid():
        return False
    return start_time(int(parts[2])) == parts[3] != ""  # an empty one would fit every process that is not there


def is_held(token: str, closed: bool) -> bool:
    """Return whether another living process uses an environment with this owner token; False when it was closed in order."""
    return not closed and is_alive(token)


def end_process(token: str | None) -> bool:
    """kill -9 the process of a token, if it is alive and not this one."""
    if token is None or not is_alive(token):
        return False
    pid = int(token.split("/")[2])
    _LOG.warning("killing process %s, which still holds these stores", pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True
