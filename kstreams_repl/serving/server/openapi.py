"""The description of the routes, as OpenAPI 3.1 and as a page that needs no other file. Both are made of `routes.ROUTES`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kstreams_repl.pictures.markup import Markup, clean_text, element, join, style_sheet
from kstreams_repl.system.types import JsonObject

_PARAMETERS = {
    "as_of": ("integer", "Time of a versioned read, epoch ms."),
    "from": ("string", "First key, first time in epoch ms, or the id of the last event."),
    "to": ("string", "Last key, or last time in epoch ms; inclusive."),
    "from_key": ("string", "First key, where `from` is a time."),
    "to_key": ("string", "Last key, where `to` is a time; inclusive."),
    "prefix": ("string", "Beginning of the keys, as text."),
    "reverse": ("boolean", "From the last to the first."),
    "limit": ("integer", "Rows of one page."),
    "page": ("string", "The value `next` of the page before."),
    "partition": ("integer", "Only this partition."),
    "key_format": ("string", "text (by the key serde), or json."),
    "position": ("string", 'A position that the answer must have reached: {"topic": {"0": 17}}.'),
    "wait": ("number", "Seconds to wait for it."),
    "stale": ("boolean", "Whether a standby copy may answer while the owner does not."),
    "max_lag": ("integer", "By how many records it may be behind."),
    "headers": ("boolean", "With the headers of a store that keeps them."),
    "q": ("string", "One SELECT."),
    "snapshot": ("boolean", "Begin with the rows."),
    "names": ("boolean", "Draw generated names in full."),
    "repartitions": ("boolean", "Draw each node of a repartitioning."),
    "collapsed": ("string", "Numbers of sub-topologies to draw as one box: 0,2."),
    "store": ("string", "Name of a store."),
    "key": ("string", "A key: text, a number, bytes in Base64, else JSON."),
    "name": ("string", "Name of a file."),
}
_ERROR = "#/components/schemas/Error"
_CSS = (
    "body{font:14px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}h2{font-size:15px;margin:1.4em 0 .2em}"
    "p,ul{margin:.2em 0}"
)
_IN_PATH = re.compile(r"\{(\w+)(?::path)?\}")


def description(application: str, routes: Sequence[Any]) -> JsonObject:
    """Return the OpenAPI description."""
    paths: JsonObject = {}
    for route in routes:
        path = _plain(route.path)
        given = [_parameter(name, "path") for name in _IN_PATH.findall(route.path)]
        given += [_parameter(name, "query") for name in route.parameters]
        operation: JsonObject = {
            "summary": route.summary,
            "parameters": given,
            "responses": {
                "200": {"description": "The answer.", "content": _content(route.path)},
                "default": {"description": "An error.", "content": {"application/json": {"schema": {"$ref": _ERROR}}}},
            },
        }
        if route.method == "POST":
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
        paths.setdefault(path, {})[route.method.lower()] = operation
    error = {
        "type": "object",
        "required": ["error", "message", "retriable"],
        "properties": {
            "error": {"type": "string"},
            "message": {"type": "string"},
            "hint": {"type": ["string", "null"]},
            "retriable": {"type": "boolean"},
            "fields": {"type": "object"},
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": f"State of {application}", "version": "1"},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"schemas": {"Error": error}, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _parameter(name: str, where: str) -> JsonObject:
    kind, text = _PARAMETERS[name]
    return {"name": name, "in": where, "required": where == "path", "description": text, "schema": {"type": kind}}


def _content(path: str) -> JsonObject:
    if path.startswith("/subscribe") or path == "/page/changes":
        return {"text/event-stream": {}}
    if path in ("/", "/docs"):
        return {"text/html": {}}
    if path == "/metrics":
        return {"text/plain": {}}
    tabular = path == "/sql" or (path.startswith("/state/") and "{store}" in path)
    return {"application/json": {}} | ({"application/vnd.apache.arrow.stream": {}} if tabular else {})


def page(application: str, routes: Sequence[Any]) -> bytes:
    """Return the description as a page."""
    rows = [
        element(
            "section",
            element("h2", element("code", f"{route.method} {_plain(route.path)}")),
            element("p", route.summary),
            element("ul", join([_item(name) for name in (*_IN_PATH.findall(route.path), *route.parameters)])),
        )
        for route in routes
    ]
    title = clean_text(f"State of {application}")
    head = element("head", element("meta", charset="utf-8"), element("title", title), style_sheet(_CSS))
    body = element("body", element("h1", title), element("p", "/openapi.json is the same for programs."), join(rows))
    return b"<!doctype html>" + str(element("html", head, body, lang="en")).encode()


def _plain(path: str) -> str:
    return _IN_PATH.sub(r"{\1}", path)


def _item(name: str) -> Markup:
    return element("li", element("code", name), f": {_PARAMETERS[name][1]}")
