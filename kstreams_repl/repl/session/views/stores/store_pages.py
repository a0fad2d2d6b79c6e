"""A store's rows page by page, filtered by key, as the panel shows them: reads of the query path, each as of the last commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstreams_repl.engine import serdes
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.pictures.table import Table
from kstreams_repl.pictures.wording import counted, time_text
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.views.past import past_of
from kstreams_repl.repl.session.views.stores.local_queries import queries_of
from kstreams_repl.repl.session.views.stores.store_view import StoreView
from kstreams_repl.serving.queries.read import Read
from kstreams_repl.serving.queries.wire import key_of
from kstreams_repl.serving.server.local_reads import LocalReads
from kstreams_repl.system.errors import CallError, InvalidStateStoreError

if TYPE_CHECKING:
    from kstreams_repl.repl.session.views.past.past_state import Past

_TIMES = frozenset({"timestamp", "window_start", "window_end", "valid_to"})
_WITH_TIMES = {
    StoreKind.WINDOW: "windows",
    StoreKind.TIMESTAMPED_WINDOW: "windows",
    StoreKind.TIME_ORDERED_WINDOW: "windows",
    StoreKind.SESSION: "sessions",
}


def filter_label(builder: StoreBuilder, default_key_serde: object) -> str:
    """Return what a filter of this store's rows expects: the beginning of a key where keys are text, else a whole key."""
    whole = builder.kind in _WITH_TIMES or builder.kind is StoreKind.VERSIONED
    return "key" if whole or serdes.resolve(builder.key_serde, default_key_serde).name != "string" else "keys that begin with"


def filtered_read(builder: StoreBuilder, default_key_serde: object, text: str, limit: int) -> Read:
    """Return the read of a store's rows whose key a filter names; all rows for an empty text.

    Raises:
        CallError: the text is not a key of this store.
    """
    kind = _WITH_TIMES.get(builder.kind, "range")
    if not text:
        return Read(kind, builder.name, limit=limit)
    if filter_label(builder, default_key_serde) != "key":
        return Read("prefix", builder.name, prefix=text, serializer=str.encode, limit=limit)
    key = key_of(text, serdes.resolve(builder.key_serde, default_key_serde))
    if kind == "range" and builder.kind is not StoreKind.VERSIONED:
        return Read(kind, builder.name, low=key, high=key, limit=limit)
    return Read("versions" if kind == "range" else kind, builder.name, key, True, limit=limit)


class StorePages:
    """The rows of one store that are on this host.

    Args:
        size: rows of a page.
    """

    def __init__(self, application: ApplicationCore, builder: StoreBuilder, size: int) -> None:
        self._application, self._builder, self._size = application, builder, size
        self._filter = ""
        self._begins: list[tuple[int, int, object] | None] = [None]
        """Where the pages up to the present one begin."""
        self._next: tuple[int, int, object] | None = None
        self._rows: list[Any] = []
        self._times: list[int] | None = None
        """When the earlier commits were that can be chosen (ms); None: none are offered."""
        self._moment: int | None = None
        self._past: Past | None = None

    def turn(self, to: str) -> None:
        """Go to the ``next`` or the ``previous`` page, if there is one."""
        if to == "next" and self._next is not None:
            self._begins.append(self._next)
        elif to == "previous" and len(self._begins) > 1:
            self._begins.pop()
        self._next = None

    def filter(self, text: str) -> None:
        """Show only rows of keys that the text names, from the first page."""
        self._filter, self._begins, self._next = text, [None], None

    def earlier(self, wanted: bool) -> None:
        """Offer the earlier commits of the store's tasks to choose from, or return to now.

        Raises:
            InvalidStateStoreError: the application does not commit exactly once.
        """
        from kstreams_repl.repl.session.views.past.state.state_builder import commit_times

        self._times = commit_times(self._application, self._builder) if wanted else None
        self._show(None)

    def choose(self, index: int) -> None:
        """Show the rows as of the commit with this index among those that are offered; the last one is now."""
        times = self._times or []
        self._show(times[index] if 0 <= index < len(times) else None)

    def row(self, index: int) -> tuple[object, object, int | None]:
        """Return what names a row of the present page: its key, its window if it has one (of a session start and end), and the moment.

        Raises:
            CallError: the page has no such row.
        """
        if not 0 <= index < len(self._rows):
            raise CallError("the page has other rows now", hint="choose the row again")
        row, window = self._rows[index], None
        if "window_start" in row:
            window = row["window_start"] if self._builder.kind is not StoreKind.SESSION else (row["window_start"], row["window_end"])
        return row["key"], window, self._moment

    def _show(self, moment: int | None) -> None:
        self._moment, self._past = moment, past_of(moment)
        self._begins, self._next = [None], None

    def read(self) -> tuple[Table, dict[str, object]]:
        """Return the present page, and the state of the controls for it: empty where the store cannot be read page by page."""
        app, builder = self._application, self._builder
        if self._past is not None:
            app = self._past.reader(app, builder)
            builder = app.topology.store(builder.name)
        default = app.config["default.key.serde"]
        local = queries_of(app).local
        try:
            if local.lease is not None and local.lease.remote:  # most rows are on other hosts
                raise InvalidStateStoreError("", store=builder.name)
            read = filtered_read(builder, default, self._filter, self._size)
            rows, self._next = LocalReads(local).page(read._replace(after=self._begins[-1]))
            text = counted(len(rows), "row")
        except CallError as error:
            rows, self._next, text = [], None, error.message
        except InvalidStateStoreError:  # in memory, on other hosts, or not there yet
            return StoreView(app, builder).rows(store_limit=self._size).table(self._size), {}
        self._rows = rows
        names = list(rows[0]) if rows else ["key", "value"]
        controls = {
            "filter": self._filter,
            "label": filter_label(builder, default),
            "previous": len(self._begins) > 1,
            "next": self._next is not None,
            "text": text if len(self._begins) < 2 else f"page {len(self._begins)}, {text}",
        }
        if app.config.exactly_once:
            controls["earlier"] = self._earlier_now()
        return Table.of(names, [[_shown(name, row[name]) for name in names] for row in rows]), controls

    def _earlier_now(self) -> dict[str, object] | None:
        if self._times is None:
            return None
        last, moment = len(self._times), self._moment
        if moment is None:
            return {"last": last, "at": last, "text": "now"}
        return {"last": last, "at": self._times.index(moment), "text": f"as of {time_text(moment)} UTC"}


def _shown(column: str, value: Any) -> object:
    return time_text(value) if column in _TIMES and value is not None else value
