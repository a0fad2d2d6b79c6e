"""The past of an application: its stores as of an earlier moment, and what differs since.

In: the commits of its group, its changelogs, snapshots. Out: stores as of a moment, in a directory of their own. Nothing is recorded for it
while the application runs, but the ends of changelogs and the version in each commit. Read first: `moments`, then `past_state`; `state` has
the commits and rebuilds stores, `replay` processes records again, `causes` and `debug` ask about one result and one record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstreams_repl.repl.session.views.past.past_state import Past

NO_KEY: Any = object()
"""Stands for a key that was not given: None is a key."""


def past_of(as_of: object) -> Past | None:
    """Return what reads applications as of a moment; None for None: now.

    Raises:
        CallError: it is no moment.
    """
    if as_of is None:
        return None
    from kstreams_repl.repl.session.views.past.past_state import Past

    return Past(as_of)
