"""Run a `StateQueryRequest` on the query servers of an application: one request for each partition, answered by its owner."""

from __future__ import annotations

from kstreams_repl.serving.local.run_query import WITH_HEADERS, answers_of, ask, refused_for_global_store
from kstreams_repl.serving.queries.position import PositionBound
from kstreams_repl.serving.queries.state_query import FailureReason, QueryResult, StateQueryRequest, StateQueryResult
from kstreams_repl.serving.remote.remote_stores import RemoteStores

_WAIT_SECONDS = 0.02
_HOP_SECONDS = 5.0


def run_remote_query(stores: RemoteStores, request: StateQueryRequest, *, timeout: float = 0.0) -> StateQueryResult:
    """Return the answers of the requested partitions, on whichever host they are. Close the result.

    Args:
        timeout: seconds to wait for partitions that have not reached the request's position bound; 0: answer NOT_UP_TO_BOUND at once.

    Raises:
        UnknownStateStoreError: there is no such store.
        StateStoreNotAvailableError: the store is kept in memory, or no server answers.
    """
    if request.store_name in stores.local.global_stores:
        return refused_for_global_store()
    builder = stores.builder(request.store_name)
    count = stores.partition_count(builder.name)

    def attempt(partition: int, bound: PositionBound, seconds: float) -> tuple[QueryResult, str]:
        if not 0 <= partition < count:
            why = f"store {builder.name!r} has partitions 0 to {count - 1}"
            return QueryResult.for_failure(FailureReason.DOES_NOT_EXIST, why), ""
        stale = not request.requires_active
        part = stores.part(
            builder, partition, stale=stale, bound=bound.position, wait=seconds, seconds=seconds + _HOP_SECONDS,
            headers=type(request.query) in WITH_HEADERS,
        )  # fmt: skip
        result = ask(part, request.query, part, None, lambda: part.position)
        if result.is_success and not bound.is_reached_by(part.position, partition):  # a read without a bound of its own
            why = f"{part} is at {part.position.to_json()}, the bound is {bound.position.to_json()}"
            return QueryResult.for_failure(FailureReason.NOT_UP_TO_BOUND, why, part.position), ""
        return result, "by a query server"

    return answers_of(request, range(count), attempt, timeout=timeout, pause=_WAIT_SECONDS)
