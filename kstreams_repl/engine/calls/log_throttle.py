"""Throttling of repeated log messages to one per minute: while a broker is unavailable, retries come twice a second."""

from __future__ import annotations

from collections.abc import Hashable

_SECONDS = 60.0


class LogThrottle:
    """Remembers when each message was last logged. Clocks are arguments; a message absent for a minute is forgotten."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, tuple[float, int]] = {}

    def due(self, what: Hashable, now: float) -> int | None:
        """Return how often it occurred since it was last logged, including now (first time: 1); None if it was logged within a
        minute.
        """
        logged_at, suppressed = self._logged.get(what, (now, 0))
        if what in self._logged and 0 <= now - logged_at < _SECONDS:
            self._logged[what] = (logged_at, suppressed + 1)
            return None
        self._logged = {key: logged for key, logged in self._logged.items() if logged[1] or 0 <= now - logged[0] < _SECONDS}
        self._logged[what] = (now, 0)
        return suppressed + 1
