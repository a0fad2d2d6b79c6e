"""The changelog writes of a store.

Two modes. *Every update* sends one record per write immediately, as Kafka Streams does. *Once per key and commit* keeps the last
value of each key and sends it when the store is flushed: a replay yields the same table from far fewer records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kstreams_repl.system.types import Headers

Send = Callable[[bytes | None, bytes | None, int | None, Headers, int | None], None]
"""(key, value, timestamp, headers, partition): send one record to a topic; partition None means the task's own."""

NO_HEADERS: Headers = []


class Log(Protocol):
    """Log one row."""

    def __call__(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = ..., /) -> None: ...


class Changelog:
    """The changelog of one store; `log(key, value, timestamp)` is a plain callable.

    Args:
        last_write_order: send the kept values in the order of the last writes instead of the first ones.
    """

    __slots__ = ("log", "suppressed", "pending", "send", "_send_many", "partition", "_last_write_order")

    def __init__(
        self,
        send: Send | None,
        *,
        suppressed: bool,
        partition: int | None = None,
        send_many: Callable[..., None] | None = None,
        last_write_order: bool = False,
    ) -> None:
        self._last_write_order = last_write_order
        self.send = send
        self._send_many = send_many
        self.partition = partition
        self.suppressed = suppressed and send is not None
        self.pending: dict[bytes, tuple[bytes | None, int | None, Headers]] = {}
        self.log: Log = self._make_log()

    def _make_log(self) -> Log:
        send, pending, partition = self.send, self.pending, self.partition
        if send is None:
            return lambda key, value, timestamp, headers=NO_HEADERS: None
        if self.suppressed:

            def keep(key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = NO_HEADERS) -> None:
                pending[key] = (value, timestamp, headers)

            def keep_last(key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = NO_HEADERS) -> None:
                pending.pop(key, None)
                pending[key] = (value, timestamp, headers)

            return keep_last if self._last_write_order else keep

        def at_once(key: bytes, value: bytes | None, timestamp: int | None, headers: Headers = NO_HEADERS) -> None:
            send(key, value, timestamp, headers, partition)

        return at_once

    def send_many(self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int | None]) -> None:
        """Send columns of records immediately, in both modes."""
        send, partition = self.send, self.partition
        if self._send_many is not None:
            self._send_many(keys, values, timestamps, None, partition)
        elif send is not None:
            for key, value, timestamp in zip(keys, values, timestamps, strict=True):
                send(key, value, timestamp, NO_HEADERS, partition)

    def flush(self) -> None:
        """Send the pending records; does nothing in the mode that sends every update immediately."""
        pending, send = self.pending, self.send
        if pending and send is not None:
            for key, (value, timestamp, headers) in pending.items():
                send(key, value, timestamp, headers, self.partition)
            pending.clear()

    def clear(self) -> None:
        self.pending.clear()
