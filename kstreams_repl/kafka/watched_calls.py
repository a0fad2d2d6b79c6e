"""Calls of a client that may never return, made on a thread of their own and given up after a time.

The client library's transactional calls take a time-out and do not always keep it: after a restart of the broker adding
offsets waits for an answer that never comes. A call that is given up goes on in its thread; the object it belongs to must not
be used or closed any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class CallGivenUp(Exception):
    """The call did not return in its time; whether it takes effect is unknown."""


class WatchedCalls:
    """One daemon thread that makes one call at a time. `stuck` is True after a call was given up."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.stuck = False

    def call(self, function: Callable[[], Any], seconds: float, meanwhile: Callable[[], bool] | None = None) -> Any:
        """The function's result, or what it raised.

        Args:
            meanwhile: a small piece of other work, done again and again while the call is under way, until it returns False. What
                it raises is raised here.

        Raises:
            CallGivenUp: it did not return within `seconds`.
        """
        if self.stuck:
            raise CallGivenUp(f"{self._name} has given up an earlier call")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._asked.put(function)
        failed: BaseException | None = None
        if meanwhile is not None:
            try:
                while self._answers.empty() and meanwhile():
                    pass
            except BaseException as problem:  # raised once the answer is there, or the next call would take it for its own
                failed = problem
        try:
            result, error = self._answers.get(timeout=seconds)
        except Exception as late:  # queue.Empty
            self.stuck = True
            self._asked.put(None)  # should it return after all, the thread ends and lets go of what the call belongs to
            raise CallGivenUp(f"no answer within {seconds:.0f} s") from late
        if error is not None:
            raise error
        if failed is not None:
            raise failed
        return result

    def close(self) -> None:
        """End the thread when it is free."""
        if self._thread is not None and not self.stuck:
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def _serve(self) -> None:
        while True:
            function = self._asked.get()
            if function is None:
                return
            try:
                self._answers.put((function(), None))
            except BaseException as error:  # handed to the caller, who raises it
                self._answers.put((None, error))
