"""Wait on the main thread so that Ctrl-C ends the wait."""

from __future__ import annotations

import threading

_SLICE_SECONDS = 0.1


def wait_interruptibly(event: threading.Event) -> None:
    """Wait until the event is set, in short slices.

    Some libraries replace Python's SIGINT handler by one with ``SA_RESTART`` when they are imported (Polars does): the system
    then goes on with the wait after the signal, and Python runs its handler only when the wait returns.

    Raises:
        KeyboardInterrupt: an interrupt arrived.
    """
    while not event.wait(_SLICE_SECONDS):
        pass
