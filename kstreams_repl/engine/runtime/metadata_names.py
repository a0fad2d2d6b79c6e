"""Names in the processor metadata, which are committed with a task's offsets. A broker accepts 4,096 characters of metadata per offset."""

from __future__ import annotations

import base64
import hashlib

WINDOWS_CLOSED = "repl.closed"
"""The number of the bounded run at whose end the task has closed its windows."""
WAITING = "repl.waiting"
"""How many records wait in the task's asynchronous nodes as of the commit; left out if none does."""
BEHIND = "repl.tables.behind"
"""How many commits have rows that their table does not have yet."""
OPERATOR_TIME = "repl.t."
"""Prefix of the stream times of operators (`operator_stream_times`)."""


def hashed(name: str) -> str:
    """Return eight characters that stand for a name of any length."""
    return base64.urlsafe_b64encode(hashlib.blake2b(name.encode(), digest_size=6).digest()).decode("ascii")
