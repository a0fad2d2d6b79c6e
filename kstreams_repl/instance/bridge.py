"""Between two epochs: a kept instance goes on until its worker is asked for it again.

When an epoch ends Spark collects what it reported, writes its log, plans the next one and starts its tasks: some 200 ms on an
idle machine, seconds on a busy one. Nothing of that concerns the records. So the worker lets the loop run on, on a thread of
its own, and the next epoch's task takes the instance from it at a commit. The loop looks at the signals as always; fencing and
owner tokens hold against a successor as they do in an epoch. Invariant: whoever has called `end` has the instance to himself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from kstreams_repl.instance.control import Signal
from kstreams_repl.instance.instance import Instance
from kstreams_repl.instance.loop import Ending, Loop

_LOG = logging.getLogger("kstreams_repl.instance")
BRIDGE_SECONDS = 5.0
"""An epoch that has not come by then may never come: its query was stopped."""


class Bridge:
    """Runs an instance from the end of one epoch on.

    Args:
        signal: as the loop's.
        rest: called with the instance when nobody has asked for it in time and it has committed; what it raises counts as a failure.
    """

    def __init__(self, instance: Instance, signal: Callable[[float], Signal], rest: Callable[[Instance], None]) -> None:
        self._instance = instance
        self._signal = signal
        self._rest = rest
        self._wanted = threading.Event()
        self.unbroken = False
        """After `end`: it went on until then, so nobody can have come in between unnoticed."""
        self._usable = False
        self._thread = threading.Thread(target=self._run, name=f"bridge-{instance.slot}", daemon=True)
        self._thread.start()

    def end(self) -> bool:
        """Stop at a commit; False when the instance is closed, because it failed or a successor is there."""
        self._wanted.set()
        self._thread.join()
        return self._usable

    def _run(self) -> None:
        try:
            ending = self._loop()
            if ending is not Ending.SUPERSEDED:
                self.unbroken = self._wanted.is_set()
                if not self.unbroken:
                    self._rest(self._instance)
                self._usable = True
                return
        except Exception as error:  # the next epoch takes the tasks over; what was its user's fault fails there again
            _LOG.warning("instance %d of %s ended between epochs: %s", self._instance.slot, self._instance.plan.application_id, error)
        with suppress(Exception):  # whatever its state: what is not committed is taken back
            self._instance.close()

    def _loop(self) -> Ending:
        def signal(now: float) -> Signal:
            return Signal.PAUSE if self._wanted.is_set() else self._signal(now)

        loop = Loop(self._instance, signal=signal, report=lambda instance: None)
        return loop.run(time.monotonic() + BRIDGE_SECONDS)
