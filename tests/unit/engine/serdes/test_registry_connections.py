"""The connections to a Schema Registry end with the process."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROGRAM = """
import sys
from kstreams_repl.engine.serdes.schemas.schema_registry import client_of
print(client_of((("url", sys.argv[1]),)).get_subjects())
"""


class Registry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")


def test_a_connection_that_is_kept_is_closed_when_the_process_ends() -> None:
    """Each one was a `ResourceWarning` behind the summary of the tests."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        done = subprocess.run([sys.executable, "-X", "dev", "-c", PROGRAM, url], capture_output=True, text=True, timeout=60)
        server.shutdown()
    assert done.stdout == "[]\n", done.stderr
    assert "unclosed <socket" not in done.stderr
