"""Throttling of repeated log messages to one per minute: while a broker is unavailable, retries come twice a second."""

from __future__ import annotations

from collections.abc import Hashable

_SECONDS = 60.0


class LogThrottle:
    """Remembers when each message was last logged. Clocks are arguments; a message absent for a minute is forgotten."""

    def __init__(self) -> None:
        self._told: dict[Hashable, tuple[float, int]] = {}

    def due(self, what: Hashable, now: float) -> int | None:
        """Return how often it occurred since it was last logged, including now (first time: 1); None if it was logged within a
        minute.
        """
        at, unsaid = self._told.get(what, (now, 0))
        if what in self._told and 0 <= now - at < _SECONDS:
            self._told[what] = (at, unsaid + 1)
            return None
        self._told = {other: said for other, said in self._told.items() if said[1] or 0 <= now - said[0] < _SECONDS}
        self._told[what] = (now, 0)
        return unsaid + 1
