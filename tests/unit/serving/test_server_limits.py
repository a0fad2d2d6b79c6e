"""Limits of the query server, each with a request that exceeds it; connections that are slow or break off; TLS."""

from __future__ import annotations

import datetime
import gc
import ipaddress
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

import kstreams_repl as ks
from kstreams_repl.engine.partitioning import partition_for_key
from kstreams_repl.engine.stores.engine.read_only import _HANDLES, _SPARE_TRANSACTIONS
from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.system.errors import ConfigError, QueryServerError
from tests.spark.hosting import settle
from tests.unit.serving.serving import Journal, Server

ROWS = 40
LONG = "x" * 1_000


@pytest.fixture
def serve(state: Callable[..., Any]) -> Iterator[Callable[..., Server]]:
    """Starts a server over two partitions of rows of about 1 kB."""
    made: list[Server] = []

    def start(*, tls: tuple[Path, Path] | None = None, rows: int = ROWS, text: str = LONG, **limits: Any) -> Server:
        at = state(ks.StoreBuilder("texts", ks.StoreKind.KEY_VALUE, value_serde="string"))
        for partition in (0, 1):
            keys = [key for key in map("k{}".format, range(rows)) if partition_for_key(key.encode(), 2) == partition]
            at.write(partition, lambda stores, keys=keys: [stores["texts"].put(key, f"{key}{text}") for key in keys])
        journal = Journal().assign({"0": ("0_0",), "1": ("0_1",)}).claim(0, "driver").claim(1, "driver").serve("driver", 1)
        made.append(Server(at, journal, limits=ServerLimits(**limits)).start(tls=tls))
        return made[-1]

    yield start
    for one in made:
        one.stop()


def web(server: Server, **options: Any) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers=server.headers, trust_env=False, timeout=30, **options)


def test_pages_end_before_they_are_too_long_and_no_row_is_left_out(serve: Callable[..., Server]) -> None:
    server = serve(bytes=40_000)  # a page has about 10 rows
    with web(server) as client:
        found: list[str] = []
        pages = 0
        page: dict[str, str] = {}
        while True:
            answer = client.get("/state/range/texts", params=page)
            assert answer.status_code == 200 and len(answer.content) < 40_000
            pages += 1
            found += [row["key"] for row in answer.json()["rows"]]
            if answer.json()["next"] is None:
                break
            page = {"page": answer.json()["next"]}
        keys = [f"k{number}" for number in range(ROWS)]
        assert found == sorted(keys, key=lambda key: (partition_for_key(key.encode(), 2), key)) and pages >= 4
        many = client.post("/state/stores/texts", json={"keys": [key for key in keys if partition_for_key(key.encode(), 2) == 0]})
        assert many.status_code == 413 and many.json()["error"] == "QueryLimitError" and "bytes" in many.json()["message"]
        assert len(client.post("/state/stores/texts", json={"keys": keys[:3]}).json()["rows"]) == 3
    with ks.queries.connect(server.url, token=server.tokens.view) as state:
        assert len(dict(state.rows("range", "texts"))) == ROWS


def test_an_answer_beyond_the_limit_of_bytes_is_refused(serve: Callable[..., Server]) -> None:
    with web(serve(bytes=900)) as client:
        answer = client.get("/state/stores/texts/k1")
        assert answer.status_code == 413 and answer.json()["error"] == "QueryLimitError" and LONG not in answer.text


def test_a_request_that_takes_too_long_is_ended(serve: Callable[..., Server]) -> None:
    server = serve(seconds=1)
    with web(server) as client:
        answer = client.get("/state/stores/texts/k1", params={"position": json.dumps({"in": {"0": 99, "1": 99}}), "wait": "3"})
        assert answer.status_code == 503 and answer.json()["error"] == "QueryLimitError", answer.text
        assert server.traffic.dropped["time limit"] == 1
        assert client.get("/state/stores/texts/k1").status_code == 200


def test_open_requests_and_subscriptions_of_a_client_are_limited(serve: Callable[..., Server]) -> None:
    server = serve(per_client=1, subscriptions=1)
    beyond = {"position": json.dumps({"in": {"0": 99, "1": 99}}), "wait": "2"}
    with web(server) as client, client.stream("GET", "/subscribe/texts") as events:
        assert events.status_code == 200
        second = client.get("/subscribe/texts")
        assert second.status_code == 429 and second.json()["error"] == "QueryLimitError"
        assert client.get("/state/stores/texts/k1").status_code == 200  # counted apart
        with socket.create_connection(("127.0.0.1", server.port), 20) as waiting:
            settle(lambda: not server.traffic.open, "the end of the request before")
            waiting.sendall(request(server, f"/state/stores/texts/k1?{httpx.QueryParams(beyond)}"))
            settle(lambda: bool(server.traffic.open), "the request")
            assert client.get("/state/stores/texts/k2").status_code == 429
    settle(lambda: not server.traffic.streams and not server.traffic.open, "the end of both")


def test_connections_beyond_the_limit_are_closed_at_once(serve: Callable[..., Server]) -> None:
    server = serve(connections=3)
    held = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(3)]
    settle(lambda: server.connections == 3, "three connections")
    with socket.create_connection(("127.0.0.1", server.port), 20) as more:
        with pytest.raises(ConnectionResetError):
            assert more.recv(1) == b""
            raise ConnectionResetError
    assert server.traffic.dropped["too many connections"] == 1
    for one in held:
        one.close()
    settle(lambda: server.connections == 0, "their end")
    with web(server) as client:
        assert client.get("/state/stores/texts/k1").status_code == 200


def test_connections_that_send_no_request_and_readers_that_stall_are_dropped(serve: Callable[..., Server]) -> None:
    server = serve(rows=2_000, header_seconds=1, stall_seconds=0.3)
    slow = []
    for sent in (b"", b"GET /state", request(server, "/state/stores/texts/k1")[:-2]):
        slow.append(socket.create_connection(("127.0.0.1", server.port), 20))
        slow[-1].sendall(sent)
    for one in slow:
        assert ended(one)
        one.close()
    assert server.traffic.dropped["slow request"] == 3
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.settimeout(20)
        stalled.connect(("127.0.0.1", server.port))
        stalled.sendall(request(server, "/state/range/texts?limit=2000"))
        settle(lambda: server.traffic.dropped["slow reader"] == 1, "the reader to be dropped")
        assert ended(stalled)
    settle(lambda: server.connections == 0, "their end")


@pytest.mark.parametrize("sent_before", [b"", b"whole request"])
def test_a_head_that_is_too_long_is_refused(serve: Callable[..., Server], sent_before: bytes) -> None:
    server = serve()
    whole = request(server, "/state/stores/texts/k1")
    with socket.create_connection(("127.0.0.1", server.port), 20) as endless:
        if sent_before:
            endless.sendall(whole)
            assert endless.recv(1 << 16).startswith(b"HTTP/1.1 200")
        endless.sendall(whole[:-2])
        with suppress(ConnectionResetError, BrokenPipeError):
            for _ in range(40):
                endless.sendall(b"X-Longer: %s\r\n" % (b"x" * 8_000))
                time.sleep(0.005)
            raise AssertionError("the server took 320 kB of headers")
    settle(lambda: server.connections == 0, "its end")
    assert server.traffic.dropped == {"long head": 1}


def test_a_body_is_no_part_of_the_head(serve: Callable[..., Server]) -> None:
    keys = [f"{number}{LONG}" for number in range(300)]
    with web(serve()) as client:
        for _ in range(2):
            assert client.post("/state/stores/texts", json={"keys": keys}).json()["rows"] == []


def ended(connection: socket.socket) -> bool:
    """Whether the server closes the connection."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def request(server: Server, target: str) -> bytes:
    headers = {"Host": f"127.0.0.1:{server.port}", **server.headers}
    return f"GET {target} HTTP/1.1\r\n{''.join(f'{name}: {value}{chr(13)}{chr(10)}' for name, value in headers.items())}\r\n".encode()


# ---- slow and dropped connections


@pytest.mark.slow
@pytest.mark.parametrize("count", [300, 10_000])
def test_slow_and_dropped_connections_leave_nothing_behind(serve: Callable[..., Server], count: int) -> None:
    """Nine kinds of bad clients in turn, at most 200 at once; then no descriptor, thread or reader slot more than before."""
    server = serve(rows=300, text=8 * LONG, header_seconds=0.5, stall_seconds=0.5, idle_seconds=1, connections=190)
    began = time.monotonic()
    with web(server) as client:
        for _ in range(50):  # what is kept for the next requests: threads of the pool, LMDB's spare transactions
            client.get("/state/range/texts")
    settle(lambda: server.connections == 0, "idle")
    gc.collect()
    before = left()
    kinds = [kind(server) for kind in KINDS]
    for first in range(0, count, 200):
        opened: list[socket.socket] = []
        for number in range(first, min(first + 200, count)):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.settimeout(20)
            opened.append(connection)
            try:
                connection.connect(("127.0.0.1", server.port))
                kinds[number % len(kinds)](connection)
            except (ConnectionResetError, BrokenPipeError):  # beyond the limit of connections
                pass
        for number, connection in enumerate(opened):
            if number % 2:  # half of them break off, with a reset; the others close
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if number % 5 or first % 1_000:
                connection.close()
        if not first % 1_000:  # the rest stays until the server drops it; unread, for a subscription that is read again goes on
            settle(lambda: server.connections == 0, "the server to drop the rest")
        for connection in opened:
            connection.close()
    settle(lambda: server.connections == 0 and not server.traffic.open and not server.traffic.streams, "the end of all connections")
    settle(lambda: left() <= before, "what they used to be given back", story=lambda: (before, left()))
    print(f"\n{count} connections in {time.monotonic() - began:.1f} s: {dict(server.traffic.dropped)}; {left()}, before: {before}")
    with web(server) as client:
        assert client.get("/state/stores/texts/k1").json()["found"]


@dataclass(frozen=True)
class Left:
    """What this process holds. The server's pool of threads has a fixed limit, and LMDB keeps a few unused reader slots."""

    descriptors: int
    threads: int
    pinned_commits: int
    reader_slots: int

    def __le__(self, other: Left) -> bool:
        return (
            self.descriptors <= other.descriptors
            and self.threads <= other.threads
            and self.pinned_commits <= other.pinned_commits
            and self.reader_slots <= max(other.reader_slots, 2 * _SPARE_TRANSACTIONS)
        )


def left() -> Left:
    slots = [line.split() for handle in list(_HANDLES.values()) for line in handle.env.readers().splitlines()]
    own = [slot for slot in slots if slot[0] == str(os.getpid())]
    return Left(
        len(os.listdir("/proc/self/fd")),
        sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
        sum(slot[-1].isdecimal() for slot in own),
        len(own),
    )


def _silent(server: Server) -> Callable[[socket.socket], None]:
    return lambda connection: None


def _half(server: Server) -> Callable[[socket.socket], None]:
    text = request(server, "/state/stores/texts/k1")
    return lambda connection: connection.sendall(text[:40])


def _byte_by_byte(server: Server) -> Callable[[socket.socket], None]:
    text = request(server, "/state/stores/texts/k1")

    def send(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(30):
            connection.sendall(text[at : at + 1])

    return send


def _never_reads(server: Server) -> Callable[[socket.socket], None]:
    text = request(server, "/state/range/texts")
    return lambda connection: connection.sendall(text)


def _reads_a_little(server: Server) -> Callable[[socket.socket], None]:
    text = request(server, "/state/range/texts")

    def read(connection: socket.socket) -> None:
        connection.sendall(text)
        connection.recv(100)

    return read


def _subscribes(server: Server) -> Callable[[socket.socket], None]:
    text = request(server, "/subscribe/texts")

    def subscribe(connection: socket.socket) -> None:
        connection.sendall(text)
        connection.recv(100)

    return subscribe


def _waits_for_a_position(server: Server) -> Callable[[socket.socket], None]:
    query = httpx.QueryParams({"position": json.dumps({"in": {"0": 99, "1": 99}}), "wait": "0.3"})
    text = request(server, f"/state/stores/texts/k1?{query}")
    return lambda connection: connection.sendall(text)


def _half_a_body(server: Server) -> Callable[[socket.socket], None]:
    text = request(server, "/state/stores/texts").replace(b"GET", b"POST", 1)
    text = text[:-2] + b"Content-Length: 1000\r\n\r\n{"
    return lambda connection: connection.sendall(text)


def _no_http(server: Server) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"\x16\x03\x01" + os.urandom(200))


KINDS = (_silent, _half, _byte_by_byte, _never_reads, _reads_a_little, _subscribes, _waits_for_a_position, _half_a_body, _no_http)


# ---- TLS


def certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(own, own, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = directory / f"{name}.crt", directory / f"{name}.key"
    paths[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    kind = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption()))
    return paths


def test_tls_by_certificate_files_and_clients_check_the_certificate(serve: Callable[..., Server], tmp_path: Path) -> None:
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    server = serve(tls=own)
    assert server.url.startswith("https://")
    with ks.queries.connect(server.url, token=server.tokens.view, cafile=own[0]) as state:
        assert state.get("texts", "k1") == f"k1{LONG}"
        assert len(dict(state.rows("range", "texts"))) == ROWS
    for trusted in (None, other[0]):
        with pytest.raises(QueryServerError, match="no query server answers"):
            ks.queries.connect(server.url, token=server.tokens.view, cafile=trusted, timeout=0.2)
    with pytest.raises(QueryServerError):  # no plain HTTP at this port
        ks.queries.connect(server.url.replace("https", "http"), token=server.tokens.view, timeout=0.2)
    with httpx.Client(verify=ssl.create_default_context(cafile=own[0]), headers=server.headers, trust_env=False) as client:
        assert client.get(f"{server.url}/health", headers={"Origin": server.url}).status_code == 200
        assert client.get(f"{server.url}/health", headers={"Origin": server.url.replace("https", "http")}).status_code == 403


def test_certificates_that_cannot_be_used_are_a_typed_error(serve: Callable[..., Server], tmp_path: Path) -> None:
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    (tmp_path / "empty").write_text("")
    for files in ((own[0], other[1]), (tmp_path / "none", own[1]), (tmp_path / "empty", own[1])):
        with pytest.raises(ConfigError, match="certificate cannot be used"):
            serve(tls=files)


def test_an_address_has_the_scheme_of_its_server() -> None:
    assert HostInfo("127.0.0.1", 1, True).url == "https://127.0.0.1:1"
