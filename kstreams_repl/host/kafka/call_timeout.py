"""Client calls that may never return, made on a separate thread and abandoned after a timeout.

librdkafka's transactional calls take a timeout but do not always respect it: after a broker restart, adding offsets waits for an answer
that never comes. An abandoned call continues in its thread; the client it belongs to must not be used or closed any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any


class CallGivenUp(Exception):
    """The call did not return in time; whether it takes effect is unknown."""


class WatchedCalls:
    """One daemon thread that makes one call at a time. `stuck` is True after a call was abandoned."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._answers: SimpleQueue[tuple[object, BaseException | None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.stuck = False

    def call(
        self,
        function: Callable[[], object],
        seconds: float,
        meanwhile: Callable[[], bool] | None = None,
        begun: Callable[[], None] = lambda: None,
    ) -> Any:
        """Return the function's result, or raise what it raised.

        Args:
            seconds: how long to wait for the call.
            meanwhile: a short piece of other work, called repeatedly while the call runs, until it returns False. Its exceptions are raised
                here.
            begun: called once, after the call was handed to its thread, and before `meanwhile`.

        Raises:
            CallGivenUp: the call did not return within `seconds`.
        """
        if self.stuck:
            raise CallGivenUp(f"{self._name} cannot make another call: an earlier one did not return")
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._asked.put(function)
        failed: BaseException | None = None
        try:
            begun()
            while meanwhile is not None and self._answers.empty() and meanwhile():
                pass
        except BaseException as problem:  # raised after the answer arrives; the next call would mistake the answer for its own
            failed = problem
        try:
            result, error = self._answers.get(timeout=seconds)
        except Exception as late:  # queue.Empty
            self.stuck = True
            self._asked.put(None)  # if the call returns after all, the thread ends and releases the client
            raise CallGivenUp(f"no answer within {seconds:.0f} s") from late
        if error is not None:
            raise error
        if failed is not None:
            raise failed
        return result

    def close(self) -> None:
        """End the thread, unless a call is stuck in it."""
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
            except BaseException as error:  # passed to the caller, which raises it
                self._answers.put((None, error))
