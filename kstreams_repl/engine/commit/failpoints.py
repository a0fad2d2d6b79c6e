"""Named points in the numbered protocols at which tests kill, delay or fail a process; no-ops in production.

``KSTREAMS_FAILPOINTS`` arms them in a process: ``"F7=kill@3;F5=delay:0.2"``. An entry is
``NAME=ACTION[:ARGUMENT][@HIT][!ONCE-FILE]``: act at the HIT-th passage (default: the first; ``@*``: every one). With a
once-file only the first process that creates the file acts, so that a restarted worker survives. Actions: ``kill`` (SIGKILL of
this process, after so many seconds), ``exit``, ``delay`` (seconds), ``stop`` (SIGSTOP), ``raise`` (RuntimeError).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from kstreams_repl.system.errors import ConfigError

VARIABLE = "KSTREAMS_FAILPOINTS"

NAMES = {
    "F1": "polled",
    "F2": "processed",
    "F3": "in the middle of producing",
    "F4": "produced, offsets not sent",
    "F5": "offsets sent, not committed",
    "F6": "commit sent, no answer",
    "F7": "committed, store not",
    "F8": "store committed, not reported",
    "F9": "reported, the host's report file not written",
    "F10": "before the host's report file is renamed",
    "B1": "stop offsets taken, not written",
    "B2": "stop offsets written, nothing started",
    "B3": "a partition has reached its stop offset",
    "B4": "everything is committed at the stop offsets, no instance stopped yet",
    "B5": "every instance has ended, the finished marker not written",
    "B6": "the finished marker written",
    "B7": "a task has closed its windows, not committed",
    "K1": "a fork that is dropped has stopped",
    "K2": "its outputs are deleted",
    "K3": "its internal topics, group and state are deleted",
    "K4": "all of it but its record is deleted",
    "K5": "new rows read, their transaction not begun",
    "K6": "new rows and the version that reads them committed, nothing started",
    "K7": "the parent of a fork that is promoted is paused",
    "P1": "rows of a table written to a topic, their transaction open",
    "P2": "rows of a table written to a topic, committed",
    "T1": "in the middle of a data file of a table",
    "T2": "data files complete, the table's commit not begun",
    "T3": "a Parquet manifest written, its files not moved",
    "T4": "table committed, staged segments not removed",
}


@dataclass(slots=True)
class _Armed:
    action: str
    argument: str
    hit: int | None
    once: str | None
    passed: int = 0


_armed: dict[str, _Armed] = {}
_hooks: dict[str, Callable[[], None]] = {}
active = False
"""Whether any failpoint is armed; callers on hot paths check this first."""


def arm(text: str) -> None:
    """Arm the failpoints of a ``KSTREAMS_FAILPOINTS`` value; "" disarms all.

    Raises:
        ConfigError: a name or action is unknown.
    """
    global active
    _armed.clear()
    for entry in filter(None, text.split(";")):
        name, _, what = entry.partition("=")
        what, _, once = what.partition("!")
        what, _, hit = what.partition("@")
        action, _, argument = what.partition(":")
        if name not in NAMES or action not in ("kill", "exit", "delay", "stop", "raise"):
            raise ConfigError(
                f"cannot parse the failpoint {entry!r}", hint=f"names: {', '.join(NAMES)}; actions: kill, exit, delay, stop, raise"
            )
        _armed[name] = _Armed(action, argument, None if hit == "*" else int(hit or 1), once or None)
    active = bool(_armed or _hooks)


def hook(name: str, callback: Callable[[], None] | None) -> None:
    """Call `callback` at a failpoint of this process; None removes it."""
    global active
    if callback is None:
        _hooks.pop(name, None)
    else:
        _hooks[name] = callback
    active = bool(_armed or _hooks)


def failpoint(name: str) -> None:
    """Mark a point at which a test may act."""
    if not active:
        return
    callback = _hooks.get(name)
    if callback is not None:
        callback()
    armed = _armed.get(name)
    if armed is not None:
        _act(name, armed)


def _act(name: str, armed: _Armed) -> None:
    armed.passed += 1
    if armed.hit is not None and armed.passed != armed.hit:
        return
    if armed.once is not None:
        try:
            os.close(os.open(armed.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
    if armed.action == "kill":
        time.sleep(float(armed.argument or 0))
        os.kill(os.getpid(), signal.SIGKILL)
    elif armed.action == "exit":
        os._exit(int(armed.argument or 1))
    elif armed.action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif armed.action == "delay":
        time.sleep(float(armed.argument or 1))
    else:
        raise RuntimeError(f"failpoint {name}: {NAMES[name]}")


arm(os.environ.get(VARIABLE, ""))
