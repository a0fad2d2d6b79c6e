"""A circuit breaker in front of one node's calls: purgatory's states, by the event loop's clock. Calls wait while it is open; they do not
fail.
"""

from __future__ import annotations

import asyncio

from kstreams_repl.system.extras import extras

with extras():
    from purgatory.domain.model import Context, HalfOpenedState

OPEN, HALF = "opened", "half-opened"


class Breaker:
    """Opens after `threshold` failures in a row; after `rest` seconds one call decides whether it closes.

    Attributes:
        opened: how often it opened.
    """

    def __init__(self, name: str, threshold: int, rest: float) -> None:
        self._context = Context(name, threshold, rest)
        self._rest = rest
        self._until = 0.0
        self._trial = False
        self.opened = 0

    @property
    def state(self) -> str:
        """One of purgatory's states."""
        return self._context.state

    async def admitted(self) -> None:
        """Wait until a call may be made."""
        loop = asyncio.get_running_loop()
        while self.state != "closed":
            if self.state == OPEN and loop.time() >= self._until:
                self._context.set_state(HalfOpenedState())
            if self.state == HALF and not self._trial:
                self._trial = True
                return
            await asyncio.sleep(max(self._until - loop.time(), 0.0) if self.state == OPEN else min(self._rest, 0.05))

    def ended(self, error: Exception | None) -> None:
        """Note how an admitted call ended."""
        context = self._context
        self._trial = False
        if self.state == OPEN:  # admitted before it opened
            return
        if error is None:
            context.handle_end_request()
        else:
            context.handle_exception(error)
        if self.state == OPEN:
            self.opened += 1
            self._until = asyncio.get_running_loop().time() + self._rest
        context.messages.clear()
