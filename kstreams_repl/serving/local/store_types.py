"""Which kind of store a query expects (`QueryableStoreType`), and which part of it (`StoreQueryParameters`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.serving.local import read_only_stores as stores
from kstreams_repl.serving.local.read_only_stores import StorePart, handle_of
from kstreams_repl.serving.queries.rows import KEY_VALUE, WINDOWS, is_timestamped
from kstreams_repl.system.errors import InvalidStateStoreError

_TIMESTAMPED = frozenset({StoreKind.TIMESTAMPED_KEY_VALUE})


class StateStoreProvider:
    """What a `QueryableStoreType` reads."""

    def stores(self, name: str, store_type: QueryableStoreType) -> Sequence[Any]:
        """Return the store's parts, one for each partition on this host, each with the reads of its kind of store.

        Raises:
            InvalidStateStoreError: the type does not accept the store, or no part of it can be read now.
        """
        return [handle_of(part) for part in self.parts(name, store_type)]

    def parts(self, name: str, store_type: QueryableStoreType) -> Sequence[StorePart]:
        """Return the parts as `stores` does, without reads of their own: they answer a `Read`."""
        raise NotImplementedError


class QueryableStoreType(Protocol):
    """A kind of read-only store; implement it to combine the parts of a store in a way of your own."""

    def accepts(self, store: StoreBuilder) -> bool:
        """Return whether a store is of this kind.

        Args:
            store: its description.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.session_store().accepts(ks.StoreBuilder("counts", ks.StoreKind.KEY_VALUE))
            False
        """

    def create(self, provider: StateStoreProvider, name: str) -> Any:
        """Return what the user reads. It asks the provider for the parts at each read, so that it works again after a move.

        Args:
            provider: of the parts.
            name: the store's name.

        Example:
            >>> import kstreams_repl as ks
            >>> class Sum:
            ...     def accepts(self, store):
            ...         return store.kind == ks.StoreKind.KEY_VALUE
            ...     def create(self, provider, name):
            ...         return sum(value for part in provider.stores(name, self) for key, value in part.all())
        """


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    """A kind of store with a handle of ours."""

    name: str
    kinds: frozenset[StoreKind]
    handle: Callable[..., object]
    stamped: bool = False
    headers: bool = False

    def accepts(self, store: StoreBuilder) -> bool:
        return store.kind in self.kinds and (not self.stamped or is_timestamped(store)) and (not self.headers or bool(store.headers))

    def create(self, provider: StateStoreProvider, name: str) -> object:
        return self.handle(name, lambda: provider.parts(name, self), stamped=self.stamped or self.headers)

    def __repr__(self) -> str:
        return f"QueryableStoreTypes.{self.name}()"


def expect_accepted(store_type: QueryableStoreType, builder: StoreBuilder) -> None:
    """Raise InvalidStateStoreError if a type of queryable store does not accept a store."""
    if not store_type.accepts(builder):
        raise InvalidStateStoreError(
            f"store {builder.name!r} is a {builder.kind} store, which {store_type!r} does not accept; asking again does not help",
            hint="take the type for its kind from QueryableStoreTypes",
            store=builder.name,
        )


class QueryableStoreTypes:
    """The kinds of stores that can be queried.

    Example:
        >>> import kstreams_repl as ks
        >>> ks.queries.QueryableStoreTypes.key_value_store()
        QueryableStoreTypes.key_value_store()
    """

    @staticmethod
    def key_value_store() -> QueryableStoreType:
        """Return the type of key-value stores; those with timestamps show their values only.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.key_value_store().accepts(ks.StoreBuilder("counts", ks.StoreKind.KEY_VALUE))
            True
        """
        return _BuiltIn("key_value_store", KEY_VALUE, stores.ReadOnlyKeyValueStore)

    @staticmethod
    def timestamped_key_value_store() -> QueryableStoreType:
        """Return the type of key-value stores with timestamps.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.timestamped_key_value_store().accepts(ks.StoreBuilder("counts", ks.StoreKind.KEY_VALUE))
            False
        """
        return _BuiltIn("timestamped_key_value_store", _TIMESTAMPED, stores.ReadOnlyKeyValueStore, stamped=True)

    @staticmethod
    def window_store() -> QueryableStoreType:
        """Return the type of window stores; those with timestamps show their values only.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.window_store()
            QueryableStoreTypes.window_store()
        """
        return _BuiltIn("window_store", WINDOWS, stores.ReadOnlyWindowStore)

    @staticmethod
    def timestamped_window_store() -> QueryableStoreType:
        """Return the type of window stores with timestamps.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.timestamped_window_store()
            QueryableStoreTypes.timestamped_window_store()
        """
        return _BuiltIn("timestamped_window_store", WINDOWS, stores.ReadOnlyWindowStore, stamped=True)

    @staticmethod
    def session_store() -> QueryableStoreType:
        """Return the type of session stores.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.session_store()
            QueryableStoreTypes.session_store()
        """
        return _BuiltIn("session_store", frozenset({StoreKind.SESSION}), stores.ReadOnlySessionStore)

    @staticmethod
    def timestamped_key_value_store_with_headers() -> QueryableStoreType:
        """Return the type of key-value stores with headers; the others show them without.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.timestamped_key_value_store_with_headers()
            QueryableStoreTypes.timestamped_key_value_store_with_headers()
        """
        return _BuiltIn("timestamped_key_value_store_with_headers", _TIMESTAMPED, stores.ReadOnlyKeyValueStore, headers=True)

    @staticmethod
    def timestamped_window_store_with_headers() -> QueryableStoreType:
        """Return the type of window stores with headers.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.timestamped_window_store_with_headers()
            QueryableStoreTypes.timestamped_window_store_with_headers()
        """
        return _BuiltIn("timestamped_window_store_with_headers", WINDOWS, stores.ReadOnlyWindowStore, headers=True)

    @staticmethod
    def session_store_with_headers() -> QueryableStoreType:
        """Return the type of session stores with headers.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.session_store_with_headers()
            QueryableStoreTypes.session_store_with_headers()
        """
        return _BuiltIn("session_store_with_headers", frozenset({StoreKind.SESSION}), stores.ReadOnlySessionStore, headers=True)

    @staticmethod
    def versioned_key_value_store() -> QueryableStoreType:
        """Return the type of versioned stores, which Kafka Streams lets `StateQueryRequest` read only.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.QueryableStoreTypes.versioned_key_value_store()
            QueryableStoreTypes.versioned_key_value_store()
        """
        return _BuiltIn("versioned_key_value_store", frozenset({StoreKind.VERSIONED}), stores.ReadOnlyVersionedStore)


@dataclass(frozen=True, slots=True)
class StoreQueryParameters:
    """Which store to read, as what, which part of it, and whether copies that are behind may answer.

    Example:
        >>> from kstreams_repl.queries import QueryableStoreTypes, StoreQueryParameters
        >>> asked = StoreQueryParameters("counts", QueryableStoreTypes.key_value_store(), partition=0, stale_stores=True)
        >>> asked == StoreQueryParameters.from_name_and_type(
        ...     "counts", QueryableStoreTypes.key_value_store()
        ... ).with_partition(0).enable_stale_stores()
        True
    """

    store_name: str
    queryable_store_type: QueryableStoreType
    partition: int | None = None
    stale_stores: bool = False

    @classmethod
    def from_name_and_type(cls, store_name: str, queryable_store_type: QueryableStoreType) -> StoreQueryParameters:
        """Return the parameters for all partitions on this host, active ones only.

        Args:
            store_name: the store's name.
            queryable_store_type: one of `QueryableStoreTypes`, or your own.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StoreQueryParameters.from_name_and_type("counts", ks.queries.QueryableStoreTypes.key_value_store()).stale_stores
            False
        """
        return cls(store_name, queryable_store_type)

    def with_partition(self, partition: int) -> StoreQueryParameters:
        """Return parameters for one partition.

        Args:
            partition: its number.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.queries.StoreQueryParameters("counts", ks.queries.QueryableStoreTypes.key_value_store()).with_partition(1).partition
            1
        """
        return replace(self, partition=partition)

    def enable_stale_stores(self) -> StoreQueryParameters:
        """Return parameters that let standby copies, and tasks that are being restored, answer.

        Example:
            >>> from kstreams_repl.queries import QueryableStoreTypes, StoreQueryParameters
            >>> StoreQueryParameters("counts", QueryableStoreTypes.key_value_store()).enable_stale_stores().stale_stores
            True
        """
        return replace(self, stale_stores=True)
