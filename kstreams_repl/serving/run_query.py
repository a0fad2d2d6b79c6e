"""Run a `StateQueryRequest` on the stores of this host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from kstreams_repl.engine.stores.engine.failures import RawError
from kstreams_repl.engine.topology.stores import StoreBuilder, StoreKind
from kstreams_repl.serving.local_stores import LocalStores
from kstreams_repl.serving.position import PositionBound
from kstreams_repl.serving.query_types import (
    KeyQuery,
    KeysQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    ResultOrder,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    VersionedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from kstreams_repl.serving.read_only_stores import without_timestamp
from kstreams_repl.serving.row_iterator import RowIterator
from kstreams_repl.serving.state_query import FailureReason, QueryResult, StateQueryRequest, StateQueryResult
from kstreams_repl.serving.task_view import TaskReader, TaskView, migrated
from kstreams_repl.system.errors import (
    CallError,
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StreamsRebalancingError,
)

_WAIT_SECONDS = 0.002
_MIN_TIME, _MAX_TIME = -(1 << 63), (1 << 63) - 1
_KEY_VALUE = frozenset({StoreKind.KEY_VALUE, StoreKind.LRU, StoreKind.TIMESTAMPED_KEY_VALUE})
_STAMPED = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE})
_WINDOW = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW})
_VERSIONED = frozenset({StoreKind.VERSIONED})


def run_query(local: LocalStores, request: StateQueryRequest, *, timeout: float = 0.0) -> StateQueryResult:
    """Return the answers of the requested partitions. Close the result: rows hold a commit of each partition until they end.

    Args:
        timeout: seconds to wait for partitions that have not reached the request's position bound; 0: answer NOT_UP_TO_BOUND at once.

    Raises:
        UnknownStateStoreError: there is no such store.
        StreamsNotStartedError: the application was never started on this host.
        StateStoreNotAvailableError: the store is kept in memory.
    """
    builder = local.builder(request.store_name)
    if builder.name in local.global_stores:
        return refused_for_global_store()
    here = local.expect_any(builder.name, stale=True)
    deadline = time.monotonic() + timeout
    results: dict[int, QueryResult] = {}
    try:
        for partition in here if request.partitions is None else sorted(request.partitions):
            results[partition] = _answer(local, builder, partition, request, deadline)
    except BaseException:
        StateQueryResult(results).close()
        raise
    return StateQueryResult(results)


def _answer(local: LocalStores, builder: StoreBuilder, partition: int, request: StateQueryRequest, deadline: float) -> QueryResult:
    begun = time.perf_counter_ns()
    bound = PositionBound.unbounded() if request.requires_active else request.position_bound
    while True:
        try:
            reader, view = local.take(builder.name, partition, stale=not request.requires_active)
        except StreamsRebalancingError as error:
            return QueryResult.for_failure(FailureReason.NOT_ACTIVE, error.message)
        except InvalidStateStorePartitionError as error:
            count = local.partition_count(builder.name)
            outside = count is not None and not 0 <= partition < count
            return QueryResult.for_failure(FailureReason.DOES_NOT_EXIST if outside else FailureReason.NOT_PRESENT, error.message)
        except InvalidStateStoreError as error:
            if not error.retriable:
                raise
            return QueryResult.for_failure(FailureReason.NOT_PRESENT, error.message)
        position = view.position
        if bound.is_reached_by(position, partition):
            info = f"partition {partition}: read by {type(request.query).__name__} at commit {view.commit_id}"
            result = _run(reader, view, builder, request.query)
            notes = (f"{info} in {time.perf_counter_ns() - begun} ns",) if request.collects_execution_info else ()
            return QueryResult(result.value, result.failure_reason, result.failure_message, position, notes)
        reader.give(view)
        if time.monotonic() >= deadline:
            return QueryResult.for_failure(
                FailureReason.NOT_UP_TO_BOUND,
                f"partition {partition} of store {builder.name!r} is at {position.to_json()}, the bound is {bound.position.to_json()}",
                position,
            )
        time.sleep(_WAIT_SECONDS)


def _run(reader: TaskReader, view: TaskView, builder: StoreBuilder, query: Any) -> QueryResult:
    """Run a query on a view, and give the view back unless rows need it."""
    found: Any = None
    try:
        found, show = answer(view.store(builder), builder, query)
        if found is NotImplemented:
            return unknown_query(builder, query)
        if isinstance(found, Iterator):
            return QueryResult.for_result(RowIterator([(reader, view, found)], show))
        return QueryResult.for_result(found if show is None else show(found))
    except NotImplementedError:
        return unknown_query(builder, query)
    except CallError:
        raise
    except RawError as error:
        return QueryResult.for_failure(FailureReason.NOT_PRESENT, migrated(reader.task).message + f" ({error})")
    except Exception as error:  # as in Kafka Streams: a query of the user's own, or a serde, must not end the others
        return QueryResult.for_failure(FailureReason.STORE_EXCEPTION, f"{type(error).__name__}: {error}")
    finally:
        if not isinstance(found, Iterator):
            reader.give(view)


def answer(store: Any, builder: StoreBuilder, query: Any) -> tuple[Any, Callable[[Any], Any] | None]:
    """Return what a store answers, and what is applied to each row; `NotImplemented` if it does not answer the query."""
    kinds, read, show = HANDLERS.get(type(query), (frozenset(), None, None))
    if read is not None and builder.kind in kinds:
        return read(store, query), show
    return (query.run(store) if read is None and isinstance(query, Query) else NotImplemented), None


def refused_for_global_store() -> StateQueryResult:
    """Return the answer of a global store."""
    why = "global stores do not answer queries of this kind, as in Kafka Streams"
    return StateQueryResult(global_result=QueryResult.for_failure(FailureReason.UNKNOWN_QUERY_TYPE, why))


def unknown_query(builder: StoreBuilder, query: Any) -> QueryResult:
    """Return the failure of a query that a kind of store does not answer."""
    why = f"store {builder.name!r} is a {builder.kind} store, which does not answer {query!r}"
    return QueryResult.for_failure(FailureReason.UNKNOWN_QUERY_TYPE, why)


def _range(store: Any, query: Any) -> Any:
    read = store.reverse_range if query.order is ResultOrder.DESCENDING else store.range
    return read(query.lower, query.upper)


def _window_range(store: Any, query: WindowRangeQuery) -> Any:
    if query.time_from is None or query.time_to is None:
        return NotImplemented if hasattr(store, "fetch_all") else store.fetch(query.key)
    return store.fetch_all(query.time_from, query.time_to) if hasattr(store, "fetch_all") else NotImplemented


def _versions(store: Any, query: MultiVersionedKeyQuery) -> Any:
    first = _MIN_TIME if query.time_from is None else query.time_from
    last = _MAX_TIME if query.time_to is None else query.time_to
    if first > last:
        raise CallError(f"expected from_time <= to_time, got {first} and {last}", hint="exchange them", argument="from_time")
    return store.versions(query.key, first, last, query.order is not ResultOrder.ASCENDING)


def _version_range(store: Any, query: VersionedRangeQuery) -> Iterator[Any]:
    return store.range(query.lower, query.upper, query.as_of_time, query.order is ResultOrder.DESCENDING)  # type: ignore[no-any-return]


def _keys(store: Any, query: KeysQuery) -> Any:
    found = store.get_many(query.keys) if hasattr(store, "get_many") else map(store.get, query.keys)  # a server's store: one request
    return {key: without_timestamp(value) for key, value in zip(query.keys, found, strict=True) if value is not None}


HANDLERS: dict[Any, Any] = {
    KeyQuery: (_KEY_VALUE, lambda store, query: store.get(query.key), without_timestamp),
    TimestampedKeyQuery: (_STAMPED, lambda store, query: store.get(query.key), None),
    RangeQuery: (_KEY_VALUE, _range, without_timestamp),
    TimestampedRangeQuery: (_STAMPED, _range, None),
    WindowKeyQuery: (_WINDOW, lambda store, query: store.fetch(query.key, query.time_from, query.time_to), None),
    WindowRangeQuery: (_WINDOW | {StoreKind.SESSION}, _window_range, None),
    VersionedKeyQuery: (_VERSIONED, lambda store, query: store.get(query.key, query.as_of_time), None),
    MultiVersionedKeyQuery: (_VERSIONED, _versions, None),
    VersionedRangeQuery: (_VERSIONED, _version_range, None),
    KeysQuery: (_KEY_VALUE | _VERSIONED, _keys, None),
}
"""By type of query: the kinds of stores that answer it, the read, and what is applied to each row."""
