"""What names in SQL mean in a session: stores of its applications, topics of its cluster, dataframes of the caller.

An unqualified name is a dataframe given to the call by name, else a store, else a topic, else the ``metrics`` of all applications (of one:
``"application".metrics``), else a dataframe of the caller's. ``stores.name``,
``topics.name``, ``frames.name`` and ``"application".name`` say which. What is asked for in the name of an application's object has
``"application NAME".name``: an id may be one of these words, or one of DuckDB's catalogs (temp, memory, system).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstreams_repl import serdes
from kstreams_repl.errors import SqlError, UnknownTopicError, did_you_mean
from kstreams_repl.inspection import Limits, SqlResult, TableData, store_table, topic_table
from kstreams_repl.session.metrics_view import metrics_table
from kstreams_repl.session.records import Records
from kstreams_repl.session.state_rows import StateRows, read_stores
from kstreams_repl.topology.stores import StoreBuilder

if TYPE_CHECKING:
    from kstreams_repl.session.application import Application
    from kstreams_repl.session.session import Session

METRICS = "metrics"
"""The table of what applications measure."""
_FRAME_LIBRARIES = ("pandas", "polars", "pyarrow", "duckdb")


class SessionTables:
    """The tables of one query (`inspection.TableSource`).

    Args:
        given: dataframes passed to the call; they win over everything.
        around: names of the caller, of which dataframes are the last resort.
    """

    def __init__(self, session: Session, given: Mapping[str, Any], around: Mapping[str, Any]) -> None:
        self._session = session
        self._given = given
        self._around = around
        self._topics: dict[str, int] | None = None
        self._together: dict[str, dict[str, StoreBuilder]] = {}
        self._rows: dict[tuple[str, str], StateRows] = {}

    def table(self, schema: str, name: str, limits: Limits) -> TableData | Any | None:
        frame = as_frame(self._given.get(name), name, required=name in self._given) if not schema or schema == "frames" else None
        if frame is not None:
            return frame
        if schema == "frames":
            return as_frame(self._around.get(name), name)
        store = self._store(schema, name)
        if store is not None:
            return self._read_store(*store, limits)
        if schema in ("", "topics"):
            topic = _match(name, self.topics)
            if topic is not None:
                return self._read_topic(topic, limits)
        if name == METRICS and schema in ("", *self._session.applications):
            return metrics_table(
                app.metrics for app in self._session.applications.values() if schema in ("", app.name)
            )
        return as_frame(self._around.get(name), name) if not schema else None

    def expect(self, tables: Sequence[tuple[str, str]]) -> None:
        """Stores of one application are read as of one moment."""
        for schema, name in tables:
            if (not schema and name in self._given) or schema == "frames":
                continue
            store = self._store(schema, name)
            if store is not None:
                self._together.setdefault(store[0].name, {})[store[1].name] = store[1]

    def names(self) -> Iterable[str]:
        stores = [builder.name for app in self._session.applications.values() for builder in all_stores(app)]
        frames = [name for name, value in self._around.items() if as_frame(value, name) is not None]
        return dict.fromkeys([*stores, *self.topics, *self._given, *frames, METRICS])

    @property
    def topics(self) -> dict[str, int]:
        if self._topics is None:
            self._topics = self._session.admin.topics()
        return self._topics

    def store(self, name: str) -> tuple[Application, StoreBuilder] | None:
        """The store that an unqualified name means."""
        return self._store("", name)

    def topic(self, name: str) -> str:
        """The topic that a name means.

        Raises:
            UnknownTopicError: there is none.
        """
        found = _match(name, self.topics)
        if found is None:
            raise UnknownTopicError(
                f"there is no topic or store {name!r}", hint=did_you_mean(name, list(self.names())) or "session.topics() lists them",
                topic=name,
            )  # fmt: skip
        return found

    def _store(self, schema: str, name: str) -> tuple[Application, StoreBuilder] | None:
        if schema in ("topics", "frames"):
            return None
        found = []
        for app in self._session.applications.values():
            if schema in ("", "stores", app.name, f"application {app.name}"):
                match = _match(name, {builder.name: builder for builder in all_stores(app)})
                found += [(app, builder) for builder in all_stores(app) if builder.name == match]
        if len(found) > 1:
            names = ", ".join(f'"{app.name}"."{name}"' for app, _ in found)
            raise SqlError(f"several applications have a store {name!r}", hint=f"say which: {names}", table=name)
        return found[0] if found else None

    def _read_store(self, app: Application, builder: StoreBuilder, limits: Limits) -> TableData:
        if (app.name, builder.name) not in self._rows:
            together = self._together.get(app.name, {}) | {builder.name: builder}
            read = read_stores(self._session.admin, app.config, app.topology, list(together.values()), limit=limits.rows)
            self._rows |= {(app.name, name): rows for name, rows in read.items()}
        rows = self._rows[app.name, builder.name]
        key = serdes.resolve(builder.key_serde, app.config["default.key.serde"])
        value = serdes.resolve(builder.value_serde, app.config["default.value.serde"])
        return store_table(builder, rows.parts, key_serde=key, value_serde=value, as_of=rows.as_of)

    def _read_topic(self, topic: str, limits: Limits) -> TableData:
        key, value = self._session.serdes_of(topic)
        return topic_table(
            self._session.admin,
            topic,
            key_serde=key,
            value_serde=value,
            records=limits.records,
            since_ms=limits.since_ms,
            until_ms=limits.until_ms,
        )


def callers_names(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Names where the nearest frame outside of this package is, and before these a notebook's variables; from a magic or a panel these
    alone: what its functions call their own is none of the user's."""
    caller = sys._getframe(1)
    while caller.f_back is not None and caller.f_globals.get("__name__", "").startswith("kstreams_repl."):
        caller = caller.f_back
    if str(caller.f_globals.get("__name__", "")).partition(".")[0] in ("kernel_ext", "kstreams_repl", "threading"):
        return dict(variables)
    return {**variables, **caller.f_globals, **caller.f_locals}


def all_stores(app: Application) -> list[StoreBuilder]:
    """Stores of an application, global ones included."""
    shared = app.topology.global_stores()
    return [*app.topology.stores.values(), *(shared.stores if shared is not None else ())]


def as_frame(value: Any, name: str, *, required: bool = False) -> Any | None:
    """What DuckDB can register of a value: a dataframe or Arrow table as it is, our own results as dataframes; None for anything else.

    Raises:
        SqlError: it is `required` to be one, and is not.
    """
    if isinstance(value, SqlResult):
        return value.arrow()
    if isinstance(value, Records):
        return value.arrow()
    kind = type(value)
    if kind.__module__.partition(".")[0] in _FRAME_LIBRARIES and kind.__name__ in (
        "DataFrame", "LazyFrame", "Table", "RecordBatch", "RecordBatchReader", "Dataset",
    ):  # fmt: skip
        return value
    if required:
        raise SqlError(
            f"{name}= is a {kind.__name__}, not a dataframe",
            hint="pass a pandas or polars DataFrame or an Arrow table",
            table=name,
        )
    return None


def _match(name: str, known: Mapping[str, Any]) -> str | None:
    """The known name meant: exactly, else the only one that differs in case."""
    if name in known:
        return name
    close = [other for other in known if other.lower() == name.lower()]
    return close[0] if len(close) == 1 else None
