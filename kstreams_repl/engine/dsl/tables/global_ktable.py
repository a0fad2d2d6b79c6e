"""`GlobalKTable`: a table of which every instance has a full copy, for joins by any key."""

from __future__ import annotations

from kstreams_repl.engine.dsl.graph.call_log import BuildLog, Handle
from kstreams_repl.engine.operators.tables.value_getters import StoreGetter, ValueGetter


class GlobalKTable(Handle):
    """Read from all partitions of a topic before processing starts; it can only be joined with and queried."""

    def __init__(self, log: BuildLog, name: str, key_serde: object, value_serde: object, store: str, *, queryable: bool) -> None:
        self._log = log
        self.name = name
        self.key_serde = key_serde
        self.value_serde = value_serde
        self._store = store
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """Return the store's name if one was given.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> airlines = builder.global_table("airlines", store="airlines")
            >>> airlines.queryable_store_name
            'airlines'
        """
        return self._store if self._queryable else None

    def _getter(self) -> ValueGetter:
        return StoreGetter(self._store)

    def __repr__(self) -> str:
        return f"GlobalKTable({self.name})"
