"""The last two minutes of records per second and lag, for an application and each of its shapes, for the sparklines of its
picture."""

from __future__ import annotations

import time
from collections import deque

from kstreams_repl.pictures.graph.picture import Picture

SECONDS = 120.0
STEP_SECONDS = 1.0

Point = list[float | int | None]


class Histories:
    """Samples taken while a front end is connected: [seconds, records per second, lag or None] by shape id; "" is the
    application."""

    def __init__(self) -> None:
        self._points: dict[str, deque[Point]] = {}
        self._sampled_at = 0.0

    def add(self, picture: Picture, rate: float, lag: int | None) -> None:
        """Add the current numbers, at most once a second. A negative lag is an unknown one."""
        now = time.monotonic()
        if now - self._sampled_at < STEP_SECONDS:
            return
        self._sampled_at = now
        self._append("", now, rate, lag)
        for shape, mark in picture.marks.items():
            if mark.rate is not None:
                self._append(shape, now, mark.rate, mark.lag)

    def of(self, shape: str) -> list[Point]:
        return list(self._points.get(shape, ()))

    def _append(self, shape: str, now: float, rate: float, lag: int | None) -> None:
        points = self._points.setdefault(shape, deque())
        points.append([round(now, 1), round(rate, 1), lag if lag is not None and lag >= 0 else None])
        while now - float(points[0][0] or 0) > SECONDS:
            points.popleft()
