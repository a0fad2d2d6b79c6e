"""What is behind a shape of a picture: a store's rows, a topic's last records, a node's rows, last values, source cell and error."""

from __future__ import annotations

import linecache
from collections.abc import Iterable

from kstreams_repl.display.markup import Markup, element, join
from kstreams_repl.display.table import Table
from kstreams_repl.errors import KStreamsError
from kstreams_repl.session import Application, Records
from kstreams_repl.session.records import ReadRecord
from kstreams_repl.topology.nodes import Node

ROWS = 20
SOURCE_LINES = 60


def rows_behind(app: Application, shape: str) -> Markup:
    """Rows that change while one looks: of the store, of a node's stores, of the topic. Empty for a node without a store."""
    kind, _, name = shape.partition(":")
    if kind == "store":
        return _store(app, name)
    if kind == "topic":
        if name.startswith(("/", "(")):
            return element("div", f"{name}: no single topic")
        real = f"{app.name}-{name}" if name in app.topology.internal_topics else name
        return _titled(f"topic {real}: last records", app.session.read(real, ROWS).table().html())
    return join(_store(app, store) for store in getattr(app.topology.node(name), "stores", ()))


def about(app: Application, node: str) -> Markup:
    """What stands still: a node's error and its source."""
    return join([*_error(app, node), *_source(app.topology.node(node), stale=node in app.stale)])


def sampled_values(app: Application, node: str) -> Markup:
    """A node's last values when the topology runs over a sample of its topics: what there is while nothing passes."""
    try:
        found = app.session.peek(node, ROWS, seconds=2.0, topology=app.topology)
        shown = found.html() if isinstance(found, Table) else found.table().html()
    except KStreamsError as error:
        shown = element("pre", str(error))
    return _titled(f"{node}: last values, of a sample of its topics", shown)


def live_values(node: str, records: Iterable[ReadRecord], count: int) -> Markup:
    """The last values that a tap saw, the latest first."""
    shown = Records(reversed(tuple(records)), note=f"{count:,} have passed since it was selected")
    return _titled(f"{node}: values as they pass", shown.table().html())


def _store(app: Application, name: str) -> Markup:
    try:
        return _titled(f"store {name}", app.store(name).rows(rows=ROWS).table(ROWS).html())
    except KStreamsError as error:  # not there yet, say
        return _titled(f"store {name}", element("div", error.message))


def _error(app: Application, name: str) -> list[Markup]:
    error = app.error
    if error is None or error.fields.get("node") != name:
        return []
    return [_titled("error", element("pre", str(error), class_="ks-error", role="alert"))]


def _source(node: Node, *, stale: bool) -> list[Markup]:
    origin = node.origin
    if not origin.file:
        return []
    line = origin.line or 0
    if origin.cell is None:
        return [_titled(f"made in {origin.file}, line {line}", element("pre", linecache.getline(origin.file, line).strip()))]
    lines = linecache.getlines(origin.file)
    first = max(0, min(line - SOURCE_LINES // 2, len(lines) - SOURCE_LINES))
    shown = [
        element("mark", text) if number == line else text
        for number, text in enumerate(lines[first : first + SOURCE_LINES], first + 1)
    ]
    go = element("button", "go to the cell", class_="ks-go", data_cell=origin.cell, type="button")
    title = f"made in line {line} of its cell{', which has changed since' if stale else ''} "
    return [element("div", element("div", element("b", title), go), element("pre", *shown, class_="ks-source"))]


def _titled(title: str, body: Markup) -> Markup:
    return element("div", element("div", element("b", title)), body)
