"""Security of the query server: a table of all routes, methods and tokens; hosts, origins, signatures; hostile keys and queries."""

from __future__ import annotations

import base64
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import kstreams_repl as ks
from kstreams_repl.host.instance.metadata import HostInfo
from kstreams_repl.host.query_tokens import FILE, is_signed, signature, tokens_in
from kstreams_repl.serving.server.access import PROBES
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.serving.server.routes import ROUTES
from kstreams_repl.serving.server.serving import host_names, listen, published_host
from kstreams_repl.system.errors import ConfigError
from tests.unit.serving.serving import Journal, Server

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT")
FILL = {"{store}": "counts", "{key:path}": "a", "{name}": "page.js"}
ENDLESS = {"/page/changes", "/subscribe/counts"}


def path_of(route: Any) -> str:
    path = route.path
    for name, value in FILL.items():
        path = path.replace(name, value)
    return str(path)


@pytest.fixture
def server(state: Callable[..., Any]) -> Iterator[Server]:
    private = ks.StoreBuilder("KSTREAM-AGGREGATE-STATE-STORE-0000000001", ks.StoreKind.KEY_VALUE)
    made = state(ks.Stores.persistent_key_value_store("counts"), private)
    keys = ("a", "a/b", "../../etc/passwd", "x\0y", "é")
    made.write(0, lambda stores: [stores["counts"].put(key, number) for number, key in enumerate(keys)])
    one = Server(made, Journal().assign({"0": ("0_0",)}).claim(0, "driver").serve("driver", 1))
    yield one
    one.stop()


def client(server: Server, **options: Any) -> TestClient:
    return TestClient(server.app, base_url="http://127.0.0.1:8081", **options)


@pytest.mark.parametrize("token", ["none", "empty", "wrong", "other scheme", "in the query", "basic without a password"])
def test_no_route_answers_any_method_without_the_token(server: Server, token: str) -> None:
    look = server.tokens.view.reveal()
    headers = {
        "none": {},
        "empty": {"Authorization": "Bearer "},
        "wrong": {"Authorization": f"Bearer {look[:-1]}_"},
        "other scheme": {"Authorization": look},
        "in the query": {},
        "basic without a password": {"Authorization": "Basic " + base64.b64encode(look.encode()).decode()},
    }[token]
    with client(server) as web:
        closed = {path_of(route) for route in ROUTES if route.path not in PROBES}
        for path in closed | {"/nothing", "/state", "//", "/docs/", "/openapi.json/x", "/static/../x"}:
            for method in METHODS:
                query = {"token": look, "access_token": look} if token == "in the query" else {}
                answer = web.request(method, path, headers=headers, params=query, json={} if method == "POST" else None)
                assert answer.status_code == 401, (method, path)
                assert look not in answer.text and "WWW-Authenticate" in answer.headers
                if method != "HEAD":
                    assert answer.json()["error"] == "AccessDeniedError"


def test_a_probe_needs_neither_token_nor_name_and_tells_nothing_more(server: Server) -> None:
    with client(server) as web:
        for path in PROBES:
            for headers in ({}, {"Host": "10.1.2.3:8080"}, {"Authorization": "Bearer wrong"}):
                answer = web.get(path, headers=headers)
                assert answer.status_code in (200, 503) and set(answer.json()) <= {"live", "ready", "waits_for"}
            assert web.post(path).status_code == 401 and web.get(f"{path}/").status_code == 401


@pytest.mark.parametrize("right", ["look", "control", "basic"])
def test_either_token_opens_the_listed_methods_and_no_other(server: Server, right: str) -> None:
    look = server.tokens.view.reveal()
    basic = "Basic " + base64.b64encode(f"token:{look}".encode()).decode()
    token = server.tokens.control if right == "control" else server.tokens.view
    header = basic if right == "basic" else f"Bearer {token.reveal()}"
    allowed = {(route.method, path_of(route)) for route in ROUTES}
    allowed |= {("HEAD", path) for method, path in allowed if method == "GET"}
    with client(server, headers={"Authorization": header}) as web:
        for path in sorted({path for _, path in allowed} - ENDLESS):
            for method in METHODS:
                body = {"keys": ["a"]} if method == "POST" else None
                params = {"q": "SELECT 1"} if path == "/sql" else {"prefix": "a"} if "/prefix/" in path else {}
                answer = web.request(method, path, params=params, json=body)
                if (method, path) in allowed:
                    assert answer.status_code in (200, 400), (method, path, answer.text)  # 400: a store of another kind
                else:
                    assert answer.status_code == 405, (method, path, answer.text)
                assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"


def test_other_hosts_and_other_pages_are_refused(server: Server) -> None:
    with client(server, headers=server.headers) as web:
        for headers in (
            {"Host": "evil.example"},
            {"Host": "evil.example:8081"},
            {"Host": ""},
            {"Host": "127.0.0.1.evil.example"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:9999"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            answer = web.get("/state/stores/counts/a", headers=headers)
            assert answer.status_code == 403, headers
        for headers in ({"Host": "localhost:1"}, {"Origin": "http://127.0.0.1:8081", "Sec-Fetch-Site": "same-origin"}):
            assert web.get("/state/stores/counts/a", headers=headers).status_code == 200


def test_a_signature_opens_one_request_for_half_a_minute(server: Server) -> None:
    host, target = "127.0.0.1:8081", "/state/stores/counts/a?stale=true"
    good = signature(server.tokens.view, "GET", host, target)
    assert server.tokens.view.reveal() not in good
    with client(server) as web:
        assert web.get(target, headers={"Authorization": good}).status_code == 200
        for method, path, header in (
            ("GET", "/state/stores/counts/b?stale=true", good),
            ("GET", "/state/stores/counts/a", good),
            ("POST", target, good),
            ("GET", target, good[:-1] + ("0" if good[-1] != "0" else "1")),
            ("GET", target, signature(server.tokens.view, "GET", host, target, now=1_000_000)),
            ("GET", target, signature(server.tokens.view, "GET", "127.0.0.1:9", target)),
            ("GET", target, signature(ks.secret("env:HOME"), "GET", host, target)),
            ("GET", target, "KStreams-Signed x:y"),
        ):
            assert web.request(method, path, headers={"Authorization": header}).status_code == 401, (method, path, header)
        body = b'{"keys": ["a"]}'
        post = signature(server.tokens.view, "POST", host, "/state/stores/counts", body)
        assert web.post("/state/stores/counts", content=body, headers={"Authorization": post}).json()["rows"] == [{"key": "a", "value": 0}]
        assert web.post("/state/stores/counts", content=b'{"keys": ["b"]}', headers={"Authorization": post}).status_code == 401
    assert not is_signed(server.tokens, signature(server.tokens.control, "GET", host, target), "GET", host, target)


def test_tokens_are_in_a_file_of_the_owners_and_made_once(tmp_path: Path) -> None:
    tokens = tokens_in(tmp_path / "made")
    path = tmp_path / "made" / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert tokens_in(path.parent) == tokens and tokens.view != tokens.control and len(tokens.view.reveal()) >= 43
    assert tokens.view.reveal() not in repr(tokens) and [entry.name for entry in path.parent.iterdir()] == [FILE]
    assert (tokens.right_of(tokens.view.reveal()), tokens.right_of(tokens.control.reveal())) == ("look", "control")
    assert tokens.right_of("") is None and tokens.right_of(tokens.view.reveal() + "x") is None
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="other users can read"):
        tokens_in(path.parent)
    path.chmod(0o600)
    for content in ("", "[]", '{"look": "a", "control": "a"}', '{"look": 1}'):
        path.write_text(content)
        with pytest.raises(ConfigError, match="tokens in"):
            tokens_in(path.parent)
    path.unlink()
    path.symlink_to("/etc/hostname")
    with pytest.raises(OSError):
        tokens_in(path.parent)


def test_only_loopback_without_tls() -> None:
    with pytest.raises(ConfigError, match="can be reached from other machines"):
        listen(HostInfo("0.0.0.0", 0), tls=False)
    listen(HostInfo("0.0.0.0", 0), tls=False, insecure=True).close()
    taken = listen(HostInfo("127.0.0.1", 0), tls=False)
    with pytest.raises(ks.errors.QueryServerError, match="in use"):
        listen(HostInfo("127.0.0.1", taken.getsockname()[1]), tls=False)
    taken.close()


def _has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_a_server_on_all_addresses_is_published_and_asked_by_real_names(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def resolve(host: str, *rest: Any, **options: Any) -> Any:
        if host.endswith(".invalid"):  # no name server is asked: some answer every name, some answer late
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return real(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "getfqdn", lambda: "this.host.example")
    assert published_host("0.0.0.0", "127.0.0.1:9092,other:1") == "127.0.0.1"
    assert published_host("::", "[::1]:9092") == ("::1" if _has_ipv6() else socket.gethostname())
    assert published_host("0.0.0.0", "no.such.host.invalid:9092") == socket.gethostname() == published_host("0.0.0.0", "nonsense")
    assert published_host("127.0.0.1", "10.1.2.3:9092") == "127.0.0.1"
    assert host_names("10.1.2.3", "10.1.2.3") == {"10.1.2.3"}
    assert host_names("0.0.0.0", "10.1.2.3") >= {"10.1.2.3", "localhost", "127.0.0.1", socket.gethostname(), "this.host.example"}


HOSTILE = [
    "../../etc/passwd", "x\0y", "a/b", "'; DROP TABLE counts; --", "{{7*7}}", "${jndi:ldap://x}", "__import__('os').system('id')", "%00",
    "<script>", "\u202ea", "é" * 600,
]  # fmt: skip


@pytest.mark.parametrize("key", HOSTILE)
def test_a_hostile_key_is_only_a_key(server: Server, key: str) -> None:
    from urllib.parse import quote

    known = {"../../etc/passwd": 2, "x\0y": 3, "a/b": 1}
    with client(server, headers=server.headers) as web:
        answer = web.get(f"/state/stores/counts/{quote(key, safe='')}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["value"] == known.get(key) and answer.json()["found"] is (key in known)
        rows = [{"key": key, "value": known[key]}] if key in known else []
        assert web.post("/state/stores/counts", json={"keys": [key]}).json()["rows"] == rows


def test_only_named_stores_are_open(server: Server) -> None:
    with client(server, headers=server.headers) as web:
        for store in ("KSTREAM-AGGREGATE-STATE-STORE-0000000001", "meta", "queried-counts-changelog", "counts%00", "%2e%2e%2fcounts"):
            for route in ROUTES:
                if "{store}" in route.path and route.method == "GET":
                    path = route.path.replace("{store}", store).replace("{key:path}", "a")
                    assert web.get(path).status_code in (400, 404), path
        assert [store["name"] for store in web.get("/state/stores").json()["stores"]] == ["counts"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/state/stores/counts", b"[]"),
        ("/state/stores/counts", b'{"keys": "a"}'),
        ("/state/stores/counts", b'{"keys": [{"$pickle": "gASVKAAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjA1pZCA=="}]}'),
        ("/state/stores/counts", b'{"keys": [' + b"[" * 900 + b"]" * 900 + b"]}"),
        ("/state/stores/counts", b"\xff\xfe"),
        ("/state/range/counts?limit=0", None),
        ("/state/range/counts?limit=99999999999999999999999", None),
        ("/state/range/counts?page=[[", None),
        ("/state/range/counts?page=%5B0,0,%7B%22$pickle%22:1%7D%5D", None),
        ("/state/range/counts?evil=1", None),
        ("/state/range/counts?position=%5B1%5D", None),
        ("/state/range/counts?wait=-1", None),
        ("/state/range/counts?wait=nan", None),
        ("/state/range/counts?partition=-1", None),
        ("/state/stores/counts/a?stale=perhaps", None),
        ("/state/stores/counts/%7B?key_format=json", None),
        ("/state/stores/counts/a?key_format=pickle", None),
        ("/state/windows/counts/a", None),
        ("/sql", None),
        ("/sql?q=SELECT+1&file=x", None),
        ("/subscribe/counts?from=evil", None),
        ("/page/../index.html", None),
    ],
)  # fmt: skip
def test_what_is_no_request_is_a_typed_error(server: Server, path: str, body: bytes | None) -> None:
    with client(server, headers=server.headers) as web:
        answer = web.get(path) if body is None else web.post(path, content=body)
        assert answer.status_code in (400, 404, 405, 413), (answer.status_code, answer.text)
        assert answer.json()["error"] in ("CallError", "QueryLimitError", "SqlError", "UnknownStateStoreError")
        assert answer.json()["retriable"] is False


def test_limits_on_rows_bodies_keys_and_open_requests(state: Callable[..., Any]) -> None:
    made = state(ks.Stores.persistent_key_value_store("counts"))
    made.write(0, lambda stores: [stores["counts"].put(f"{n:04}", n) for n in range(50)])
    journal = Journal().assign({"0": ("0_0",)}).claim(0, "driver").serve("driver", 1)
    server = Server(made, journal, limits=ServerLimits(rows=20, body=100, per_client=0))
    try:
        with client(server, headers=server.headers) as web:
            answer = web.get("/state/stores/counts/0001")
            assert answer.status_code == 429 and answer.json()["error"] == "QueryLimitError"
            object.__setattr__(server.served.limits, "per_client", 2)
            assert web.get("/state/range/counts?limit=21").status_code == 413
            assert web.post("/state/stores/counts", json={"keys": ["0001"] * 50}).status_code == 413
            assert len(web.get("/state/range/counts?limit=20").json()["rows"]) == 20
        assert server.traffic.open == {}
    finally:
        server.stop()


def test_metrics_and_descriptions_name_routes_and_never_keys(server: Server) -> None:
    with client(server, headers=server.headers) as web:
        web.get("/state/stores/counts/secret-key-of-a-user")
        text = web.get("/metrics").text
        assert 'kstreams_query_requests_total{method="GET",route="/state/stores/{store}/{key:path}",status="200"} 1.0' in text
        assert "secret-key" not in text and server.tokens.view.reveal() not in text
        described = web.get("/openapi.json").json()
        assert described["openapi"] == "3.1.0" and described["security"] == [{"token": []}]
        assert set(described["paths"]) == {route.path.replace(":path", "") for route in ROUTES}
        for page in ("/docs", "/"):
            shown = web.get(page).text
            assert "http://" not in shown and "https://" not in shown and "//cdn" not in shown
        assert "export default" in web.get("/page/panel.js").text and 'from "./panel.js"' in web.get("/page/page.js").text
