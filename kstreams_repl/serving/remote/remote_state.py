"""`RemoteState`: the queries of an application by its query servers, wherever its tasks are; `QueryableState` reads those of one host."""

from __future__ import annotations

from kstreams_repl.serving.local.queryable_state import QueryableState
from kstreams_repl.serving.local.store_types import StateStoreProvider, StoreQueryParameters
from kstreams_repl.serving.queries.state_query import StateQueryRequest, StateQueryResult
from kstreams_repl.serving.remote.remote_stores import RemoteStoreProvider, RemoteStores
from kstreams_repl.serving.remote.run_remote_query import run_remote_query


class RemoteState(QueryableState):
    """`QueryableState` by query servers; `StateStoreNotAvailableError` says that none answers.

    Args:
        stores: the application's.
    """

    def __init__(self, stores: RemoteStores) -> None:
        super().__init__(stores.local)
        self._stores = stores

    def _provider(self, asked: StoreQueryParameters) -> StateStoreProvider:
        self._stores.partition_count(self._stores.builder(asked.store_name).name)  # refuses now if no server answers
        return RemoteStoreProvider(self._stores, partition=asked.partition, stale=asked.stale_stores)

    def _run(self, request: StateQueryRequest, seconds: float) -> StateQueryResult:
        return run_remote_query(self._stores, request, timeout=seconds)
