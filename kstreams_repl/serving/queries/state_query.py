"""Interactive queries v2: what is asked (`StateQueryRequest`), and what comes back (`StateQueryResult`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kstreams_repl.serving.queries.position import Position, PositionBound
from kstreams_repl.serving.queries.query_types import Query
from kstreams_repl.serving.queries.row_iterator import RowIterator
from kstreams_repl.system.errors import CallError, InvalidStateStoreError


class FailureReason(StrEnum):
    """Why a partition did not answer.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.FailureReason.NOT_PRESENT.retriable
        True
    """

    UNKNOWN_QUERY_TYPE = "UNKNOWN_QUERY_TYPE"
    NOT_ACTIVE = "NOT_ACTIVE"
    NOT_UP_TO_BOUND = "NOT_UP_TO_BOUND"
    NOT_PRESENT = "NOT_PRESENT"
    DOES_NOT_EXIST = "DOES_NOT_EXIST"
    STORE_EXCEPTION = "STORE_EXCEPTION"

    @property
    def retriable(self) -> bool:
        """Whether asking again, or another host, may help.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.FailureReason.UNKNOWN_QUERY_TYPE.retriable
            False
        """
        return self in (FailureReason.NOT_ACTIVE, FailureReason.NOT_UP_TO_BOUND, FailureReason.NOT_PRESENT)


@dataclass(frozen=True)
class StateQueryRequest:
    """A query of a store.

    Attributes:
        partitions: None: all that are on this host.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.StateQueryRequest.in_store("counts").with_query(ks.queries.KeyQuery.with_key("a")).with_partitions({0}).partitions
        frozenset({0})
    """

    store_name: str
    query: object = None
    partitions: frozenset[int] | None = None
    position_bound: PositionBound = field(default_factory=PositionBound)
    requires_active: bool = False
    collects_execution_info: bool = False

    @classmethod
    def in_store(cls, name: str) -> StateQueryRequest:
        """Return a request without a query.

        Args:
            name: the store's name.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryRequest.in_store("counts").store_name
            'counts'
        """
        return cls(name)

    def with_query(self, query: Query | object) -> StateQueryRequest:
        """Return the request with a query.

        Args:
            query: one of the queries here, or your own.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryRequest.in_store("counts").with_query(ks.queries.KeyQuery.with_key("a")).query.key
            'a'
        """
        return replace(self, query=query)

    def with_partitions(self, partitions: Iterable[int]) -> StateQueryRequest:
        """Return the request for some partitions.

        Args:
            partitions: their numbers.

        Example:
            >>> import kstreams_repl as ks
            >>> sorted(ks.queries.StateQueryRequest.in_store("counts").with_partitions([1, 0]).partitions)
            [0, 1]
        """
        return replace(self, partitions=frozenset(partitions))

    def with_all_partitions(self) -> StateQueryRequest:
        """Return the request for all partitions on this host.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryRequest.in_store("counts").with_all_partitions().partitions is None
            True
        """
        return replace(self, partitions=None)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest:
        """Return the request with what each partition must have reached.

        Args:
            bound: `PositionBound.at(position)`. As in Kafka Streams, it is not used with `require_active`.

        Example:
            >>> import kstreams_repl as ks
            >>> bound = ks.queries.PositionBound.at(ks.queries.Position({"words": {0: 7}}))
            >>> ks.queries.StateQueryRequest.in_store("counts").with_position_bound(bound).position_bound == bound
            True
        """
        return replace(self, position_bound=bound)

    def require_active(self) -> StateQueryRequest:
        """Return the request that only running active tasks may answer.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryRequest.in_store("counts").require_active().requires_active
            True
        """
        return replace(self, requires_active=True)

    def enable_execution_info(self) -> StateQueryRequest:
        """Return the request whose results say how they were found.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryRequest.in_store("counts").enable_execution_info().collects_execution_info
            True
        """
        return replace(self, collects_execution_info=True)


@dataclass(frozen=True)
class QueryResult:
    """The answer of one partition.

    Attributes:
        result: a value, or a `RowIterator`; for a failure read `failure_reason` first.
        position: what the answer reflects; None if the partition did not answer.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.QueryResult.for_failure(ks.queries.FailureReason.NOT_PRESENT, "it is elsewhere").is_failure
        True
    """

    value: Any = None
    failure_reason: FailureReason | None = None
    failure_message: str = ""
    position: Position | None = None
    execution_info: tuple[str, ...] = ()

    @classmethod
    def for_result(cls, value: object, position: Position | None = None) -> QueryResult:
        """Return an answer.

        Args:
            value: the result.
            position: what it reflects.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryResult.for_result(3).result
            3
        """
        return cls(value, position=position)

    @classmethod
    def for_failure(cls, reason: FailureReason, message: str, position: Position | None = None) -> QueryResult:
        """Return a failure.

        Args:
            reason: why.
            message: why, for people.
            position: how far the partition was.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryResult.for_failure(ks.queries.FailureReason.NOT_ACTIVE, "a standby copy").failure_message
            'a standby copy'
        """
        return cls(None, reason, message, position)

    @property
    def is_failure(self) -> bool:
        """Whether it has no result.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryResult.for_result(3).is_failure
            False
        """
        return self.failure_reason is not None

    @property
    def is_success(self) -> bool:
        """Whether it has a result, which may be None.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryResult.for_result(None).is_success
            True
        """
        return self.failure_reason is None

    @property
    def result(self) -> Any:
        """The result.

        Raises InvalidStateStoreError for a failure.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryResult.for_result(3).result
            3
        """
        if self.failure_reason is not None:
            raise InvalidStateStoreError(
                f"the query failed: {self.failure_reason}: {self.failure_message}",
                hint="asking again may help" if self.failure_reason.retriable else "asking again does not help",
                reason=str(self.failure_reason),
                retriable=self.failure_reason.retriable,
            )
        return self.value


@dataclass(frozen=True)
class StateQueryResult:
    """The answers of all partitions. A context manager, which closes the iterators among them.

    Attributes:
        partition_results: by partition.
        global_result: of a global store; None for others.

    Example:
        >>> from kstreams_repl.queries import QueryResult, StateQueryResult
        >>> StateQueryResult({0: QueryResult.for_result(3), 1: QueryResult.for_result(None)}).only_partition_result.result
        3
    """

    partition_results: Mapping[int, QueryResult] = field(default_factory=dict)
    global_result: QueryResult | None = None

    @property
    def only_partition_result(self) -> QueryResult | None:
        """The one answer that is a success with a result that is not None; None if there is none.

        Raises CallError if there are several.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryResult().only_partition_result is None
            True
        """
        found = [result for result in self.partition_results.values() if result.is_success and result.value is not None]
        if len(found) > 1:
            raise CallError(
                f"expected at most one partition with a result, got {len(found)}",
                hint="read partition_results",
                argument="only_partition_result",
            )
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """The merged positions of all answers.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryResult().position
            Position(offsets={})
        """
        merged = Position()
        for result in self.partition_results.values():
            if result.position is not None:
                merged = merged.merge(result.position)
        return merged

    def rows(self) -> Iterator[Any]:
        """Return the rows of all partitions, one partition after the other.

        Raises InvalidStateStoreError if one failed.

        Example:
            >>> import kstreams_repl as ks
            >>> list(ks.queries.StateQueryResult({0: ks.queries.QueryResult.for_result(iter([("a", 1)]))}).rows())
            [('a', 1)]
        """
        for _, result in sorted(self.partition_results.items()):
            yield from result.result

    def close(self) -> None:
        """Close the iterators.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StateQueryResult().close()
        """
        for result in self.partition_results.values():
            if isinstance(result.value, RowIterator):
                result.value.close()

    def __enter__(self) -> StateQueryResult:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
