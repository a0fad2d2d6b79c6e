"""The gate in front of every route: nothing is answered before all of these, in this order.

1. The ``Host`` header names this server (DNS rebinding). 2. A browser's ``Origin`` is this server. 3. The token, or the signature of
another server (`host.query_tokens`). 4. This client has fewer open requests than it may. 5. The body is small enough.
A supervisor's probes (`PROBES`) pass 1 to 3.
The request then has a time limit. `serving` drops connections that send no request, and readers that stall.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kstreams_repl.host.query_tokens import SCHEME, QueryTokens, is_signed, token_of
from kstreams_repl.serving.server.answers import error_answer
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.system.errors import AccessDeniedError, CallError, KStreamsError, QueryLimitError, QueryServerError

_LOG = logging.getLogger("kstreams_repl.serving")

HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (b"content-security-policy", b"default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
     b"connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"),
)  # fmt: skip
HOP = b"kstreams-hop"
"""Header of a request that another server has forwarded: it is not forwarded again."""
PROBES = ("/health/live", "/health/ready")
"""Answered without a token and under any host name: a supervisor knows neither. Their answers name nothing of the application."""


@dataclass(slots=True)
class Traffic:
    """What a server has answered, for ``/metrics``."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """By method, route and status."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Total by route."""
    open: Counter[str] = field(default_factory=Counter)
    """Open requests by client address."""
    streams: Counter[str] = field(default_factory=Counter)
    """Open subscriptions by client address."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Requests and readers that were dropped, by reason."""


class Gate:
    """The ASGI application around the routes.

    Args:
        hosts: host names by which this server may be asked.
    """

    def __init__(self, app: ASGIApp, tokens: QueryTokens, hosts: Collection[str], limits: ServerLimits, traffic: Traffic) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = frozenset(name.lower().strip("[]") for name in hosts)
        self._limits = limits
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        began = time.perf_counter()
        status = 500
        started = False

        async def answer(message: Message) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                self._check_length(message["headers"])
                started, status = True, message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        client = str((scope.get("client") or ("?",))[0])
        counted: Counter[str] | None = None
        try:
            headers = dict(scope["headers"])
            receive = await self._admit(scope, headers, receive)
            stream = scope["path"].startswith("/subscribe/") or scope["path"] == "/page/changes"
            counter, most = (self._traffic.streams, self._limits.subscriptions) if stream else (self._traffic.open, self._limits.per_client)
            if counter[client] >= most:
                raise QueryLimitError(f"this client has {most} open requests", hint="wait for their answers", status=429, limit=most)
            counter[client] += 1
            counted = counter
            async with asyncio.timeout(None if stream else self._limits.seconds):
                await self._app(scope, receive, answer)
        except TimeoutError:
            self._traffic.dropped["time limit"] += 1
            if started:
                raise ConnectionAbortedError("the answer took longer than the time limit") from None
            limit = self._limits.seconds
            await error_answer(QueryLimitError(f"the answer took longer than {limit:.0f} s", hint="ask for less", status=503))(
                scope, receive, answer
            )
        except KStreamsError as error:
            if started:
                raise ConnectionAbortedError(error.message) from error
            response = error_answer(error)
            if isinstance(error, AccessDeniedError) and error.status == 401:
                response.headers["WWW-Authenticate"] = 'Basic realm="kstreams", charset="UTF-8"'
            await response(scope, receive, answer)
        except Exception:
            if started:
                raise
            await defect(scope)(scope, receive, answer)
        finally:
            if counted is not None:
                counted[client] -= 1
                if counted[client] <= 0:
                    del counted[client]
            route = route_of(scope)
            self._traffic.requests[scope["method"] if status != 405 else "other", route, status] += 1
            self._traffic.seconds[route] = self._traffic.seconds.get(route, 0.0) + time.perf_counter() - began

    def _check_length(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Raise if an answer is longer than the limit; streams have no length, and their readers a queue of their own."""
        length = next((value for name, value in headers if name == b"content-length"), b"0")
        if int(length) > self._limits.bytes:
            limit = self._limits.bytes
            raise QueryLimitError(f"the answer has more than {limit} bytes", hint="read page by page, with limit=", limit=limit)

    async def _admit(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Check a request; return how to read its body, and set ``scope["right"]``."""
        if scope["path"] in PROBES and scope["method"] == "GET":
            scope["right"] = "look"
            return _replay(b"", receive)
        host = headers.get(b"host", b"").decode("latin-1")
        if _name_of(host) not in self._hosts:
            raise AccessDeniedError("this server does not have the name in the Host header", hint="use its own address", status=403)
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"{scope['scheme']}://{host.lower()}":
            raise AccessDeniedError("requests of other web pages are refused", status=403)
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise AccessDeniedError("requests of other web pages are refused", status=403)
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        length = headers.get(b"content-length", b"0")
        has_body = length != b"0" or b"transfer-encoding" in headers
        if authorization.startswith(f"{SCHEME} "):
            body = await self._body(receive) if has_body else b""
            target = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0].decode("latin-1")
            query = scope["query_string"].decode("latin-1")
            full = f"{target}?{query}" if query else target
            if not is_signed(self._tokens, authorization, scope["method"], host, full, body):
                raise _denied()
            scope["right"] = "look"
            return _replay(body, receive)
        token = token_of(authorization)
        right = None if token is None else self._tokens.right_of(token)
        if right is None:
            raise _denied()
        scope["right"] = right
        return _replay(await self._body(receive), receive) if has_body else receive

    async def _body(self, receive: Receive) -> bytes:
        """Return the body of a request, which must arrive in the time that its head has."""
        async with asyncio.timeout(self._limits.header_seconds):
            return await _body(receive, self._limits.body)


def defect(scope: Scope) -> Response:
    """Return the answer to a request that failed by an error of ours; write its traceback into the log. Call it in an ``except`` clause."""
    _LOG.exception("a request failed", extra={"route": route_of(scope)})
    return error_answer(QueryServerError("the server has a defect; its log has the traceback", status=500))


def _denied() -> AccessDeniedError:
    return AccessDeniedError(
        "this server expects its token", hint="header Authorization: Bearer TOKEN; app.serve() says where the token is", status=401
    )


def _name_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


async def _body(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise CallError("the body ended early", argument="body")
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise QueryLimitError(f"the body has more than {most} bytes", hint="ask for fewer keys at once", status=413, limit=most)
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


def _replay(body: bytes, rest: Receive) -> Receive:
    """Return a function that gives the body once, and then what the client does: a stream ends when it disconnects."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return await rest()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def route_of(scope: Scope) -> str:
    """Return the route's pattern, never a key: keys belong into no log and no metric."""
    return str(scope.get("kstreams_route", "none"))
