"""What a cached store calls as its entries leave: the entry goes to the children as a change."""

from __future__ import annotations

from typing import Any

from kstreams_repl.operators.base import Process
from kstreams_repl.stores.api import FlushListener
from kstreams_repl.types import Headers


def forward_flushed(forward: Process) -> FlushListener:
    """The listener for `set_flush_listener`; old values come as the store was told to send them."""

    def flushed(key: Any, new: Any, old: Any, timestamp: int, headers: Headers) -> None:
        forward(key, (new, old, True), timestamp, headers)

    return flushed
