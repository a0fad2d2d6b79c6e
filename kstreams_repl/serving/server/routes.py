"""The routes of the query server. Each is listed once, in `ROUTES`: the server, its OpenAPI page and the test of access are made of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from kstreams_repl.engine import serdes
from kstreams_repl.engine.serdes import Serde
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.host.instance.store_catalogue import NOTE
from kstreams_repl.serving.queries.read import Read
from kstreams_repl.serving.queries.wire import keys_from_wire, page_text, position_to_wire, rows_to_wire, to_wire
from kstreams_repl.serving.server.access import HOP, PROBES, Traffic
from kstreams_repl.serving.server.answers import ARROW, arrow_answer, json_answer, rows_answer
from kstreams_repl.serving.server.limits import ServerLimits
from kstreams_repl.serving.server.parsing import parse_read, refuse_unknown, truth
from kstreams_repl.serving.server.routing import Answer, Router
from kstreams_repl.system.errors import CallError, QueryLimitError, UnknownStateStoreError, did_you_mean
from kstreams_repl.system.types import JsonObject

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_KEYS = 100_000


@dataclass(slots=True)
class Served:
    """What the routes answer from.

    Attributes:
        named: the stores that may be queried: those that have a name of their own.
        sql: runs a query over the named stores with the row limit; returns an Arrow table and what it was read from.
        picture: the state of the application's picture in a view (`server.page`).
        subscribe: yields the events of one subscription (`server.subscriptions`).
        health: figures of this process.
    """

    application: str
    place: str
    router: Router
    named: dict[str, StoreBuilder]
    default_key_serde: object
    limits: ServerLimits
    traffic: Traffic
    sql: Callable[[str, int], tuple[pa.Table, list[str]]]
    picture: Callable[[Any], JsonObject]
    subscribe: Callable[..., Any]
    health: Callable[[], JsonObject]
    metrics: Callable[[], str]
    shown: dict[str, bytes] = field(default_factory=dict)
    """Files of the page by name."""

    def builder(self, store: str) -> StoreBuilder:
        """Return a store that may be queried.

        Raises:
            UnknownStateStoreError: there is none of that name.
        """
        found = self.named.get(store)
        if found is None:
            raise UnknownStateStoreError(
                f"there is no store {store[:80]!r} to query", hint=did_you_mean(store, self.named) or f"there are {sorted(self.named)}",
                store=store[:80],
            )  # fmt: skip
        return found

    def key_serde(self, store: str) -> Serde:
        """Return the key serde of a store."""
        return serdes.resolve(self.builder(store).key_serde, self.default_key_serde)


LIVE, READY = PROBES
Handler = Callable[[Served, Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One route."""

    method: str
    path: str
    handler: Handler
    summary: str
    parameters: tuple[str, ...] = ()
    """Names of its query parameters."""


def _reading(kind: str) -> Handler:
    async def read(served: Served, request: Request) -> Response:
        store = request.path_params["store"]
        asked = parse_read(kind, request.path_params, request.query_params, served.key_serde(store), served.limits.rows)
        answer = await served.router.answer(asked, forwarded=_forwarded(request))
        return _answer(asked, answer, request)

    return read


def _forwarded(request: Request) -> bool:
    return any(name == HOP for name, _ in request.scope["headers"])


def _answer(asked: Read, answer: Answer, request: Request) -> Response:
    rows = rows_to_wire(answer.rows)
    more: JsonObject = {
        "position": position_to_wire(answer.position),
        "position_unknown": answer.unknown,
        "partitions": answer.partitions,
        "stale": answer.stale,
        "lag": answer.lag,
        "next": None if answer.next is None else page_text(answer.next),
        "next_page": None if answer.next is None else [answer.next[0], answer.next[1], to_wire(answer.next[2])],
    }
    if asked.kind == "get":
        more |= {"found": bool(rows), "value": rows[0]["value"] if rows else None}
    elif asked.kind == "count":
        more["count"] = sum(row["count"] for row in answer.rows)
    return rows_answer(rows, more, request.headers.get("accept", ""))


async def _many(served: Served, request: Request) -> Response:
    store = request.path_params["store"]
    served.builder(store)
    try:
        content = json.loads(await request.body())
        keys, stale, partition = content["keys"], content.get("stale", False), content.get("partition")
        headers = content.get("headers", False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CallError("the body must be JSON with the keys", hint='{"keys": ["a", "b"]}', argument="body") from error
    flags = isinstance(stale, bool) and isinstance(headers, bool)
    if not isinstance(keys, list) or not flags or not (partition is None or type(partition) is int and partition >= 0):
        raise CallError("keys must be a list, stale and headers true or false, partition a number", argument="keys")
    if len(keys) > _MOST_KEYS:
        raise QueryLimitError(f"at most {_MOST_KEYS} keys at once, got {len(keys)}", limit=_MOST_KEYS)
    asked = Read("many", store, keys=keys_from_wire(keys), partition=partition, stale=stale, headers=headers)
    return _answer(asked, await served.router.answer(asked, forwarded=_forwarded(request)), request)


async def _stores(served: Served, request: Request) -> Response:
    return json_answer({
        "stores": [
            {
                "name": name,
                "kind": str(builder.kind),
                "key": serdes.resolve(builder.key_serde, served.default_key_serde).name,
                "window_size_ms": builder.window_size_ms,
                "retention_ms": builder.retention_ms,
                "partitions": served.router.discovery.partitions_of(name) if name not in served.router.discovery.global_stores else 1,
                "global": name in served.router.discovery.global_stores,
                **({"note": builder.options[NOTE]} if NOTE in builder.options else {}),
            }
            for name, builder in sorted(served.named.items())
        ]
    })  # fmt: skip


async def _instances(served: Served, request: Request) -> Response:
    return json_answer({"instances": [host.plain() for host in served.router.discovery.metadata_for_all_clients()]})


async def _instances_of(served: Served, request: Request) -> Response:
    store = request.path_params["store"]
    served.builder(store)
    return json_answer({"instances": [host.plain() for host in served.router.discovery.streams_metadata_for_store(store)]})


async def _instance_of_key(served: Served, request: Request) -> Response:
    store = request.path_params["store"]
    asked = parse_read("get", request.path_params, request.query_params, served.key_serde(store), served.limits.rows)
    return json_answer(served.router.discovery.query_metadata_for_key(store, asked.key).plain())


async def _metadata(served: Served, request: Request) -> Response:
    discovery = served.router.discovery
    now = discovery.placement
    return json_answer({
        "application": served.application,
        "place": served.place,
        "generation": now.generation,
        "running": now.running,
        "instances": [host.plain() for host in discovery.metadata_for_all_clients()],
        "stores": {
            name: {
                str(partition): discovery.metadata_for_partition(name, partition).plain()
                for partition in range(discovery.partitions_of(name))
            }
            for name in served.named
            if name not in discovery.global_stores
        },
    })  # fmt: skip


async def _health(served: Served, request: Request) -> Response:
    now = served.router.discovery.placement
    content = {
        "application": served.application,
        "place": served.place,
        "generation": now.generation,
        "running": now.running,
        **served.health(),
    }
    return json_answer(content, status=200 if content["running"] else 503)


async def _live(served: Served, request: Request) -> Response:
    live = not served.health()["failed"]
    return json_answer({"live": live}, status=200 if live else 503)


async def _ready(served: Served, request: Request) -> Response:
    waits = served.health()["waits_for"]
    return json_answer({"ready": not waits, "waits_for": waits}, status=503 if waits else 200)


async def _metrics(served: Served, request: Request) -> Response:
    return Response(served.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _sql(served: Served, request: Request) -> Response:
    from starlette.concurrency import run_in_threadpool

    unknown = set(request.query_params) - {"q"}
    query = request.query_params.get("q", "")
    if unknown or not query.strip():
        raise CallError("expected the parameter q with one SELECT", hint="/sql?q=SELECT...", argument="q")
    table, source = await run_in_threadpool(served.sql, query, served.limits.rows)
    more = {"truncated": table.num_rows > served.limits.rows, "read": source}
    table = table.slice(0, served.limits.rows)
    if ARROW in request.headers.get("accept", ""):
        return arrow_answer(table)
    columns = table.column_names
    rows = [[to_wire(value) for value in row] for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
    return json_answer({"columns": columns, "rows": rows, **more})


async def _subscribe(served: Served, request: Request) -> Response:
    from kstreams_repl.serving.server.subscriptions import event_answer

    store = request.path_params["store"]
    served.builder(store)
    refuse_unknown(request.query_params, ("from", "snapshot"))
    start = request.query_params.get("from") or request.headers.get("last-event-id")
    snapshot = truth(request.query_params, "snapshot") if "snapshot" in request.query_params else start is None
    return event_answer(served.subscribe(store, start, snapshot))


async def _page(served: Served, request: Request) -> Response:
    return Response(served.shown["index.html"], media_type="text/html; charset=utf-8")


async def _page_file(served: Served, request: Request) -> Response:
    name = request.path_params["name"]
    content = served.shown.get(name)
    if content is None or name == "index.html":
        raise CallError("there is no such file", argument="name", status=404)
    return Response(content, media_type="text/javascript" if name.endswith(".js") else "text/css")


async def _page_changes(served: Served, request: Request) -> Response:
    from kstreams_repl.serving.server.page import picture_events, view_of

    return picture_events(partial(served.picture, view_of(request.query_params)))


async def _openapi(served: Served, request: Request) -> Response:
    from kstreams_repl.serving.server.openapi import description

    return json_answer(description(served.application, ROUTES))


async def _docs(served: Served, request: Request) -> Response:
    from kstreams_repl.serving.server.openapi import page

    return Response(page(served.application, ROUTES), media_type="text/html; charset=utf-8")


_PAGED = ("limit", "page", "partition", "key_format")
_BOUND = ("position", "wait", "stale", "max_lag")
_ONE = ("as_of", "key_format", "headers", *_BOUND)
_MANY_KEYS = 'The values of many keys: {"keys": [...], "stale": false, "partition": null, "headers": false}.'
_SPAN = ("from", "to", "reverse", *_PAGED, *_BOUND)
_KEYS_SPAN = (*_SPAN, "from_key", "to_key", "headers")
ROUTES: tuple[RouteEntry, ...] = (
    RouteEntry("GET", "/state/instances", _instances, "All hosts, with their stores and partitions."),
    RouteEntry("GET", "/state/instances/{store}", _instances_of, "The hosts that hold a store."),
    RouteEntry("GET", "/state/instance/{store}/{key:path}", _instance_of_key, "The hosts that have the row of a key.", ("key_format",)),
    RouteEntry("GET", "/state/stores", _stores, "The stores that can be queried."),
    RouteEntry("GET", "/state/stores/{store}/{key:path}", _reading("get"), "The value of a key.", _ONE),
    RouteEntry("POST", "/state/stores/{store}", _many, _MANY_KEYS),
    RouteEntry("GET", "/state/range/{store}", _reading("range"), "Keys in a range.", (*_SPAN, "as_of", "headers")),
    RouteEntry("GET", "/state/prefix/{store}", _reading("prefix"), "Keys with a prefix.", ("prefix", "headers", *_PAGED, *_BOUND)),
    RouteEntry("GET", "/state/windows/{store}/{key:path}", _reading("windows"), "Windows of a key.", (*_SPAN, "headers")),
    RouteEntry("GET", "/state/windows/{store}", _reading("windows"), "Windows of all keys.", _KEYS_SPAN),
    RouteEntry("GET", "/state/sessions/{store}/{key:path}", _reading("sessions"), "Sessions of a key.", (*_SPAN, "headers")),
    RouteEntry("GET", "/state/sessions/{store}", _reading("sessions"), "Sessions of all keys.", _KEYS_SPAN),
    RouteEntry("GET", "/state/versions/{store}/{key:path}", _reading("versions"), "Versions of a key.", _SPAN),
    RouteEntry("GET", "/state/count/{store}", _reading("count"), "The approximate number of rows.", ("partition", *_BOUND)),
    RouteEntry("GET", "/sql", _sql, "One SELECT over the stores, as of one consistent cut.", ("q",)),
    RouteEntry("GET", "/subscribe/{store}", _subscribe, "Events: the rows, then each change as it commits.", ("from", "snapshot")),
    RouteEntry("GET", "/metadata", _metadata, "Where each partition of each store is."),
    RouteEntry("GET", "/health", _health, "Whether the application runs; 503 if not."),
    RouteEntry("GET", LIVE, _live, "503 once the application has failed; needs no token."),
    RouteEntry("GET", READY, _ready, "Whether every task runs with its state restored and its lag known; needs no token."),
    RouteEntry("GET", "/metrics", _metrics, "Metrics for Prometheus."),
    RouteEntry("GET", "/openapi.json", _openapi, "This description as OpenAPI 3.1."),
    RouteEntry("GET", "/docs", _docs, "This description as a page."),
    RouteEntry("GET", "/", _page, "The live picture of the application."),
    RouteEntry("GET", "/page/changes", _page_changes, "Server-sent events of the picture.", ("names", "repartitions", "collapsed")),
    RouteEntry("GET", "/page/{name}", _page_file, "Files of the page."),
)  # fmt: skip
"""All routes; the first that matches answers."""
