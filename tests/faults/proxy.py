"""A TCP proxy in front of the broker that knows Kafka's request framing: it delays, drops and cuts by kind of request.

The broker's own address in answers is replaced by the proxy's (both are ``127.0.0.1`` and a port, so lengths stay), so that clients that
come through the proxy stay with it. What belongs to a request or an answer that is not touched passes through unread.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

PRODUCE, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 25, 26, 28
_HOST = b"127.0.0.1"
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")

Decide = Callable[[int], str | None]
"""Given a request's api key: None (pass), ``"delay"`` (to the broker later, the client hears nothing), ``"deafen"`` (the broker gets it,
the client never hears the answer) or ``"hang up"`` (the broker gets it, the client's connection is closed instead of an answer)."""


@dataclass(eq=False)
class _Link:
    client: socket.socket
    broker: socket.socket
    unanswered: set[int] = field(default_factory=set)
    """Correlation ids whose answers are dropped."""
    hang_up: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Proxy:
    """Args:
    port: the broker's.
    decide: asked for every request; set it at any time.
    """

    def __init__(self, port: int) -> None:
        self._broker = port
        self.decide: Decide = lambda api: None
        self.delay_seconds = 1.0
        self.touched = 0
        self._cut_until = 0.0
        self._silent = False
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._spawn(self._accept)

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def cut(self, seconds: float, *, silent: bool) -> None:
        """No byte passes for a time: connections die at once, or (silent) are left hanging as behind a dead router."""
        self._silent = silent
        self._cut_until = time.monotonic() + seconds
        if not silent:
            for link in list(self._links):
                self._drop(link)

    def close(self) -> None:
        self._closed = True
        self._cut_until = 0.0
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in list(self._links):
            self._drop(link)
        for thread in self._threads:
            thread.join(10)

    # ---- inside

    def _spawn(self, work: Callable[..., None], *arguments: object) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, args=arguments, daemon=True, name="proxy")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if time.monotonic() < self._cut_until and not self._silent:
                client.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker), timeout=5)
            except OSError:
                client.close()
                continue
            broker.settimeout(None)
            for end in (client, broker):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, broker)
            self._links.add(link)
            if self._closed:  # `close` may have gone through the links already
                self._drop(link)
                return
            self._spawn(self._requests, link)
            self._spawn(self._answers, link)

    def _drop(self, link: _Link) -> None:
        self._links.discard(link)
        for end in (link.client, link.broker):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _hold(self) -> None:
        while time.monotonic() < self._cut_until and not self._closed:
            time.sleep(0.02)

    def _requests(self, link: _Link) -> None:
        try:
            while True:
                frame = _read_frame(link.client)
                self._hold()
                api, _, correlation = _HEAD.unpack_from(frame)
                what = self.decide(api)
                if what is None:
                    self._send(link, frame)
                    continue
                self.touched += 1
                link.unanswered.add(correlation)
                if what == "delay":
                    self._spawn(self._send_late, link, frame)
                else:
                    link.hang_up = what == "hang up"
                    self._send(link, frame)
        except OSError:
            self._client_left(link)

    def _client_left(self, link: _Link) -> None:
        """The client is gone; what it sent may still be on its way to the broker."""
        link.client.close()
        time.sleep(self.delay_seconds + 0.2 if link.unanswered else 0)
        self._drop(link)

    def _send_late(self, link: _Link, frame: bytes) -> None:
        time.sleep(self.delay_seconds)
        with suppress(OSError):
            self._send(link, frame)

    def _send(self, link: _Link, frame: bytes) -> None:
        with link.lock:
            link.broker.sendall(_SIZE.pack(len(frame)) + frame)

    def _answers(self, link: _Link) -> None:
        ours, theirs = _HOST + _SIZE.pack(self.port), _HOST + _SIZE.pack(self._broker)
        try:
            while True:
                frame = _read_frame(link.broker)
                self._hold()
                [correlation] = _SIZE.unpack_from(frame)
                if correlation in link.unanswered:
                    if link.hang_up:
                        break
                    continue
                link.client.sendall(_SIZE.pack(len(frame)) + frame.replace(theirs, ours))
        except OSError:
            pass
        self._drop(link)


def _read_frame(connection: socket.socket) -> bytes:
    [size] = _SIZE.unpack(_read(connection, _SIZE.size))
    return _read(connection, size)


def _read(connection: socket.socket, size: int) -> bytes:
    parts, missing = [], size
    while missing:
        part = connection.recv(min(missing, 1 << 20))
        if not part:
            raise ConnectionError("closed")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
