"""The flush listener of a cached store: forwards flushed entries to the children as changes."""

from __future__ import annotations

from typing import Any

from kstreams_repl.operators.base import Process
from kstreams_repl.stores.api import FlushListener
from kstreams_repl.types import Headers


def forward_flushed(forward: Process) -> FlushListener:
    """Return the listener for `set_flush_listener`; the store provides old values if it is configured to send them."""

    def flushed(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, (new, old, True), timestamp, headers)

    return flushed
