"""``%topo_query``: what a store has for a key, as of the last commits. A call of `Application.query`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from kernel_ext.magics.arguments import arguments
from kernel_ext.workspace import Workspace
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.pictures.table import Table
from kstreams_repl.repl.session import Application
from kstreams_repl.serving.queries.query_types import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    TimestampedKeyQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from kstreams_repl.serving.queries.state_query import StateQueryRequest
from kstreams_repl.system.types import ValueAndTimestamp, VersionedRecord, Windowed

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_LAST_MS = (1 << 63) - 1


@magics_class
class QueryMagics(Magics):
    """The magic of interactive queries."""

    def __init__(self, shell: InteractiveShell, workspace: Workspace) -> None:
        super().__init__(shell)
        self._workspace = workspace

    @magic_arguments()
    @argument("store", help="a store, or APPLICATION.STORE")
    @argument("key", help="a key: JSON (42, true), else text; text that is JSON in quotes: '\"42\"'")
    @argument("--from", dest="first", type=int, metavar="MS", help="of a window or versioned store: the first time")
    @argument("--to", dest="last", type=int, metavar="MS", help="of a window or versioned store: the last time")
    @argument("--as-of", type=int, metavar="MS", help="of a versioned store: the version at this time")
    @line_magic
    def topo_query(self, line: str) -> Table:
        """`app.query(...)`: what a store has for a key on this host, as of the last commits."""
        given = arguments(self.topo_query, line)
        app, store = self._find(given.store)
        query = query_of(store, parsed_key(given.key), given.first, given.last, given.as_of)
        with app.query(StateQueryRequest.in_store(store.name).with_query(query)) as answers:
            rows = [
                [partition, *row]
                for partition, answer in answers.partition_results.items()
                for row in rows_of(answer.result)
            ]
            at = answers.position.to_json()
        note = f"{app.name}.{store.name} at {at}" if rows else f"{app.name}.{store.name} has nothing for it at {at}"
        names = ("partition", "from", "to", "value", "timestamp")
        used = [at for at, name in enumerate(names) if name in ("partition", "value") or any(row[at] is not None for row in rows)]
        return Table.of([names[at] for at in used], [[row[at] for at in used] for row in rows], note=note)

    def _find(self, name: str) -> tuple[Application, StoreBuilder]:
        session = self._workspace.current
        applications = {} if session is None else dict(session.applications)
        of, dot, rest = name.partition(".")
        if dot and of in applications and rest in applications[of].stores:
            return applications[of], applications[of].topology.store(rest)
        owners = [app for app in applications.values() if name in app.stores]
        if len(owners) == 1:
            return owners[0], owners[0].topology.store(name)
        if owners:
            raise UsageError(f"several applications have a store {name!r}: {', '.join(f'{app.name}.{name}' for app in owners)}")
        stores = ", ".join(f"{app.name}.{store}" for app in applications.values() for store in app.stores)
        raise UsageError(f"no store {name!r}; {f'there are {stores}' if stores else 'no application has a store'}")


def parsed_key(text: str) -> object:
    """Return the key that a line names."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def query_of(store: StoreBuilder, key: object, first: int | None, last: int | None, as_of: int | None) -> Query:
    """Return the query of a key of a store of any kind.

    Raises:
        UsageError: the store has no such times.
    """
    timed = first is not None or last is not None
    if as_of is not None and store.kind is not StoreKind.VERSIONED:
        raise UsageError(f"--as-of expects a versioned store; {store.name} is a {store.kind} store")
    if store.kind is StoreKind.VERSIONED:
        if timed:
            return MultiVersionedKeyQuery.with_key(key).from_time(first).to_time(last)
        query = VersionedKeyQuery.with_key(key)
        return query if as_of is None else query.as_of(as_of)
    if store.kind in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW):
        return WindowKeyQuery.with_key_and_window_start_range(key, first or 0, _LAST_MS if last is None else last)
    if timed:
        raise UsageError(f"--from and --to expect a window or versioned store; {store.name} is a {store.kind} store")
    kinds: dict[StoreKind, Any] = {StoreKind.SESSION: WindowRangeQuery, StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyQuery}
    made: Query = kinds.get(store.kind, KeyQuery).with_key(key)
    return made


def rows_of(result: Any) -> Iterator[tuple[object, object, object, object]]:
    """Iterate over (from, to, value, timestamp) of the answer to such a query."""
    if result is None:
        return
    for row in result if isinstance(result, Iterator) else [result]:
        where, value = row if type(row) is tuple else (None, row)
        begins, ends = (where.start, where.end) if isinstance(where, Windowed) else (where, None)
        if isinstance(value, VersionedRecord):
            yield value.timestamp, value.valid_to, value.value, None
        elif isinstance(value, ValueAndTimestamp):
            yield begins, ends, value.value, value.timestamp
        else:
            yield begins, ends, value, None
