"""How often each fault is tried: a sample by default, the counts of the fault table with ``KSTREAMS_FAULTS=full``.

The slow tier asks for the full counts by itself (`full`); ``KSTREAMS_FAULTS=0.1`` scales them.
"""

from __future__ import annotations

import os

_WANTED = os.environ.get("KSTREAMS_FAULTS", "")
SEEDS = 20
"""Of the simulation, at every run of the tests; the slow tier goes on behind them."""
CALL_SEEDS = 5
"""The same of the simulation with asynchronous calls."""
SQL_SEEDS = 2
"""The same of the simulation with an aggregate by SQL."""

ALIGNED_SEEDS = 10
"""The same of the simulation with partitions that advance together in event time."""


def full(count: int) -> int:
    """The count of the table, scaled by the environment variable."""
    scale = float(_WANTED) if _WANTED and _WANTED != "full" else 1.0
    return max(1, round(count * scale))


def sample(count: int, everything: int) -> int:
    """A count of the fast tier, or that of the table when it is asked for."""
    return everything if _WANTED == "full" else count
