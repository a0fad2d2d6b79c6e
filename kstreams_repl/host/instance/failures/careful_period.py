"""The time after a failure in which a slot works carefully, which is slow."""

from __future__ import annotations

import time


class CarefulPeriod:
    """Begins with a failure, and ends by itself.

    Attributes:
        careful: instances opened from now on work carefully.
    """

    def __init__(self) -> None:
        self.careful = False
        self._calm_at = 0.0

    def take_care(self, seconds: float) -> None:
        """Work carefully for so long from now on."""
        self.careful = True
        self._calm_at = time.monotonic() + seconds

    def bound(self, until: float) -> float:
        """Return when the run must end (monotonic): a careful instance ends early, to be reopened in normal mode."""
        return min(until, self._calm_at) if self.careful else until

    def calm(self) -> bool:
        """Return whether the careful period has just ended; if so, end it."""
        if not self.careful or time.monotonic() < self._calm_at:
            return False
        self.careful = False
        return True
