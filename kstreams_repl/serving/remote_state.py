"""`RemoteState`: the queries of an application by its query servers, wherever its tasks are; `QueryableState` reads those of one host."""

from __future__ import annotations

from typing import Any

from kstreams_repl.serving.queryable_state import asked_for
from kstreams_repl.serving.remote_stores import RemoteStoreProvider, RemoteStores
from kstreams_repl.serving.run_remote_query import run_remote_query
from kstreams_repl.serving.state_query import StateQueryRequest, StateQueryResult
from kstreams_repl.serving.store_types import QueryableStoreType, StoreQueryParameters
from kstreams_repl.system.durations import Seconds, as_seconds


class RemoteState:
    """`QueryableState` by query servers.

    Args:
        stores: the application's.
    """

    def __init__(self, stores: RemoteStores) -> None:
        self._stores = stores

    def store(self, asked: str | StoreQueryParameters, store_type: QueryableStoreType | None = None) -> Any:
        """Return a store for reading.

        Args:
            asked: the store's name, or parameters with its type.
            store_type: with a name.

        Raises:
            UnknownStateStoreError: there is no such store.
            InvalidStateStoreError: the store is of another type, or kept in memory.
            StateStoreNotAvailableError: no server answers.
        """
        asked = asked_for(asked, store_type)
        provider = RemoteStoreProvider(self._stores, partition=asked.partition, stale=asked.stale_stores)
        provider.stores(asked.store_name, asked.queryable_store_type)
        self._stores.partition_count(asked.store_name)  # refuses now what it would refuse at the first read
        return asked.queryable_store_type.create(provider, asked.store_name)

    def query(self, request: StateQueryRequest, *, timeout: Seconds = 0.0) -> StateQueryResult:
        """Return the answers to a request, by partition, of all hosts.

        Args:
            request: what is asked.
            timeout: seconds to wait for partitions behind the request's position bound.

        Raises:
            UnknownStateStoreError: there is no such store.
            StateStoreNotAvailableError: it is kept in memory, or no server answers.
        """
        return run_remote_query(self._stores, request, timeout=as_seconds(timeout, "timeout"))
