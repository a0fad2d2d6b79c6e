"""Messages of front ends while a cell runs: they are handled in the subshell that they were sent to.

JupyterLab (4.4 and newer) sends what widgets and panels say to a *subshell*, a thread of the kernel that goes on while a cell runs;
ipykernel has them since 7.0. Since 7.4 it hands a comm's messages over to the main shell all the same if the kernel's side spoke last from
there, for cells that wait for an answer. No cell waits for what a button of ours says, and what it does goes on in a thread of its own.

Where there are no subshells the message waits in the main shell's queue, and the front end tells its user.
"""

from __future__ import annotations

from typing import Any


def heard_at_once(comm: Any) -> None:
    """Handle this comm's messages where they were sent to, whoever spoke last. Where ipykernel knows no subshells nothing changes."""
    if comm is not None:
        comm._reply_subshell_for = _where_it_was_sent


def _where_it_was_sent(data: Any, subshell: str | None) -> str | None:
    return subshell
