"""Run a `StateQueryRequest`: each query of version 2 becomes a `Read`, which one partition after the other answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kstreams_repl.engine.processor import Record
from kstreams_repl.engine.stores.engine.failures import RawError
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.local.local_parts import ViewPart
from kstreams_repl.serving.local.local_stores import LocalStores
from kstreams_repl.serving.local.read_only_stores import StorePart, handle_of, value_only, with_start, without_timestamp
from kstreams_repl.serving.queries.position import Position, PositionBound
from kstreams_repl.serving.queries.query_types import (
    KeyQuery,
    KeysQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    ResultOrder,
    TimestampedKeyQuery,
    TimestampedKeyWithHeadersQuery,
    TimestampedRangeQuery,
    TimestampedRangeWithHeadersQuery,
    TimestampedWindowKeyWithHeadersQuery,
    TimestampedWindowRangeWithHeadersQuery,
    VersionedKeyQuery,
    VersionedRangeQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from kstreams_repl.serving.queries.read import BEHIND, Read
from kstreams_repl.serving.queries.row_iterator import Holder, RowIterator
from kstreams_repl.serving.queries.rows import KEY_VALUE, WINDOWS
from kstreams_repl.serving.queries.state_query import FailureReason, QueryResult, StateQueryRequest, StateQueryResult
from kstreams_repl.serving.queries.task_view import migrated
from kstreams_repl.system.errors import (
    CallError,
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    KStreamsError,
    StateStoreNotAvailableError,
    StreamsRebalancingError,
)
from kstreams_repl.system.types import AggregationWithHeaders, ValueTimestampHeaders

_WAIT_SECONDS = 0.002
_STAMPED = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE})
_VERSIONED = frozenset({StoreKind.VERSIONED})
_WINDOWED = WINDOWS | {StoreKind.SESSION}
Attempt = Callable[[int, PositionBound, float], tuple[QueryResult, str]]
"""Asks a partition for an answer with a bound, within seconds; returns it, and what it was read from."""


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

    def attempt(partition: int, bound: PositionBound, seconds: float) -> tuple[QueryResult, str]:
        return _attempt(local, builder, partition, request, bound)

    return answers_of(request, here, attempt, timeout=timeout, pause=_WAIT_SECONDS)


def answers_of(
    request: StateQueryRequest, partitions: Iterable[int], attempt: Attempt, *, timeout: float, pause: float
) -> StateQueryResult:
    """Return the answers of the requested partitions; those behind the bound are asked until the time is over.

    Args:
        partitions: if the request names none.
        pause: seconds between attempts.
    """
    deadline = time.monotonic() + timeout
    bound = PositionBound.unbounded() if request.requires_active else request.position_bound
    results: dict[int, QueryResult] = {}
    try:
        for partition in partitions if request.partitions is None else sorted(request.partitions):
            begun = time.perf_counter_ns()
            while True:
                result, source = attempt(partition, bound, max(0.0, deadline - time.monotonic()))
                if result.failure_reason is not FailureReason.NOT_UP_TO_BOUND or time.monotonic() >= deadline:
                    break
                time.sleep(pause)
            if request.collects_execution_info and result.is_success:
                spent = time.perf_counter_ns() - begun
                note = f"partition {partition}: read by {type(request.query).__name__} {source} in {spent} ns"
                result = QueryResult(result.value, position=result.position, execution_info=(note,))
            results[partition] = result
    except BaseException:
        StateQueryResult(results).close()
        raise
    return StateQueryResult(results)


def _attempt(
    local: LocalStores, builder: StoreBuilder, partition: int, request: StateQueryRequest, bound: PositionBound
) -> tuple[QueryResult, str]:
    try:
        reader, view = local.take(builder.name, partition, stale=not request.requires_active)
    except InvalidStateStorePartitionError as error:
        count = local.partition_count(builder.name)
        outside = count is not None and not 0 <= partition < count
        return QueryResult.for_failure(FailureReason.DOES_NOT_EXIST if outside else FailureReason.NOT_PRESENT, error.message), ""
    except InvalidStateStoreError as error:
        failure = failure_of(error)
        if failure is None:
            raise
        return failure, ""
    position, source = view.position, f"at commit {view.commit_id}"
    if bound.is_reached_by(position, partition):
        part = ViewPart(_Kept(reader.task), view, builder, headers=type(request.query) in WITH_HEADERS)
        return ask(part, request.query, reader, view, lambda: position), source
    reader.give(view)
    why = f"partition {partition} of store {builder.name!r} is at {position.to_json()}, the bound is {bound.position.to_json()}"
    return QueryResult.for_failure(FailureReason.NOT_UP_TO_BOUND, why, position), source


class _Kept:
    """Takes no view back: rows of a query of the user's own share its view, which the answer holds."""

    def __init__(self, task: object) -> None:
        self.task = task

    def give(self, view: object) -> None:
        """Do nothing."""


def ask(part: StorePart, query: object, holder: Holder, view: object, position: Callable[[], Position]) -> QueryResult:
    """Return what a part answers to a query, with the position after it; give the view back to its holder unless rows need it.

    Raises:
        CallError: the query has an invalid bound.
        KStreamsError: a query server refuses the request itself.
    """
    rows: Iterator[object] | None = None
    try:
        kinds, read_of, show = READS.get(type(query), (frozenset(), None, None))
        if read_of is None and isinstance(query, Query):
            value = query.run(handle_of(part))
            rows = value if isinstance(value, Iterator) else None
        else:
            with_headers = type(query) in WITH_HEADERS
            read = read_of(part.builder, query) if read_of is not None and part.builder.kind in kinds else None
            if read is None or (with_headers and not part.builder.headers):
                return _unknown(part.builder, query, None if view is None else position())
            held, value = part.open(read)
            rows = None if held is None else held[2]
            if with_headers and rows is None and value is not None:
                value = (read.key, value)
            if read.kind == "many":
                value = {key: without_timestamp(one) for key, one in zip(read.keys, value, strict=True) if one is not None}
        if rows is not None:
            return QueryResult.for_result(RowIterator([(holder, view, rows)], show), position())
        return QueryResult.for_result(value if show is None or value is None else show(value), position())
    except NotImplementedError:
        return _unknown(part.builder, query, None if view is None else position())
    except CallError:
        raise
    except RawError as error:
        return QueryResult.for_failure(FailureReason.NOT_PRESENT, f"{migrated(holder.task).message} ({error})", position())
    except Exception as error:  # as in Kafka Streams: a query of the user's own, or a serde, must not end the others
        if view is None and isinstance(error, KStreamsError):
            failure = failure_of(error)
            if failure is None:
                raise
            return failure
        return QueryResult.for_failure(FailureReason.STORE_EXCEPTION, f"{type(error).__name__}: {error}", position())
    finally:
        if rows is None:
            holder.give(view)


def failure_of(error: KStreamsError) -> QueryResult | None:
    """Return the failure of one partition that an error is; None if it is none."""
    if isinstance(error, StreamsRebalancingError):
        return QueryResult.for_failure(FailureReason.NOT_ACTIVE, error.message)
    if isinstance(error, StateStoreNotAvailableError) and error.status == BEHIND:
        position = None if error.position is None else Position.from_json(error.position)
        return QueryResult.for_failure(FailureReason.NOT_UP_TO_BOUND, error.message, position)
    if isinstance(error, InvalidStateStorePartitionError) or (isinstance(error, InvalidStateStoreError) and error.retriable):
        return QueryResult.for_failure(FailureReason.NOT_PRESENT, error.message)
    return None


def refused_for_global_store() -> StateQueryResult:
    """Return the answer of a global store."""
    why = "global stores do not answer queries of this kind, as in Kafka Streams"
    return StateQueryResult(global_result=QueryResult.for_failure(FailureReason.UNKNOWN_QUERY_TYPE, why))


def _unknown(builder: StoreBuilder, query: object, position: Position | None) -> QueryResult:
    why = f"store {builder.name!r} is a {builder.kind} store, which does not answer {query!r}"
    return QueryResult.for_failure(FailureReason.UNKNOWN_QUERY_TYPE, why, position)


def _key(builder: StoreBuilder, query: KeyQuery | TimestampedKeyQuery) -> Read:
    return Read("get", builder.name, query.key, True, as_of=getattr(query, "as_of_time", None))


def _range(builder: StoreBuilder, query: RangeQuery | TimestampedRangeQuery) -> Read:
    reverse, as_of = query.order is ResultOrder.DESCENDING, getattr(query, "as_of_time", None)
    return Read("range", builder.name, low=query.lower, high=query.upper, as_of=as_of, reverse=reverse)


def _window(builder: StoreBuilder, query: WindowKeyQuery) -> Read:
    return Read("windows", builder.name, query.key, True, time_from=query.time_from, time_to=query.time_to)


def _window_range(builder: StoreBuilder, query: WindowRangeQuery) -> Read | None:
    timed = query.time_from is not None and query.time_to is not None
    if builder.kind is StoreKind.SESSION:
        return None if timed else Read("sessions", builder.name, query.key, True)
    return Read("windows", builder.name, time_from=query.time_from, time_to=query.time_to) if timed else None


def _versions(builder: StoreBuilder, query: MultiVersionedKeyQuery) -> Read:
    first, last = query.time_from, query.time_to
    if first is not None and last is not None and first > last:
        raise CallError(f"expected from_time <= to_time, got {first} and {last}", hint="exchange them", argument="from_time")
    newest_first = query.order is not ResultOrder.ASCENDING
    return Read("versions", builder.name, query.key, True, time_from=first, time_to=last, reverse=newest_first)


def record_of(row: tuple[Any, ValueTimestampHeaders | AggregationWithHeaders]) -> Record:
    """Return the record of a row with headers; a session's timestamp is its end.

    Raises:
        InvalidRecordError: the timestamp is negative, which a record's cannot be.
    """
    key, kept = row
    if isinstance(kept, AggregationWithHeaders):
        return Record(key, kept.aggregation, key.end, kept.headers)
    return Record(key, kept.value, kept.timestamp, kept.headers)


READS: dict[object, Any] = {
    KeyQuery: (KEY_VALUE, _key, without_timestamp),
    TimestampedKeyQuery: (_STAMPED, _key, None),
    RangeQuery: (KEY_VALUE, _range, without_timestamp),
    TimestampedRangeQuery: (_STAMPED, _range, None),
    WindowKeyQuery: (WINDOWS, _window, with_start),
    WindowRangeQuery: (_WINDOWED, _window_range, None),
    TimestampedKeyWithHeadersQuery: (_STAMPED, _key, record_of),
    TimestampedRangeWithHeadersQuery: (_STAMPED, _range, record_of),
    TimestampedWindowKeyWithHeadersQuery: (WINDOWS, _window, record_of),
    TimestampedWindowRangeWithHeadersQuery: (_WINDOWED, _window_range, record_of),
    VersionedKeyQuery: (_VERSIONED, _key, None),
    MultiVersionedKeyQuery: (_VERSIONED, _versions, value_only),
    VersionedRangeQuery: (_VERSIONED, _range, None),
    KeysQuery: (KEY_VALUE | _VERSIONED, lambda builder, query: Read("many", builder.name, keys=query.keys), None),
}
"""By type of query: the kinds of stores that answer it, the read that it is, and what is applied to each row."""
WITH_HEADERS = frozenset(
    {
        TimestampedKeyWithHeadersQuery,
        TimestampedRangeWithHeadersQuery,
        TimestampedWindowKeyWithHeadersQuery,
        TimestampedWindowRangeWithHeadersQuery,
    }
)
