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
from pathlib import Path

_LOG = logging.getLogger("kstreams_repl.instance")


def owner_token(generation: int, slot: int) -> str:
    """Return a new owner token of this process."""
    return f"{generation}/{slot}/{os.getpid()}/{start_time(os.getpid())}/{uuid.uuid4().hex}"


def generation_of(token: str) -> int:
    """Return the generation of a token."""
    return int(token.split("/")[0])


def is_alive(token: str) -> bool:
    """Return whether the process of a token is alive and another process than this one."""
    parts = token.split("/")
    return len(parts) >= 5 and parts[2].isdigit() and int(parts[2]) != os.getpid() and start_time(int(parts[2])) == parts[3]


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


def start_time(pid: int) -> str:
    """Return when a process was started, in clock ticks since boot; "" when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text[text.rindex(")") + 2 :].split()[19]
