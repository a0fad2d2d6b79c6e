"""Resolve names in SQL for a session: stores of its applications, topics of its cluster, dataframes of the caller.

An unqualified name is a dataframe given to the call by name, else a store, else a topic, else the ``metrics`` of all applications
(of one: ``"application".metrics``), else a dataframe of the caller's. ``stores.name``, ``topics.name``, ``frames.name`` and
``"application".name`` are the qualified forms. `Application.sql` uses ``"application NAME".name``, because an id may equal one of
these words, or one of DuckDB's catalogs (temp, memory, system).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from kstreams_repl.engine import serdes
from kstreams_repl.engine.topology.nodes import ProcessorNode
from kstreams_repl.engine.topology.store_builder import StoreBuilder
from kstreams_repl.engine.topology.topology import Topology
from kstreams_repl.pictures.wording import counted
from kstreams_repl.repl.inspection import Limits, SqlResult, TableData, TopicScan, store_table
from kstreams_repl.repl.inspection.stores import keys_needed
from kstreams_repl.repl.session.application.core import ApplicationCore
from kstreams_repl.repl.session.cluster_client import ClusterClient
from kstreams_repl.repl.session.topics.records import Records
from kstreams_repl.repl.session.views.counts.metrics_view import metrics_table
from kstreams_repl.repl.session.views.counts.record_counts import late_lines
from kstreams_repl.repl.session.views.stores.store_reader import (
    POINT_READS,
    ChangelogsUntil,
    StateRows,
    read_changelogs,
    read_stores,
)
from kstreams_repl.system.errors import SqlError, UnknownTopicError, did_you_mean

METRICS = "metrics"
"""The table of the applications' metrics."""
_FRAME_LIBRARIES = ("pandas", "polars", "pyarrow", "duckdb")


class Past(Protocol):
    """The state of applications as of one moment."""

    def reader(self, app: ApplicationCore, store: StoreBuilder) -> ApplicationCore:
        """Return a copy of an application that reads a store as of then."""

    def end_of(self, topic: str, applications: Iterable[ApplicationCore]) -> tuple[Mapping[int, int] | None, int | None]:
        """Return where a topic ended then: by partition, as an application has read it, or else by time (ms)."""


class SessionTables:
    """The tables of one query (`inspection.TableCatalog`).

    Args:
        given: dataframes passed to the call; they take precedence over all else.
        around: names of the caller; dataframes among them come last.
        changelogs: read stores from their changelogs; None: from their state, if it is on this machine.
        past: gives the state of an application as of the moment that is asked for; None: now.
    """

    def __init__(
        self,
        client: ClusterClient,
        applications: Mapping[str, ApplicationCore],
        given: Mapping[str, object],
        around: Mapping[str, object],
        changelogs: ChangelogsUntil | None = None,
        past: Past | None = None,
    ) -> None:
        self._past = past
        self._client = client
        self._changelogs = changelogs
        self._applications = applications
        self._given = given
        self._around = around
        self._topics: dict[str, int] | None = None
        self._named: dict[str, list[StoreBuilder]] = {}
        self._rows: dict[tuple[str, str], StateRows] = {}

    def table(self, schema: str, name: str, limits: Limits) -> object:
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
        if name == METRICS and schema in ("", *self._applications):
            if self._past is not None:
                raise SqlError("metrics are not kept: there are none as of an earlier moment", hint="leave as_of= out", table=name)
            return metrics_table(
                app.metrics for app in [*self._applications.values()] if schema in ("", app.name)
            )
        return as_frame(self._around.get(name), name) if not schema else None

    def expect(self, tables: Sequence[tuple[str, str]]) -> None:
        """Collect the stores of each application, so that one consistent read returns them all."""
        self._named.clear()
        for schema, name in tables:
            if (not schema and name in self._given) or schema == "frames":
                continue
            store = self._store(schema, name)
            if store is not None:
                self._named.setdefault(store[0].name, []).append(store[1])

    def names(self) -> Iterable[str]:
        stores = [builder.name for app in [*self._applications.values()] for builder in all_stores(app.topology)]
        frames = [name for name, value in self._around.items() if _is_frame(value)]
        return dict.fromkeys([*stores, *self.topics, *self._given, *frames, METRICS])

    @property
    def topics(self) -> dict[str, int]:
        if self._topics is None:
            self._topics = self._client.admin.topics()
        return self._topics

    def store(self, name: str) -> tuple[ApplicationCore, StoreBuilder] | None:
        """Return the store for an unqualified name."""
        return self._store("", name)

    def topic(self, name: str) -> str:
        """Return the topic for a name.

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

    def _store(self, schema: str, name: str) -> tuple[ApplicationCore, StoreBuilder] | None:
        if schema in ("topics", "frames"):
            return None
        found = []
        for app in self._applications.values():
            if schema in ("", "stores", app.name, f"application {app.name}"):
                match = _match(name, {builder.name: builder for builder in all_stores(app.topology)})
                found += [(app, builder) for builder in all_stores(app.topology) if builder.name == match]
        if len(found) > 1:
            names = ", ".join(f'"{app.name}"."{name}"' for app, _ in found)
            raise SqlError(f"several applications have a store {name!r}", hint=f"say which: {names}", table=name)
        return found[0] if found else None

    def _read_store(self, app: ApplicationCore, builder: StoreBuilder, limits: Limits) -> TableData:
        if self._past is not None:
            app = self._past.reader(app, builder)
            builder = app.topology.store(builder.name)
        key = serdes.resolve(builder.key_serde, app.config["default.key.serde"])
        value = serdes.resolve(builder.value_serde, app.config["default.value.serde"])
        named = self._named.get(app.name, [builder])
        by_key = len(named) == 1 and builder.kind in POINT_READS and limits.store_limit is None and self._changelogs is None
        keys = keys_needed(key, limits.bounds) if by_key else None
        rows = self._rows.get((app.name, builder.name))
        if rows is None or keys is not None:
            together = list({other.name: other for other in (*named, builder)}.values())
            if app.as_of:
                together = [app.topology.store(other.name) for other in together]
            admin, limit = self._client.admin, limits.store_limit
            if self._changelogs is None:
                until_ms = app.until_ms if app.as_of else None
                read = read_stores(admin, app.config, app.topology, together, limit=limit, keys=keys, until_ms=until_ms)
            else:
                read = read_changelogs(admin, app.config, together, self._changelogs, limit=limit)
            if app.as_of:
                read = {name: replace(each, as_of=f"as of {app.as_of}") for name, each in read.items()}
            rows = read[builder.name]
            if not rows.looked_up:
                self._rows |= {(app.name, name): rows for name, rows in read.items()}
        table = store_table(builder, rows.parts, key_serde=key, value_serde=value, as_of=rows.as_of, commits=rows.commits)
        if not app.as_of:
            table.notes += tuple(_late_lines(app, builder))
        if rows.looked_up and keys is not None:
            table.narrowed = True
            table.bound = f"store {builder.name}: {counted(len(keys), 'key')} looked up in {counted(len(rows.parts), 'task')}, {rows.as_of}"
        return table

    def _read_topic(self, topic: str, limits: Limits) -> TopicScan:
        key, value = self._client.serdes_of(topic)
        end, until_ms = None, limits.until_ms
        if self._past is not None:
            end, latest = self._past.end_of(topic, self._applications.values())
            until_ms = min((time for time in (latest, until_ms) if time is not None), default=None)
        return TopicScan(
            self._client.admin,
            topic,
            key_serde=key,
            value_serde=value,
            limit=limits.topic_limit,
            since_ms=limits.since_ms,
            until_ms=until_ms,
            end=end,
            columns=limits.columns,
            bounds=limits.bounds,
            first=limits.first,
            report=self._client.report,
        )


def callers_names(variables: Mapping[str, object]) -> dict[str, object]:
    """Return the names in the nearest frame outside of this package, with a notebook's variables taking precedence.

    From a magic or a panel only the notebook's variables: the names in their functions are not the user's.
    """
    caller = sys._getframe(1)
    while caller.f_back is not None and caller.f_globals.get("__name__", "").startswith("kstreams_repl."):
        caller = caller.f_back
    if str(caller.f_globals.get("__name__", "")).partition(".")[0] in ("kernel_ext", "kstreams_repl", "threading"):
        return dict(variables)
    return {**variables, **caller.f_globals, **caller.f_locals}


def all_stores(topology: Topology) -> list[StoreBuilder]:
    """Return the stores of a topology, global ones included."""
    shared = topology.global_stores()
    return [*topology.stores.values(), *(shared.stores if shared is not None else ())]


def as_frame(value: object, name: str, *, required: bool = False) -> object:
    """Return what DuckDB can register: dataframes and Arrow tables unchanged, our own results as dataframes; None otherwise.

    Raises:
        SqlError: the value is `required` to be a dataframe, and is not.
    """
    if isinstance(value, SqlResult):
        return value.arrow()
    if isinstance(value, Records):
        return value.arrow()
    if _is_frame(value):
        return value
    if required:
        raise SqlError(
            f"{name}= is a {type(value).__name__}, not a dataframe",
            hint="pass a pandas or polars DataFrame or an Arrow table",
            table=name,
        )
    return None


def _is_frame(value: object) -> bool:
    """Return whether `as_frame` takes a value, without reading it: a partial result of ours would warn."""
    kind = type(value)
    return isinstance(value, SqlResult | Records) or (
        kind.__module__.partition(".")[0] in _FRAME_LIBRARIES
        and kind.__name__ in ("DataFrame", "LazyFrame", "Table", "RecordBatch", "RecordBatchReader", "Dataset")
    )


def _late_lines(app: ApplicationCore, builder: StoreBuilder) -> list[str]:
    """Return which records a store lacks because they were late; only a store of windows asks for the counts."""
    nodes = [
        node.name
        for node in getattr(app.topology, "nodes", {}).values()  # a server may have only a catalogue of stores
        if isinstance(node, ProcessorNode) and builder.name in node.stores and getattr(node.operator, "lateness", None) is not None
    ]
    return late_lines(app.counts, nodes) if nodes else []


def _match(name: str, known: Mapping[str, object]) -> str | None:
    """Return the matching known name: the same name, else the only one that differs in case."""
    if name in known:
        return name
    close = [other for other in known if other.lower() == name.lower()]
    return close[0] if len(close) == 1 else None
