"""An event loop whose short waits are not rounded up to whole milliseconds.

`epoll_wait` counts milliseconds, so asyncio ends a wait of 2.1 ms after 3: a third of the time of a fast call. `select` counts
microseconds, and an epoll descriptor can itself be selected. Waits of 50 ms and more, which most are, stay with epoll alone.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any

_SHORT_SECONDS = 0.05
_LEAST_SECONDS = 0.00025
"""Timers that are due within this time are served together: each round of the loop costs more than a timer."""
_MOST_DESCRIPTOR = 1023
"""The highest descriptor that `select` takes."""


class FineEpollSelector(selectors.EpollSelector):
    """`EpollSelector` with a resolution of a quarter of a millisecond."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and 0 < timeout < _SHORT_SECONDS and self.fileno() <= _MOST_DESCRIPTOR:
            select.select((self,), (), (), max(timeout, _LEAST_SECONDS))
            timeout = 0
        return super().select(timeout)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop with fine timers; where the system has no epoll, the default loop."""
    if not hasattr(selectors, "EpollSelector"):
        return asyncio.new_event_loop()
    selector: Any = FineEpollSelector()
    return asyncio.SelectorEventLoop(selector)
