"""Run a `StateQueryRequest` on the query servers of an application: one request for each partition, answered by its owner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from kstreams_repl.engine.topology.stores import StoreBuilder
from kstreams_repl.serving.position import Position, PositionBound
from kstreams_repl.serving.remote_stores import RemotePart, RemoteStores
from kstreams_repl.serving.row_iterator import RowIterator
from kstreams_repl.serving.run_query import answer, refused_for_global_store, unknown_query
from kstreams_repl.serving.server.reads import BEHIND
from kstreams_repl.serving.state_query import FailureReason, QueryResult, StateQueryRequest, StateQueryResult
from kstreams_repl.system.errors import (
    CallError,
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    KStreamsError,
    StateStoreNotAvailableError,
    StreamsRebalancingError,
)

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
    deadline = time.monotonic() + timeout
    results: dict[int, QueryResult] = {}
    for partition in range(count) if request.partitions is None else sorted(request.partitions):
        results[partition] = _answer(stores, builder, partition, count, request, deadline)
    return StateQueryResult(results)


def _answer(
    stores: RemoteStores, builder: StoreBuilder, partition: int, count: int, request: StateQueryRequest, deadline: float
) -> QueryResult:
    if not 0 <= partition < count:
        return QueryResult.for_failure(FailureReason.DOES_NOT_EXIST, f"store {builder.name!r} has partitions 0 to {count - 1}")
    begun = time.perf_counter_ns()
    bound = PositionBound.unbounded() if request.requires_active else request.position_bound
    while True:
        wait = max(0.0, deadline - time.monotonic())
        part = stores.part(
            builder, partition, stale=not request.requires_active, bound=bound.position, wait=wait, seconds=wait + _HOP_SECONDS
        )
        result = _run(part, builder, request.query, bound, partition)
        if result.failure_reason is not FailureReason.NOT_UP_TO_BOUND or time.monotonic() >= deadline:
            break
        time.sleep(_WAIT_SECONDS)
    info = f"partition {partition}: read by {type(request.query).__name__} in {time.perf_counter_ns() - begun} ns, by a query server"
    notes = (info,) if request.collects_execution_info and result.is_success else ()
    return QueryResult(result.value, result.failure_reason, result.failure_message, result.position, notes)


def _run(part: RemotePart, builder: StoreBuilder, query: Any, bound: PositionBound, partition: int) -> QueryResult:
    try:
        found, show = answer(part, builder, query)
        if found is NotImplemented:
            return unknown_query(builder, query)
    except NotImplementedError:
        return unknown_query(builder, query)
    except CallError:
        raise
    except KStreamsError as error:
        return _failure(error)
    except Exception as error:  # as in Kafka Streams: a query of the user's own must not end the others
        return QueryResult.for_failure(FailureReason.STORE_EXCEPTION, f"{type(error).__name__}: {error}")
    if not bound.is_reached_by(part.position, partition):  # a read without a bound of its own
        return QueryResult.for_failure(
            FailureReason.NOT_UP_TO_BOUND, f"{part} is at {part.position.to_json()}, the bound is {bound.position.to_json()}", part.position
        )
    if isinstance(found, Iterator):
        return QueryResult.for_result(RowIterator([(part, None, found)], show), part.position)
    return QueryResult.for_result(found if show is None else show(found), part.position)


def _failure(error: KStreamsError) -> QueryResult:
    """Return the failure that an error of a server is.

    Raises:
        KStreamsError: it is none of a partition.
    """
    if isinstance(error, StreamsRebalancingError):
        return QueryResult.for_failure(FailureReason.NOT_ACTIVE, error.message)
    if isinstance(error, StateStoreNotAvailableError) and error.status == BEHIND:
        at = None if error.position is None else Position.from_json(error.position)
        return QueryResult.for_failure(FailureReason.NOT_UP_TO_BOUND, error.message, at)
    if isinstance(error, InvalidStateStorePartitionError) or (isinstance(error, InvalidStateStoreError) and error.retriable):
        return QueryResult.for_failure(FailureReason.NOT_PRESENT, error.message)
    raise error
