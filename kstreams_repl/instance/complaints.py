"""What is told again and again, told at most once a minute: retries while a broker is away come twice a second."""

from __future__ import annotations

from collections.abc import Hashable

_SECONDS = 60.0


class Complaints:
    """Remembers when what was told last. Clocks are arguments; what was silent for a minute is forgotten."""

    def __init__(self) -> None:
        self._told: dict[Hashable, tuple[float, int]] = {}

    def due(self, what: Hashable, now: float) -> int | None:
        """How often it came since it was told last, this time included (the first time: 1); None when it was told within a minute."""
        at, unsaid = self._told.get(what, (now, 0))
        if what in self._told and 0 <= now - at < _SECONDS:
            self._told[what] = (at, unsaid + 1)
            return None
        self._told = {other: said for other, said in self._told.items() if said[1] or 0 <= now - said[0] < _SECONDS}
        self._told[what] = (now, 0)
        return unsaid + 1
