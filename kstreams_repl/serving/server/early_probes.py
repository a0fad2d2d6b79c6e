"""The probes of a service whose application does not run yet: a standby that waits, or a start. It is alive and not ready."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson

from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.serving.server.serving import listen
from kstreams_repl.system.errors import ConfigError

ANSWERS = {
    "/health/live": (200, {"live": True}),
    "/health/ready": (503, {"ready": False, "waits_for": ["its application, which does not run here yet"]}),
}
_SECONDS = 5
"""For one request."""


class EarlyProbes:
    """Answers probes from the call on until it is closed, when its address is free for the query server.

    Raises:
        ConfigError: the certificate cannot be used, or others could reach the address without TLS.
        QueryServerError: the address is in use, or not of this machine.
    """

    def __init__(self, bind: HostInfo, certfile: str | None, keyfile: str | None, *, insecure: bool) -> None:
        tls = None
        if certfile is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                tls.load_cert_chain(Path(certfile), keyfile)
            except (OSError, ssl.SSLError) as error:
                text = f"the certificate cannot be used: {error}"
                raise ConfigError(text, hint="PEM files: --certfile, --keyfile", key="certfile") from error
        self._server = _Server(bind, tls, insecure=insecure)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="early-probes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Free the address. Closing twice does nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, bind: HostInfo, tls: ssl.SSLContext | None, *, insecure: bool) -> None:
        listening = listen(bind, tls=tls is not None, insecure=insecure)
        super().__init__((bind.host, bind.port), _Answer, bind_and_activate=False)
        self.socket.close()
        self.socket, self.tls = listening, tls

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that is gone, or speaks no TLS, is no error of ours."""


class _Answer(BaseHTTPRequestHandler):
    server: _Server

    def setup(self) -> None:
        self.request.settimeout(_SECONDS)
        if self.server.tls is not None:  # in this thread: a peer that says nothing holds up no other
            self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def do_GET(self) -> None:
        status, content = ANSWERS.get(self.path, (404, {}))
        body = orjson.dumps(content)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Probes are not logged."""
