"""Details of a shape of a picture: a store's rows, a topic's last records, a node's rows, last values and source cell."""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from dataclasses import replace

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.engine.topology.nodes import Node
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.markup import Markup, element, join
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.session import Application, Records
from kstreams_repl.repl.session.source.error_source import location_name
from kstreams_repl.repl.session.topics.records import ReadRecord
from kstreams_repl.repl.session.views.values.sample_run import sampled_values as values_of_sample
from kstreams_repl.system.errors import KStreamsError

ROWS = 20
SOURCE_LINES = 60


def rows_behind(app: Application, shape: str) -> Markup:
    """Return the details that change: rows of the store or topic; for a node, its counts by version and the rows of its stores.

    The name of the shape is left out: the drawer's heading shows it.
    """
    kind, _, name = shape.partition(":")
    if kind == "store":
        return _rows_of(app, name)
    if kind == "topic":
        if name.startswith(("/", "(")):
            return element("div", f"{name}: the topic is chosen per record")
        real = f"{app.name}-{name}" if name in app.topology.internal_topics else name
        read = app._core.client.read(real, ROWS)
        shown = with_debug_calls(app.topology, name, read) if app._core.config.exactly_once else read.table()
        return _titled("last records" if real == name else f"last records of {real}", shown.html())
    stores = (_titled(f"store {store}", _rows_of(app, store)) for store in getattr(app.topology.node(name), "stores", ()))
    return join([_counts(app, name), *stores])


def with_debug_calls(topology: Topology, name: str, records: Records) -> Table:
    """Return the table of records of a topic; where tasks read the topic, each row has the call that debugs it, to copy.

    Args:
        name: of the topic in the topology.
    """
    table = records.table()
    if not any(name in part.source_topics for part in topology.subtopologies() if not part.global_):
        return table
    calls = (f"app.debug('{record.topic}-{record.partition}@{record.offset}')" for record in records)
    rows = tuple((*row, call) for row, call in zip(table.rows, calls, strict=True))
    return replace(table, columns=(*table.columns, "debug"), rows=rows)


def about(app: Application, node: str) -> Markup:
    """Return the details that do not change: a node's source."""
    return join(_source(app.topology.node(node), stale=node in app._core.stale))


def sampled_values(app: Application, node: str) -> Markup:
    """Return a node's last values when the topology runs over a sample of its topics; shown until live values arrive."""
    try:
        client = app._core.client
        found = values_of_sample(client, app.topology, node, ROWS, 2.0, StreamsConfig(client.config))
        shown = replace(found.table(), title="").html()
    except KStreamsError as error:
        shown = element("pre", str(error))
    return _titled("last values, from a sample of its topics", shown)


def live_values(records: Iterable[ReadRecord], count: int) -> Markup:
    """Return the last values that a tap received, latest first."""
    shown = Records(reversed(tuple(records)), note=f"{counted(count, 'value')} since it was selected")
    return _titled("live values", shown.table().html())


def _counts(app: Application, name: str) -> Markup | None:
    """Return a node's counts in total and in the current version; None if they are equal."""
    counts = app.counts
    whole = counts.nodes.get(name)
    mine = None if counts.this_version is None else counts.this_version.nodes.get(name)
    if whole is None or mine is None or mine.records == whole.records:
        return None
    rows = [(f"since version {app.versions[-1].number}", mine.records, mine.given), ("since it was created", whole.records, whole.given)]
    return _titled("records", Table.of(("", "in", "out"), rows).html())


def _rows_of(app: Application, store: str) -> Markup:
    try:
        return app.store(store).rows(store_limit=ROWS).table(ROWS).html()
    except KStreamsError as error:  # for example, the store does not exist yet
        return element("div", error.message)


def _source(node: Node, *, stale: bool) -> list[Markup]:
    origin = node.origin
    if not origin.file:
        return []
    line = origin.line or 0
    if origin.cell is None:
        return [_titled(f"defined in {origin.file}, line {line}", element("pre", linecache.getline(origin.file, line).strip()))]
    lines = linecache.getlines(origin.file)
    first = max(0, min(line - SOURCE_LINES // 2, len(lines) - SOURCE_LINES))
    shown = [
        element("mark", text) if number == line else text
        for number, text in enumerate(lines[first : first + SOURCE_LINES], first + 1)
    ]
    go = element("button", "go to cell", class_="ks-go", data_cell=origin.cell, data_line=line or None, type="button")
    title = f"defined in {location_name(origin.file)}, line {line}{'; its cell has changed' if stale else ''} "
    return [element("div", element("div", element("b", title), go), element("pre", *shown, class_="ks-source"))]


def _titled(title: str, body: Markup) -> Markup:
    return element("div", element("div", element("b", title)), body)
