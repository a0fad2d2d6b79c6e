"""Routes × kinds of stores × values that nobody should send, on the real ASGI application: no answer is a 500, and each is JSON."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kstreams_repl as ks
from kstreams_repl import serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.server.answers import ARROW
from kstreams_repl.serving.server.local_reads import _KINDS
from kstreams_repl.serving.server.routes import ROUTES, RouteEntry
from tests.daily_share import daily_share
from tests.unit.serving.serving import Journal, Server

LONGEST = 2**63 - 1


def builder(kind: StoreKind, name: str = "", **more: Any) -> StoreBuilder:
    windowed = {"retention_ms": 10_000_000, "window_size_ms": 10}
    needs = {
        StoreKind.LRU: {"max_entries": 100},
        StoreKind.VERSIONED: {"retention_ms": 1_000_000},
        StoreKind.SESSION: {"retention_ms": 10_000_000},
        StoreKind.OUTER_JOIN: {"retention_ms": 10_000_000},
        StoreKind.SUPPRESS_BUFFER: {"retention_ms": 10_000_000},
        StoreKind.JOIN_GRACE_BUFFER: {"retention_ms": 10_000_000},
        StoreKind.WINDOW: windowed,
        StoreKind.TIMESTAMPED_WINDOW: windowed,
        StoreKind.TIME_ORDERED_WINDOW: windowed,
    }
    return StoreBuilder(name or kind.value, kind, **{**needs.get(kind, {}), **more})


STORES = (
    *(builder(kind) for kind in StoreKind),
    *(
        builder(kind, f"{kind}-headers", headers=True)
        for kind in (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION)
    ),
    *(builder(kind, f"{kind}-memory", persistent=False) for kind in (StoreKind.KEY_VALUE, StoreKind.WINDOW, StoreKind.SESSION)),
    builder(StoreKind.WINDOW, "duplicates", retain_duplicates=True),
    *(
        builder(kind, re.sub("[^a-z]+", "-", f"{kind}-{serde.name}"), key_serde=serde)
        for kind in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION, StoreKind.VERSIONED)
        for serde in (
            serdes.long,
            serdes.double,
            serdes.boolean,
            serdes.bytes_,
            serdes.json,
            serdes.uuid,
            serdes.list_of(serdes.short),
            serdes.time_windowed(serdes.string, 10),
            serdes.session_windowed(serdes.long),
            serdes.message_pack,
        )
    ),
)
NAMES = [store.name for store in STORES]

KEYS = [
    "",
    "a",
    "7",
    "-1",
    "1e400",
    "NaN",
    "null",
    "true",
    "[1]",
    '{"a":1}',
    "[" * 500,
    "é\u0000\ud7ff",
    "a/b?c#d%",
    "9" * 30,
    "eA==",
    str(LONGEST + 1),
    "x" * 3000,
]
KEYS_AS_JSON = [
    *(
        "null",
        "true",
        "1",
        "1.5",
        "1e400",
        "-1e400",
        "NaN",
        "[]",
        "{}",
        '"\\ud800"',
        "[" * 500,
        "9" * 5000,
        '{"$bytes":1}',
        '{"$dict":[[[],1]]}',
    ),
    *(
        '{"$dict":[1]}',
        '{"$dict":[[{},1]]}',
        '{"$windowed":["a",1e400,1]}',
        '{"$windowed":[null,1,2]}',
        '{"$windowed":["a",0,10]}',
    ),
    *(
        '{"$windowed":["a",99999999999999999999,1]}',
        '{"$tuple":[[]]}',
        '{"$tuple":3}',
        '{"$float":"nan"}',
        '{"$float":[]}',
        '{"$text":"a"}',
        '{"$x":1}',
    ),
]
NUMBERS = [
    "",
    "0",
    "1",
    "-1",
    "5",
    str(LONGEST),
    str(-LONGEST),
    str(LONGEST + 1),
    "1e400",
    "nan",
    "inf",
    "1.5",
    "٣",
    "1_0",
    " 1",
    "x",
    "9" * 5000,
    "\ud7ff",
]
POSITIONS = [
    *(
        "",
        "{",
        "null",
        "[]",
        "1",
        '{"in":{"0":1e400}}',
        '{"in":{"0":NaN}}',
        '{"in":{"1e400":1}}',
        '{"in":{"0":-1}}',
        '{"in":{"-1":1}}',
        '{"in":1}',
    ),
    *(
        '{"in":{"0":1}}',
        '{"in":{"0":99999999999999999999999}}',
        '{"in":{"99999999999999999999999":0}}',
        '{"in":{"0":null}}',
        '{"in":{"0":true}}',
    ),
    *('{"":{"0":1}}', '{"in":{"0":"1e400"}}', '{"\\ud800":{"0":9}}', "[" * 500, '{"in":{"0":9007199254740993}}', '{"a":{}}'),
]
PAGES = [
    *(
        "",
        "[]",
        "[0,0,null]",
        "[0,5,null]",
        "[1e400,0,null]",
        "[true,true,null]",
        "[0,-1,null]",
        '[0,1,"a"]',
        "[0,1,[1]]",
        '[0,1,{"$x":1}]',
        "[9,0,null]",
    ),
    *(
        f"[0,{LONGEST + 1},null]",
        f"[{LONGEST + 1},0,null]",
        '[0,1,{"$dict":[[[],1]]}]',
        "[0,1,1e400]",
        "NaN",
        "[" * 500,
        '[0,1,{"$windowed":["a",1e400,1]}]',
    ),
]
FLAGS = ["", "true", "false", "1", "0", "yes", "1e400", "é"]
VALUES: dict[str, list[str]] = {
    "limit": NUMBERS,
    "page": PAGES,
    "partition": NUMBERS,
    "key_format": ["", "text", "json", "yaml"],
    "position": POSITIONS,
    "wait": NUMBERS,
    "stale": FLAGS,
    "max_lag": NUMBERS,
    "from": NUMBERS,
    "to": NUMBERS,
    "reverse": FLAGS,
    "headers": FLAGS,
    "as_of": NUMBERS,
    "prefix": KEYS,
    "from_key": KEYS,
    "to_key": KEYS,
    "q": ["", "SELECT", "\ud7ff", ";" * 100],
    "snapshot": FLAGS,
    "names": FLAGS,
    "repartitions": FLAGS,
    "collapsed": ["", "0", "0,1", ",", "x", "-1", "²", "9" * 999, "9" * 2000, "1e400"],
    "unknown": ["1"],
}
BODIES: list[bytes] = [
    b"",
    b"null",
    b"[]",
    b"1",
    b"{",
    b"\xff",
    b"[" * 100_000,
    b'{"keys":null}',
    b'{"keys":[[]]}',
    b'{"keys":[{}]}',
    b'{"keys":[null]}',
    b'{"keys":[1e400]}',
    b'{"keys":["a",1,true,[1],{"$bytes":"eA=="}]}',
    b'{"keys":["a"],"headers":true}',
    b'{"keys":["a"],"headers":1}',
    b'{"keys":["a"],"partition":1e400}',
    b'{"keys":["a"],"partition":99999999999999999999}',
    b'{"keys":["a"],"partition":0,"stale":true}',
    b'{"keys":["a"],"stale":1}',
    b'{"keys":["\\ud800"]}',
    b'{"keys":[{"$dict":[[[],1]]}]}',
    b'{"keys":[{"$windowed":["a",1e400,1]}]}',
    b'{"keys":[{"$windowed":["a",0,10]}]}',
    b'{"keys":[{"$tuple":[1,[]]}]}',
    b'{"keys":[-1,99999999999999999999]}',
    b'{"keys":[' + b"9" * 5000 + b"]}",
]
HEADERS: list[dict[str, bytes]] = [
    {"accept": ARROW.encode()},
    {"accept": b"\xff"},
    {"content-length": b"x"},
    {"content-length": b"-5"},
    {"content-length": b"9" * 30},
    {"transfer-encoding": b"chunked"},
    {"last-event-id": b"x"},
    {"last-event-id": b"0:1e400"},
    {"last-event-id": b"\xff"},
    {"kstreams-hop": b"\xff"},
    {"host": b""},
    {"host": b"["},
    {"host": b"\xff:1"},
    {"origin": b"\xff"},
    {"sec-fetch-site": b"\xff"},
    {"authorization": b""},
    {"authorization": b"\xff"},
    {"authorization": b"Basic \xff"},
    {"authorization": b"Basic !!!"},
    {"authorization": b"KStreams x"},
    {"authorization": b"Bearer " + b"x" * 10_000},
]
"""Each beside the right ones."""


def ask(
    server: Server, method: str, path: str, query: str = "", body: bytes = b"", headers: dict[str, bytes] | None = None
) -> tuple[int, bytes]:
    """Send one request to the application; of an answer without an end take the first part."""
    own = {"host": b"127.0.0.1:1", "authorization": server.headers["Authorization"].encode()}
    if body:
        own["content-length"] = str(len(body)).encode()
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path).encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value) for name, value in {**own, **(headers or {})}.items()],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 1),
    }
    status, content, sent = 0, b"", False

    async def run() -> None:
        nonlocal status, content
        ended = asyncio.Event()

        async def receive() -> Any:
            nonlocal sent
            if not sent:
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status, content
            if message["type"] == "http.response.start":
                status = message["status"]
                ended.set()  # a stream has no other end
            else:
                content += message.get("body", b"")

        try:
            await server.app(scope, receive, send)
        except Exception as error:  # an answer that uvicorn would make, or one that was begun
            status, content = 500, repr(error).encode()

    asyncio.run(run())
    return status, content


@pytest.fixture
def server(state: Callable[..., Any]) -> Iterator[Server]:
    made = state(*STORES)
    made.write(0, fill, offset=11)
    found = Server(made, Journal().assign({"0": ("0_0",)}).claim(0, "driver"))
    yield found
    found.local.close()


def fill(stores: Any) -> None:
    keys = {
        "long": 7,
        "double": 1.5,
        "boolean": True,
        "bytes": b"x",
        "json": {"a": 1},
        "uuid": uuid.UUID(int=1),
        "list(short)": [1],
        "time-windowed(string, 10)": ks.Windowed("a", 0, 10),
        "session-windowed(long)": ks.Windowed(7, 0, 10),
        "message_pack": [1],
    }
    for store in STORES:
        key, opened = keys.get(getattr(store.key_serde, "name", ""), "a"), stores[store.name]
        if store.kind in (StoreKind.KEY_VALUE, StoreKind.LRU):
            opened.put(key, 1)
        elif store.kind is StoreKind.VERSIONED:
            opened.put(key, 1, 5)
        elif store.kind is StoreKind.TIMESTAMPED_KEY_VALUE:
            opened.put(key, ks.types.ValueTimestampHeaders(1, 5, []) if store.headers else (1, 5))
        elif store.kind is StoreKind.WINDOW:
            opened.put(key, 1, 5)
        elif store.kind is StoreKind.TIMESTAMPED_WINDOW:
            opened.put(key, ks.types.ValueTimestampHeaders(1, 5, []) if store.headers else (1, 5), 5)
        elif store.kind is StoreKind.SESSION:
            opened.put(ks.Windowed(key, 0, 9), ks.types.AggregationWithHeaders(1, []) if store.headers else 1)


def path_of(pattern: str, store: str, key: str) -> str:
    return pattern.replace("{store}", store).replace("{key:path}", key).replace("{name}", key)


def step(route: RouteEntry, store: str) -> int:
    """1 where the route reads this kind of store; of other kinds two values are enough."""
    word = (*route.path.split("/"), "", "")[2]
    kinds = {"stores": "get", "instance": "get"}.get(word, word)
    own = next((each.kind for each in STORES if each.name == store), None)
    return 1 if own is None or own in _KINDS.get(kinds, frozenset(StoreKind)) else 40


def requests() -> Iterator[tuple[str, str, str, bytes, dict[str, bytes]]]:
    """Each route with: each kind of store and each key; each value of each parameter; each body; each header."""
    for route in ROUTES:
        keyed = "{key:path}" in route.path or "{name}" in route.path
        for store in [*NAMES, "unknown", "é\u0000", "%"] if "{store}" in route.path else [""]:
            plain = (route.method, path_of(route.path, store, "a"))
            yield (*plain, "", b"", {})
            yield (*plain, "", b"", {"accept": ARROW.encode()})
            for key in KEYS[:: step(route, store)] if keyed else ():
                yield route.method, path_of(route.path, store, key), "", b"", {}
            for key in KEYS_AS_JSON[:: step(route, store)] if keyed else ():
                yield route.method, path_of(route.path, store, key), "key_format=json", b"", {}
            for body in BODIES if route.method == "POST" else ():
                yield (*plain, "", body, {})
            if store in ("", *NAMES[: len(StoreKind)]):
                for name in (*route.parameters, "unknown"):
                    for value in VALUES[name][:: step(route, store)]:
                        if name != "wait" or store == NAMES[0]:
                            yield (*plain, urlencode({name: value}), b"", {})
                    if name in ("from", "to", "from_key", "to_key", "page"):
                        for value in KEYS_AS_JSON[:: step(route, store)]:
                            query = {name: f"[0,1,{value}]" if name == "page" else value, "key_format": "json"}
                            yield (*plain, urlencode(query), b"", {})
        for headers in HEADERS:
            yield route.method, path_of(route.path, NAMES[0], "a"), "", b"", headers
    for method in ("GET", "HEAD", "PUT", "OPTIONS", "\u00e9"):
        for path in ("/", "//", "/x", "/state", "/state/", "/state/stores/a/b/c", "/é\u0000", "/" + "x" * 5000, "*", ""):
            yield method, path, "", b"", {}


def test_no_route_answers_500_and_none_is_without_json(server: Server) -> None:
    answer(server, daily_share(requests(), 5))


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_no_route_of_all_answers_500_and_none_is_without_json(server: Server) -> None:
    answer(server, list(requests()))


def answer(server: Server, asked: list[tuple[str, str, str, bytes, dict[str, bytes]]]) -> None:
    """Ask, and check each answer."""
    wrong: dict[tuple[str, bytes], object] = {}
    assert len(asked) > 1_000
    for method, path, query, body, headers in asked:
        status, content = ask(server, method, path, query, body, headers)
        if status >= 500 and status != 503 or not status:
            wrong.setdefault(
                (path.split("/")[1:3][-1], content[:200]), (status, method, path[:80], query[:80], body[:60], headers)
            )
        elif status >= 400 and method != "HEAD":
            assert {"error", "message", "hint"} <= json.loads(content).keys()
    assert not wrong, "\n".join(map(str, wrong.items()))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_mixture_of_parameters_is_answered_without_500(server: Server, data: st.DataObject) -> None:
    route = data.draw(st.sampled_from([route for route in ROUTES if "{store}" in route.path]))
    key = data.draw(
        st.one_of(
            st.sampled_from([*KEYS, *KEYS_AS_JSON]), st.text(max_size=20, alphabet=st.characters(exclude_categories=["Cs"]))
        )
    )
    names = data.draw(st.lists(st.sampled_from([name for name in (*route.parameters, "unknown") if name != "wait"]), unique=True))
    text = st.text(max_size=20, alphabet=st.characters(exclude_categories=["Cs"]))
    query = {name: data.draw(st.one_of(st.sampled_from(VALUES[name]), text)) for name in names}
    status, content = ask(server, route.method, path_of(route.path, data.draw(st.sampled_from(NAMES)), key), urlencode(query))
    assert status in (200, 503) or 400 <= status < 500, content
