"""`QueryableState`: the queries of one application on this host, by both generations of Kafka Streams' interface."""

from __future__ import annotations

import os
from typing import Any

from kstreams_repl.engine.config import StreamsConfig
from kstreams_repl.host.instance.state.state_directory import state_root
from kstreams_repl.serving.local.local_parts import LocalStoreProvider
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.run_query import run_query
from kstreams_repl.serving.local.store_types import QueryableStoreType, StateStoreProvider, StoreQueryParameters
from kstreams_repl.serving.queries.state_query import StateQueryRequest, StateQueryResult
from kstreams_repl.system.durations import Seconds, as_seconds
from kstreams_repl.system.errors import CallError


class QueryableState:
    """Reads the stores of an application that are on this host, at their last commits. Thread-safe; from any process of the host.

    Args:
        local: which stores are here.

    Example:
        >>> state = QueryableState(LocalStores(topology, config))                              # doctest: +SKIP
        >>> state.store("counts", QueryableStoreTypes.key_value_store()).get("UA")             # doctest: +SKIP
        58665
    """

    def __init__(self, local: LocalStores) -> None:
        self.local = local

    def store(self, asked: str | StoreQueryParameters, store_type: QueryableStoreType | None = None) -> Any:
        """Return a store for reading. The handle works again after its tasks have moved.

        Args:
            asked: the store's name, or parameters with its type.
            store_type: with a name: one of `QueryableStoreTypes`, or your own.

        Raises:
            UnknownStateStoreError: there is no such store.
            InvalidStateStoreError: the store is of another type, or cannot be read now; the class says whether asking again helps.
        """
        if isinstance(asked, str):
            if store_type is None:
                raise CallError(
                    f"expected the type of store {asked!r}", hint="for example QueryableStoreTypes.key_value_store()", argument="store_type"
                )
            asked = StoreQueryParameters(asked, store_type)
        provider = self._provider(asked)
        provider.parts(asked.store_name, asked.queryable_store_type)  # refuses now what it would refuse at the first read
        return asked.queryable_store_type.create(provider, asked.store_name)

    def query(self, request: StateQueryRequest, *, timeout: Seconds = 0.0) -> StateQueryResult:
        """Return the answers to a request, by partition.

        Args:
            request: what is asked.
            timeout: seconds to wait for partitions behind the request's position bound.

        Raises:
            UnknownStateStoreError: there is no such store.
            StreamsNotStartedError: the application was never started on this host.
        """
        return self._run(request, as_seconds(timeout, "timeout"))

    def _provider(self, asked: StoreQueryParameters) -> StateStoreProvider:
        return LocalStoreProvider(self.local, partition=asked.partition, stale=asked.stale_stores)

    def _run(self, request: StateQueryRequest, seconds: float) -> StateQueryResult:
        return run_query(self.local, request, timeout=seconds)

    @property
    def notes(self) -> list[str]:
        """What is not known of the stores, such as serdes without a name: their rows are bytes."""
        return self.local.notes

    def close(self) -> None:
        """Close the files; the next query opens them again."""
        self.local.close()

    def __enter__(self) -> QueryableState:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_state(application_id: str, state_dir: str | os.PathLike[str] | None = None) -> QueryableState:
    """Return the queries of an application's stores on this host, without its topology and without a broker.

    What the stores are called and how they are written comes from the catalogue that each start of the application leaves next to its
    state. A store whose serde has no name that can be looked up is read as bytes; `QueryableState.notes` says so.

    Args:
        application_id: the application.
        state_dir: its ``state.dir``; None: the default.

    Raises:
        StreamsNotStartedError: it was never started on this host.

    Example:
        >>> with ks.queries.open_state("flights-app", "/var/lib/kstreams") as state:      # doctest: +SKIP
        ...     state.store("counts", ks.queries.QueryableStoreTypes.key_value_store()).get("UA")
        58665
    """
    from kstreams_repl.host.instance.store_catalogue import read_catalogue

    given = {"application.id": application_id} | ({} if state_dir is None else {"state.dir": os.fspath(state_dir)})
    catalogue, settings = read_catalogue(state_root(StreamsConfig(given)), application_id)
    return QueryableState(LocalStores(catalogue, StreamsConfig({**given, **settings})))
