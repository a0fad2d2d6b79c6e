"""Log of the states of this process's instances: one line for each change, although reports repeat a state a few times a second.
"""

from __future__ import annotations

import logging

from kstreams_repl.log_context import about

_LOG = logging.getLogger("kstreams_repl.instance")
_FINAL = frozenset({"failed", "stopped", "superseded"})
_states: dict[tuple[str, int], str] = {}


def enter(application: str, instance: int, state: str, why: str = "") -> None:
    """Log that an instance has entered a state, unless it is in that state already."""
    before = _states.get((application, instance), "created")
    if state == before:
        return
    _states[application, instance] = state
    if state in _FINAL:
        del _states[application, instance]
    about(application, instance)
    _LOG.log(logging.ERROR if state == "failed" else logging.INFO, "%s -> %s%s", before, state, f" ({why})" if why else "")
