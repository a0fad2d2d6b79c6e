"""What a server answers at most. A module of its own: local reads have these limits, too, and need no web framework."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server.

    Attributes:
        rows, bytes: of one answer; a page of rows ends before it has so many.
        body: bytes of a request's body.
        seconds: of one request.
        stall_seconds: within which a reader must take what was sent.
        per_client: open requests of one address; subscriptions are counted apart.
        subscriptions: open subscriptions of one address.
        connections: open connections of all.
        header_seconds: within which a connection must have sent a request.
        idle_seconds: after which a connection without a further request is closed.
    """

    rows: int = 10_000
    bytes: int = 32 * 1024 * 1024
    body: int = 4 * 1024 * 1024
    seconds: float = 30.0
    stall_seconds: float = 10.0
    per_client: int = 256
    subscriptions: int = 64
    connections: int = 1_000
    header_seconds: float = 10.0
    idle_seconds: int = 20

    @property
    def page_bytes(self) -> int:
        """Bytes of keys and values after which a page of rows ends: as JSON they are longer."""
        return self.bytes // 4
