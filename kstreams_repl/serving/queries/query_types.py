"""The queries of interactive queries v2. They are values: every `with_...` returns a new one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from kstreams_repl.system.errors import NullKeyError


class ResultOrder(StrEnum):
    """The order of rows.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.ResultOrder("any")
        <ResultOrder.ANY: 'any'>
    """

    ANY = "any"
    ASCENDING = "ascending"
    DESCENDING = "descending"


@dataclass(frozen=True)
class Query:
    """A query of one partition of a store. Derive from it for a query of your own: `run` gets the partition's store, for reading."""

    def run(self, store: Any) -> Any:
        """Return the result of a query of your own; rows as an iterator.

        Args:
            store: the partition's store, with the reads of its kind.

        Raises:
            NotImplementedError: the query is none of your own.

        Example:
            >>> import kstreams_repl as ks
            >>> class Sum(ks.queries.Query):
            ...     def run(self, store):
            ...         return sum(value for key, value in store.all())
        """
        raise NotImplementedError


def _key(key: object) -> object:
    if key is None:
        raise NullKeyError("a query's key must not be null", hint="ask for a key")
    return key


@dataclass(frozen=True)
class _OfKey(Query):
    key: Any

    @classmethod
    def with_key(cls, key: object) -> Self:
        """Return the query of one key.

        Args:
            key: not None.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.KeyQuery.with_key("a").key
            'a'
        """
        return cls(_key(key))


@dataclass(frozen=True)
class _OfLatest(_OfKey):
    cache_skipped: bool = False

    def skip_cache(self) -> Self:
        """Return the query that does not read a cache. Queries read commits, which no cache holds, so the result is the same.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.KeyQuery.with_key("a").skip_cache().cache_skipped
            True
        """
        return replace(self, cache_skipped=True)


@dataclass(frozen=True)
class KeyQuery(_OfLatest):
    """The value of a key.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.KeyQuery.with_key("a").skip_cache()
        KeyQuery(key='a', cache_skipped=True)
    """


@dataclass(frozen=True)
class TimestampedKeyQuery(_OfLatest):
    """The value of a key with its timestamp.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.TimestampedKeyQuery.with_key("a")
        TimestampedKeyQuery(key='a', cache_skipped=False)
    """


@dataclass(frozen=True)
class TimestampedKeyWithHeadersQuery(_OfLatest):
    """The `Record` of a key in a store that keeps headers: its value, timestamp and headers (KIP-1356).

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.TimestampedKeyWithHeadersQuery.with_key("a")
        TimestampedKeyWithHeadersQuery(key='a', cache_skipped=False)
    """


@dataclass(frozen=True)
class _OfRange(Query):
    lower: Any = None
    upper: Any = None
    order: ResultOrder = ResultOrder.ANY

    @classmethod
    def with_range(cls, lower: object = None, upper: object = None) -> Self:
        """Return the query of lower <= key <= upper.

        Args:
            lower, upper: the bounds; None leaves that end open.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.RangeQuery.with_range("a", "c").upper
            'c'
        """
        return cls(lower, upper)

    @classmethod
    def with_lower_bound(cls, lower: object) -> Self:
        """Return the query of lower <= key.

        Args:
            lower: the bound.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.RangeQuery.with_lower_bound("a").lower
            'a'
        """
        return cls(lower)

    @classmethod
    def with_upper_bound(cls, upper: object) -> Self:
        """Return the query of key <= upper.

        Args:
            upper: the bound.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.RangeQuery.with_upper_bound("c").upper
            'c'
        """
        return cls(None, upper)

    @classmethod
    def with_no_bounds(cls) -> Self:
        """Return the query of all keys.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.RangeQuery.with_no_bounds().lower is None
            True
        """
        return cls()

    def with_ascending_keys(self) -> Self:
        """Return the query with the smallest serialized key first.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.RangeQuery.with_no_bounds().with_ascending_keys().order
            <ResultOrder.ASCENDING: 'ascending'>
        """
        return replace(self, order=ResultOrder.ASCENDING)

    def with_descending_keys(self) -> Self:
        """Return the query with the largest serialized key first.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.RangeQuery.with_no_bounds().with_descending_keys().order
            <ResultOrder.DESCENDING: 'descending'>
        """
        return replace(self, order=ResultOrder.DESCENDING)


@dataclass(frozen=True)
class RangeQuery(_OfRange):
    """(key, value) of a range of keys.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.RangeQuery.with_lower_bound("a").with_descending_keys()
        RangeQuery(lower='a', upper=None, order=<ResultOrder.DESCENDING: 'descending'>)
    """


@dataclass(frozen=True)
class TimestampedRangeQuery(_OfRange):
    """(key, value with its timestamp) of a range of keys.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.TimestampedRangeQuery.with_range("a", "c").upper
        'c'
    """


@dataclass(frozen=True)
class TimestampedRangeWithHeadersQuery(_OfRange):
    """The `Record` of each key of a range, in a store that keeps headers (KIP-1356).

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.TimestampedRangeWithHeadersQuery.with_range("a", "c").upper
        'c'
    """


@dataclass(frozen=True)
class WindowKeyQuery(Query):
    """(window start, value) of the windows of a key that start in a range.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.WindowKeyQuery.with_key_and_window_start_range("a", 0, 10)
        WindowKeyQuery(key='a', time_from=0, time_to=10)
    """

    key: Any
    time_from: int
    time_to: int

    @classmethod
    def with_key_and_window_start_range(cls, key: object, time_from: int, time_to: int) -> Self:
        """Return the query.

        Args:
            key: not None.
            time_from, time_to: window starts in milliseconds, inclusive.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.WindowKeyQuery.with_key_and_window_start_range("a", 0, 10).time_to
            10
        """
        return cls(_key(key), time_from, time_to)


@dataclass(frozen=True)
class TimestampedWindowKeyWithHeadersQuery(WindowKeyQuery):
    """The `Record` of each window of a key that starts in a range, in a store that keeps headers (KIP-1356). Its key is `Windowed`.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.TimestampedWindowKeyWithHeadersQuery.with_key_and_window_start_range("a", 0, 10).time_to
        10
    """


@dataclass(frozen=True)
class WindowRangeQuery(_OfKey):
    """(windowed key, value): of a window store the windows that start in a range, of a session store the sessions of a key.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.WindowRangeQuery.with_key("a").key
        'a'
    """

    key: Any = None
    time_from: int | None = None
    time_to: int | None = None

    @classmethod
    def with_window_start_range(cls, time_from: int, time_to: int) -> Self:
        """Return the query of the windows of all keys.

        Args:
            time_from, time_to: window starts in milliseconds, inclusive.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.WindowRangeQuery.with_window_start_range(0, 10).time_to
            10
        """
        return cls(None, time_from, time_to)


@dataclass(frozen=True)
class TimestampedWindowRangeWithHeadersQuery(WindowRangeQuery):
    """The `Record` of each window that starts in a range or of each session of a key, in a store that keeps headers (KIP-1356).

    A session's timestamp is its end.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.TimestampedWindowRangeWithHeadersQuery.with_key("a").key
        'a'
    """


@dataclass(frozen=True)
class _AsOf(Query):
    as_of_time: int | None = None

    def as_of(self, time: int) -> Self:
        """Return the query of the version at a time, of each key.

        Args:
            time: in milliseconds.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.VersionedKeyQuery.with_key("a").as_of(10).key
            'a'
        """
        return replace(self, as_of_time=time)


@dataclass(frozen=True)
class VersionedKeyQuery(_AsOf, _OfKey):
    """The version of a key as of a time; the latest if none is given.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.VersionedKeyQuery.with_key("a").as_of(10).as_of_time
        10
    """


@dataclass(frozen=True)
class MultiVersionedKeyQuery(_OfKey):
    """The versions of a key that were valid at some time in a range.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.MultiVersionedKeyQuery.with_key("a").from_time(5).to_time(10).with_ascending_timestamps().time_to
        10
    """

    time_from: int | None = None
    time_to: int | None = None
    order: ResultOrder = ResultOrder.ANY

    def from_time(self, time: int | None) -> MultiVersionedKeyQuery:
        """Return the query from a time on.

        Args:
            time: in milliseconds; None: from the beginning.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.MultiVersionedKeyQuery.with_key("a").from_time(5).time_from
            5
        """
        return replace(self, time_from=time)

    def to_time(self, time: int | None) -> MultiVersionedKeyQuery:
        """Return the query up to a time.

        Args:
            time: in milliseconds; None: to the end.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.MultiVersionedKeyQuery.with_key("a").to_time(5).time_to
            5
        """
        return replace(self, time_to=time)

    def with_ascending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return the query with the oldest version first.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.MultiVersionedKeyQuery.with_key("a").with_ascending_timestamps().order
            <ResultOrder.ASCENDING: 'ascending'>
        """
        return replace(self, order=ResultOrder.ASCENDING)

    def with_descending_timestamps(self) -> MultiVersionedKeyQuery:
        """Return the query with the newest version first.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.MultiVersionedKeyQuery.with_key("a").with_descending_timestamps().order
            <ResultOrder.DESCENDING: 'descending'>
        """
        return replace(self, order=ResultOrder.DESCENDING)


@dataclass(frozen=True)
class VersionedRangeQuery(_AsOf, _OfRange):
    """Beyond Kafka Streams: (key, version) of a range of keys as of a time.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.VersionedRangeQuery.with_range("a", "c").as_of(10).as_of_time
        10
    """


@dataclass(frozen=True)
class KeysQuery(Query):
    """Beyond Kafka Streams: the values of several keys, as a dict without those that have none.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.KeysQuery.with_keys(["a", "b"]).keys
        ('a', 'b')
    """

    keys: tuple[Any, ...]

    @classmethod
    def with_keys(cls, keys: Iterable[object]) -> KeysQuery:
        """Return the query.

        Args:
            keys: hashable, not None.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.KeysQuery.with_keys(["a"]).keys
            ('a',)
        """
        return cls(tuple(map(_key, keys)))
