"""Run the server: one socket, uvicorn, and limits on connections that uvicorn does not have.

A connection that sends no complete request in time, and one whose reader takes nothing for a while, is aborted, so that slow or
dropped peers keep no descriptor. Beyond the limit of connections new ones are closed at once.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.serving.server.access import Traffic
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.system.errors import ConfigError, QueryServerError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})
_GRACE_SECONDS = 2
_HEAD_BYTES = 64 * 1024
"""Most bytes of a request's first line and headers; the parser has no limit of its own."""


def published_host(bind: str, bootstrap_servers: str) -> str:
    """Return the host by which other hosts reach a server: of one that listens on all addresses, the address towards the broker.

    Example:
        >>> published_host("10.0.0.7", "broker:9092"), published_host("0.0.0.0", "127.0.0.1:9092")
        ('10.0.0.7', '127.0.0.1')
    """
    if bind not in _EVERYWHERE:
        return bind
    host, _, port = bootstrap_servers.split(",")[0].strip().rpartition(":")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing: it only chooses the route
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return socket.gethostname()


def host_names(bind: str, published: str) -> frozenset[str]:
    """Return the names by which a server may be asked (its ``Host`` header)."""
    names = {bind, published} | (LOOPBACK if bind in LOOPBACK | _EVERYWHERE else set())
    return frozenset(names | ({socket.gethostname(), socket.getfqdn()} if bind in _EVERYWHERE else set()))


def listen(bind: HostInfo, *, tls: bool, insecure: bool = False) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: the address is not loopback, and there is neither TLS nor `insecure`.
        QueryServerError: the address is in use, or not of this machine.
    """
    if bind.host not in LOOPBACK and not tls and not insecure:
        raise ConfigError(
            f"{bind.host} can be reached from other machines, and tokens would travel unencrypted",
            hint="give certfile= and keyfile=, or insecure=True on a network that you trust",
            key="application.server",
        )
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # with it asyncio turns off Nagle's delay
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((bind.host, bind.port))
        made.listen(1024)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise QueryServerError(
            f"cannot listen on {bind}: {error.strerror or error}", hint="port 0 takes a free one", host=bind.host, port=bind.port
        ) from error
    return made


def make_server(
    app: ASGIApp, limits: ServerLimits, traffic: Traffic, *, certfile: Path | None = None, keyfile: Path | None = None
) -> uvicorn.Server:
    """Return a server for `app`; run it with ``await server.serve(sockets=[...])``.

    Raises:
        ConfigError: the certificate cannot be read.
    """
    config = uvicorn.Config(
        app,
        http=_protocol(limits, traffic),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        ssl_certfile=certfile,
        ssl_keyfile=keyfile,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the certificate cannot be used: {error}", hint="PEM files: certfile=, keyfile=", key="certfile") from error
    return uvicorn.Server(config)


def _protocol(limits: ServerLimits, traffic: Traffic) -> type[asyncio.Protocol]:
    class BoundedProtocol(HttpToolsProtocol):
        """HTTP/1.1 with a limit on the size of a request's head, and on the time for it to arrive and for each answer to be taken."""

        _head = 0
        _arrival: asyncio.TimerHandle | None = None
        _stall: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            if len(self.connections) >= limits.connections:
                traffic.dropped["too many connections"] += 1
                self.transport = transport
                transport.abort()
                return
            super().connection_made(transport)
            self._await_request()

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._arrival, self._stall):
                if timer is not None:
                    timer.cancel()
            if self in self.connections:
                self._unset_keepalive_if_required()
                super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self not in self.connections:  # refused above
                return
            self._head += len(data)
            super().data_received(data)
            if self._head > _HEAD_BYTES:  # no answer: that to the request before may be under way
                traffic.dropped["long head"] += 1
                self.transport.abort()
            self._await_request()

        def on_headers_complete(self) -> None:
            self._head = 0
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._head = 0
            super().on_body(body)

        def _await_request(self) -> None:
            waits = self.cycle is None or self.cycle.response_complete
            if waits and self._arrival is None and self.timeout_keep_alive_task is None:
                self._arrival = self.loop.call_later(limits.header_seconds, self._late, self.cycle)
            elif not waits and self._arrival is not None:
                self._arrival.cancel()
                self._arrival = None

        def _late(self, cycle: object) -> None:
            self._arrival = None
            if self.cycle is cycle and self.timeout_keep_alive_task is None:
                traffic.dropped["slow request"] += 1
                self.transport.abort()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._stall is None:
                self._stall = self.loop.call_later(limits.stall_seconds, self._stalled)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stall is not None:
                self._stall.cancel()
                self._stall = None

        def _stalled(self) -> None:
            traffic.dropped["slow reader"] += 1
            self.transport.abort()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.transport.is_closing() and self._stall is None:  # close() waits for a reader that may never take the rest
                self._stall = self.loop.call_later(limits.stall_seconds, self._stalled)

    return BoundedProtocol


async def serve_until(server: uvicorn.Server, listening: socket.socket, ended: Callable[[], bool], every: Callable[[], None]) -> None:
    """Serve until `ended` returns true or the process is asked to end.

    Args:
        every: called about four times a second.
    """
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    while not serving.done():
        await asyncio.wait([serving], timeout=0.25)
        if ended():
            server.should_exit = True
        elif server.started:
            every()
    await serving
