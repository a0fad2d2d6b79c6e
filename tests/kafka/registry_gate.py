"""`RegistryGate`: stands before a real registry, as a company's gateway does: it asks for a password, may be slow, and notes requests.

With `guids` it gives each schema a GUID and answers ``/schemas/guids/…``, as Confluent's does; the embedded one does not.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5


class RegistryGate:
    """Forwards requests on loopback.

    Attributes:
        url: its address in place of the registry's.
        accepts: whether it answers a request with this header ``Authorization`` (empty: none).
        delay: seconds before each answer.
        failures: how many of the next requests it answers with 503.
        requests: (method, path, status) of all requests.
    """

    def __init__(
        self, target: str, *, user_info: str | None = None, guids: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        basic = None if user_info is None else "Basic " + base64.b64encode(user_info.encode()).decode()
        self.accepts: Callable[[str], bool] = lambda sent: basic is None or sent == basic
        self.delay = 0.0
        self.failures = 0
        self._ids: dict[str, int] | None = {} if guids else None
        self.requests: list[tuple[str, str, int]] = []
        self._target, self._closed = urlsplit(target), False
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def _forward(self) -> None:
                status, body = gate._answer(self)
                gate.requests.append((self.command, self.path, status))
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:  # the client has not waited
                    pass

            do_GET = do_POST = do_PUT = do_DELETE = _forward  # noqa: N815 - names of the base class

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False  # close waits for them
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_port}{self._target.path}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def _answer(self, request: BaseHTTPRequestHandler) -> tuple[int, bytes]:
        began = time.monotonic()
        while time.monotonic() - began < self.delay and not self._closed:
            time.sleep(0.02)
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        if self.failures > 0:
            self.failures -= 1
            return 503, b'{"error_code": 50301, "message": "Service Unavailable"}'
        if not self.accepts(request.headers.get("Authorization") or ""):
            return 401, b'{"error_code": 40101, "message": "Unauthorized"}'
        connection = HTTPConnection(str(self._target.hostname), self._target.port or 80, timeout=30)
        try:
            headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
            connection.request(request.command, self._own_path(request.path), body or None, headers)
            answer = connection.getresponse()
            return answer.status, self._with_guid(answer.read())
        except OSError as error:
            return 503, f'{{"error_code": 50301, "message": "{type(error).__name__}"}}'.encode()
        finally:
            connection.close()

    def _own_path(self, path: str) -> str:
        before, guids, guid = path.partition("/schemas/guids/")
        return f"{before}/schemas/ids/{self._ids.get(guid.partition('?')[0], 0)}" if guids and self._ids is not None else path

    def _with_guid(self, body: bytes) -> bytes:
        found = json.loads(body) if self._ids is not None and body[:1] == b"{" else {}
        if self._ids is None or "id" not in found:
            return body
        guid = str(uuid5(NAMESPACE_URL, f"{self._target.netloc}/{found['id']}"))
        self._ids[guid] = found["id"]
        return json.dumps({**found, "guid": guid}).encode()

    def close(self) -> None:
        self._closed = True
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> RegistryGate:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
