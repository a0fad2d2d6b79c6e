"""`Stores`: Kafka Streams' factory of stores, under its names. A supplier and a builder are both a `StoreBuilder` here.

Stores on disk use LMDB where Kafka Streams uses RocksDB; their results and the content of their changelogs are the same.
"""

from __future__ import annotations

from dataclasses import replace

from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind
from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.errors import TopologyError


class Stores:
    """Factory of store descriptions: first the kind of store (a *supplier*), then its serdes (a *builder*).

    Caching is off and logging on, as in Kafka Streams. The same in one step: `StoreBuilder("seen", StoreKind.KEY_VALUE, ...)`.

    Example:
        >>> import kstreams_repl as ks
        >>> supplier = ks.Stores.persistent_key_value_store("seen")
        >>> ks.Stores.key_value_store_builder(supplier, "string", "long").with_caching_enabled().caching
        True
    """

    @staticmethod
    def persistent_key_value_store(name: str) -> StoreBuilder:
        """Return a key-value store on disk.

        Args:
            name: name of the store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_key_value_store("seen")
        """
        return StoreBuilder(name, StoreKind.KEY_VALUE)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> StoreBuilder:
        """Return a key-value store on disk that keeps a timestamp with each value.

        Args:
            name: name of the store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_timestamped_key_value_store("seen")
        """
        return StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE)

    @staticmethod
    def persistent_versioned_key_value_store(name: str, history_retention: Millis) -> StoreBuilder:
        """Return a store on disk that keeps each key's versions of the last `history_retention` (ms, timedelta or "30 s").

        Args:
            name: name of the store.
            history_retention: how long versions are kept (ms, timedelta or "30 s").

        Raises:
            TopologyError: the time is negative.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_versioned_key_value_store("prices", 3_600_000)
        """
        return StoreBuilder(name, StoreKind.VERSIONED, retention_ms=as_millis(history_retention, "history_retention"))

    @staticmethod
    def in_memory_key_value_store(name: str) -> StoreBuilder:
        """Return a key-value store in memory, restored from its changelog at every start.

        Args:
            name: name of the store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.in_memory_key_value_store("seen")
        """
        return StoreBuilder(name, StoreKind.KEY_VALUE, persistent=False)

    @staticmethod
    def lru_map(name: str, max_cache_size: int) -> StoreBuilder:
        """Return a store in memory that keeps the `max_cache_size` most recently used keys.

        Args:
            name: name of the store.
            max_cache_size: number of keys to keep, 1 or more.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.lru_map("recent", 1000)
        """
        return StoreBuilder(name, StoreKind.LRU, persistent=False, max_entries=max_cache_size)

    @staticmethod
    def persistent_window_store(name: str, retention: Millis, window_size: Millis, retain_duplicates: bool = False) -> StoreBuilder:
        """Return a window store on disk.

        Args:
            name: name of the store.
            retention: how long windows are kept (ms, timedelta or "30 s").
            window_size: length of a window (ms, timedelta or "30 s").
            retain_duplicates: whether to keep several values per key and time.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_window_store("visits", 3_600_000, 60_000)
        """
        return _windows(name, StoreKind.WINDOW, retention, window_size, retain_duplicates)

    @staticmethod
    def persistent_timestamped_window_store(
        name: str, retention: Millis, window_size: Millis, retain_duplicates: bool = False
    ) -> StoreBuilder:
        """Return a window store on disk that keeps a timestamp with each value; arguments as for `persistent_window_store`.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_timestamped_window_store("visits", 3_600_000, 60_000)
        """
        return _windows(name, StoreKind.TIMESTAMPED_WINDOW, retention, window_size, retain_duplicates)

    @staticmethod
    def in_memory_window_store(name: str, retention: Millis, window_size: Millis, retain_duplicates: bool = False) -> StoreBuilder:
        """Return a window store in memory; arguments as for `persistent_window_store`.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.in_memory_window_store("visits", 3_600_000, 60_000)
        """
        return replace(_windows(name, StoreKind.WINDOW, retention, window_size, retain_duplicates), persistent=False)

    @staticmethod
    def persistent_session_store(name: str, retention: Millis) -> StoreBuilder:
        """Return a session store on disk that keeps sessions for `retention` (ms, timedelta or "30 s").

        Args:
            name: name of the store.
            retention: how long sessions are kept (ms, timedelta or "30 s").

        Raises:
            TopologyError: the time is negative.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.persistent_session_store("visits", 3_600_000)
        """
        return StoreBuilder(name, StoreKind.SESSION, retention_ms=as_millis(retention, "retention"))

    @staticmethod
    def in_memory_session_store(name: str, retention: Millis) -> StoreBuilder:
        """Return a session store in memory that keeps sessions for `retention` (ms, timedelta or "30 s").

        Args:
            name: name of the store.
            retention: how long sessions are kept (ms, timedelta or "30 s").

        Raises:
            TopologyError: the time is negative.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.in_memory_session_store("visits", 3_600_000)
        """
        return replace(Stores.persistent_session_store(name, retention), persistent=False)

    @staticmethod
    def persistent_timestamped_key_value_store_with_headers(name: str) -> StoreBuilder:
        """Return a key-value store on disk that keeps a timestamp and headers with each value (KIP-1271).

        Args:
            name: name of the store.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.Stores.persistent_timestamped_key_value_store_with_headers("seen").headers
            True
        """
        return StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, headers=True)

    @staticmethod
    def persistent_timestamped_window_store_with_headers(
        name: str, retention: Millis, window_size: Millis, retain_duplicates: bool = False
    ) -> StoreBuilder:
        """Return a window store on disk that keeps a timestamp and headers with each value; arguments as for `persistent_window_store`.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.Stores.persistent_timestamped_window_store_with_headers("visits", 3_600_000, 60_000).headers
            True
        """
        return replace(_windows(name, StoreKind.TIMESTAMPED_WINDOW, retention, window_size, retain_duplicates), headers=True)

    @staticmethod
    def persistent_session_store_with_headers(name: str, retention: Millis) -> StoreBuilder:
        """Return a session store on disk that keeps headers with each aggregate, for `retention` (ms, timedelta or "30 s").

        Args:
            name: name of the store.
            retention: how long sessions are kept (ms, timedelta or "30 s").

        Raises:
            TopologyError: the time is negative.

        Example:
            >>> import kstreams_repl as ks
            >>> ks.Stores.persistent_session_store_with_headers("visits", 3_600_000).headers
            True
        """
        return replace(Stores.persistent_session_store(name, retention), headers=True)

    @staticmethod
    def key_value_store_builder(supplier: StoreBuilder, key_serde: object = None, value_serde: object = None) -> StoreBuilder:
        """Return the builder of a key-value store; serdes of None are the application's defaults.

        Args:
            supplier: a key-value store or an LRU map, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.key_value_store_builder(ks.Stores.in_memory_key_value_store("seen"), "string", "long")
        """
        return _built(supplier, key_serde, value_serde, StoreKind.KEY_VALUE, StoreKind.LRU)

    @staticmethod
    def timestamped_key_value_store_builder(supplier: StoreBuilder, key_serde: object = None, value_serde: object = None) -> StoreBuilder:
        """Return the builder of a key-value store whose values are `ValueAndTimestamp`.

        Args:
            supplier: a key-value store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.timestamped_key_value_store_builder(ks.Stores.persistent_key_value_store("seen"), "string", "long")
        """
        return _built(supplier, key_serde, value_serde, StoreKind.TIMESTAMPED_KEY_VALUE, also=StoreKind.KEY_VALUE)

    @staticmethod
    def versioned_key_value_store_builder(supplier: StoreBuilder, key_serde: object = None, value_serde: object = None) -> StoreBuilder:
        """Return the builder of a versioned store.

        Args:
            supplier: a versioned store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> supplier = ks.Stores.persistent_versioned_key_value_store("prices", 3_600_000)
            >>> store = ks.Stores.versioned_key_value_store_builder(supplier, "string", "double")
        """
        return _built(supplier, key_serde, value_serde, StoreKind.VERSIONED)

    @staticmethod
    def window_store_builder(supplier: StoreBuilder, key_serde: object = None, value_serde: object = None) -> StoreBuilder:
        """Return the builder of a window store.

        Args:
            supplier: a window store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.window_store_builder(ks.Stores.persistent_window_store("visits", 3_600_000, 60_000), "string", "long")
        """
        return _built(supplier, key_serde, value_serde, StoreKind.WINDOW)

    @staticmethod
    def timestamped_window_store_builder(supplier: StoreBuilder, key_serde: object = None, value_serde: object = None) -> StoreBuilder:
        """Return the builder of a window store whose values are `ValueAndTimestamp`.

        Args:
            supplier: a window store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> supplier = ks.Stores.persistent_window_store("visits", 3_600_000, 60_000)
            >>> store = ks.Stores.timestamped_window_store_builder(supplier, "string", "long")
        """
        return _built(supplier, key_serde, value_serde, StoreKind.TIMESTAMPED_WINDOW, also=StoreKind.WINDOW)

    @staticmethod
    def session_store_builder(supplier: StoreBuilder, key_serde: object = None, value_serde: object = None) -> StoreBuilder:
        """Return the builder of a session store.

        Args:
            supplier: a session store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> store = ks.Stores.session_store_builder(ks.Stores.persistent_session_store("visits", 3_600_000), "string", "long")
        """
        return _built(supplier, key_serde, value_serde, StoreKind.SESSION)

    @staticmethod
    def timestamped_key_value_store_with_headers_builder(
        supplier: StoreBuilder, key_serde: object = None, value_serde: object = None
    ) -> StoreBuilder:
        """Return the builder of a key-value store whose values are `ValueTimestampHeaders`.

        Args:
            supplier: a key-value store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> supplier = ks.Stores.persistent_timestamped_key_value_store_with_headers("seen")
            >>> store = ks.Stores.timestamped_key_value_store_with_headers_builder(supplier, "string", "long")
        """
        builder = Stores.timestamped_key_value_store_builder(supplier, key_serde, value_serde)
        return replace(builder, headers=True)

    @staticmethod
    def timestamped_window_store_with_headers_builder(
        supplier: StoreBuilder, key_serde: object = None, value_serde: object = None
    ) -> StoreBuilder:
        """Return the builder of a window store whose values are `ValueTimestampHeaders`.

        Args:
            supplier: a window store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> supplier = ks.Stores.persistent_timestamped_window_store_with_headers("visits", 3_600_000, 60_000)
            >>> store = ks.Stores.timestamped_window_store_with_headers_builder(supplier, "string", "long")
        """
        return replace(Stores.timestamped_window_store_builder(supplier, key_serde, value_serde), headers=True)

    @staticmethod
    def session_store_with_headers_builder(supplier: StoreBuilder, key_serde: object = None, value_serde: object = None) -> StoreBuilder:
        """Return the builder of a session store whose values are `AggregationWithHeaders`.

        Args:
            supplier: a session store, from one of the functions above.
            key_serde, value_serde: a serde or its name; None = the application's defaults.

        Raises:
            TopologyError: the supplier is of another kind of store.

        Example:
            >>> import kstreams_repl as ks
            >>> supplier = ks.Stores.persistent_session_store_with_headers("visits", 3_600_000)
            >>> store = ks.Stores.session_store_with_headers_builder(supplier, "string", "long")
        """
        return replace(Stores.session_store_builder(supplier, key_serde, value_serde), headers=True)


def _windows(name: str, kind: StoreKind, retention: Millis, window_size: Millis, retain_duplicates: bool) -> StoreBuilder:
    return StoreBuilder(
        name, kind, retention_ms=as_millis(retention, "retention"), window_size_ms=as_millis(window_size, "window_size", least=1),
        retain_duplicates=retain_duplicates,
    )


def _built(supplier: object, key_serde: object, value_serde: object, *kinds: StoreKind, also: StoreKind | None = None) -> StoreBuilder:
    """Return a supplier with serdes; one of the kind `also` is converted to the first of `kinds`."""
    if not isinstance(supplier, StoreBuilder) or supplier.kind not in (*kinds, also):
        what = f"a {supplier.kind} store" if isinstance(supplier, StoreBuilder) else repr(supplier)
        raise TopologyError(
            f"expected the supplier of a {' or '.join(kinds)} store, got {what}",
            hint="Stores.persistent_… and Stores.in_memory_… make suppliers",
        )
    kind = kinds[0] if supplier.kind is also else supplier.kind
    return replace(supplier, kind=kind, key_serde=key_serde, value_serde=value_serde)
