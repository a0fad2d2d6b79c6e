"""A service on HTTP that takes its time, and counts what it was asked. The asking function is here too: other processes import it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import kstreams_repl as ks

KEY = "Idempotency-Key"


class PaidService:
    """Answers each request after some milliseconds with the value that was sent.

    Attributes:
        begun: (monotonic time, idempotency key) of each request, in order.
        asked: how often, by idempotency key.
        answered: keys whose first answer was sent.
    """

    def __init__(self, most_ms: int = 30, *, seed: int = 1) -> None:
        self.begun: list[tuple[float, str]] = []
        self.asked: Counter[str] = Counter()
        self.answered: set[str] = set()
        self.open: Counter[str] = Counter()
        self.silent = threading.Event()
        self.ended = threading.Event()
        dice, lock = random.Random(seed), threading.Lock()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                key = self.headers[KEY]
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with lock:
                    service.begun.append((time.monotonic(), key))
                    service.asked[key] += 1
                    service.open[key] += 1
                    wait = dice.uniform(0, most_ms) / 1000
                time.sleep(wait)
                if service.silent.is_set():
                    service.ended.wait()
                with lock:
                    service.open[key] -= 1
                    service.answered.add(key)
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 256

            def handle_error(self, request: Any, address: Any) -> None:
                """The caller was killed."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="paid-service", daemon=True)
        self._thread.start()

    @property
    def repeated(self) -> int:
        """Calls beyond the first of each key."""
        return self.asked.total() - len(self.asked)

    @property
    def unanswered(self) -> set[str]:
        """Keys whose request is being served."""
        return {key for key, count in list(self.open.items()) if count > 0}

    def close(self) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def paying(port: int) -> Callable[[bytes], bytes]:
    """Return the function of an asynchronous node that asks the service."""

    def pay(value: bytes) -> bytes:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/", value, {KEY: ks.current_call().idempotency_key})
            return connection.getresponse().read()
        finally:
            connection.close()

    return pay
