"""Handles messages of front ends while a cell runs, in the subshell to which they were sent.

JupyterLab (4.4 and newer) sends messages of widgets and panels to a *subshell*, a thread of the kernel that runs while a cell
runs; ipykernel supports subshells since 7.0. Since 7.4 it nevertheless passes a comm's messages to the main shell if the kernel
last sent a message from there, for cells that wait for an answer. No cell waits for a button of this package, and its work runs
on its own thread.

Without subshells a message waits in the main shell's queue, and the front end informs its user.
"""

from __future__ import annotations

from typing import Any


def handle_in_subshell(comm: Any) -> None:
    """Handle this comm's messages in the subshell to which they were sent. An ipykernel without subshells is left unchanged."""
    if comm is not None:
        comm._reply_subshell_for = _receiving_subshell


def _receiving_subshell(data: object, subshell: str | None) -> str | None:
    return subshell
