"""Joins of a table, by key or by a foreign key: `join`, `left_join`, `outer_join`.

`table_joins` and `foreign_key_joins` build them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.options import Materialized, materialized
from kstreams_repl.engine.dsl.streams.stream_base import AbstractTable, check_callable, check_kind
from kstreams_repl.engine.dsl.tables import foreign_key_joins, table_joins
from kstreams_repl.system.durations import Millis
from kstreams_repl.system.errors import TopologyError


class JoinableTable(AbstractTable):
    """The joins of `KTable`."""

    @logged
    def join(
        self,
        other: Self,
        joiner: Callable[..., Any],
        *,
        with_key: bool = False,
        foreign_key: Callable[..., Any] | None = None,
        foreign_key_with_key: bool = False,
        partitioner: Callable[..., Any] | None = None,
        other_partitioner: Callable[..., Any] | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        caching: bool | None = None,
        logging: bool | None = None,
        history: Millis | None = None,
        persistent: bool | None = None,
        topic_config: Mapping[str, str] | None = None,
    ) -> Self:
        """Inner join of rows by key, or by a foreign key: `joiner(value, other value)` returns the result's value.

        Args:
            other: the other table.
            joiner: (value, other value) -> value, or (key, value, other value) -> value with `with_key=True`.
            with_key: whether `joiner` takes the key too.
            foreign_key: (value) -> the other table's key, or (key, value) with `foreign_key_with_key=True`; None joins by key.
            foreign_key_with_key: whether `foreign_key` takes the key too.
            partitioner, other_partitioner: foreign-key joins only: `(topic, key, None, partitions) -> partition` of this and of
                the other table; None = by key.
            store: name of a store for the result; or a `Materialized`.
            name: name of the node; in a foreign-key join the prefix of all its nodes' and topics' names.
            key_serde, value_serde, caching, logging, history, persistent, topic_config: options of the result's store, as in
                `Materialized`; None = its default.

        Raises:
            TopologyError: the other side is not a table, or an argument of foreign-key joins is given without `foreign_key=`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> stock = builder.table("stock", key_serde="string", value_serde="long")
            >>> worth = prices.join(stock, lambda price, pieces: price * pieces)
        """
        options = materialized(
            store, key_serde=key_serde, value_serde=value_serde, caching=caching, logging=logging, history=history,
            persistent=persistent, topic_config=topic_config,
        )
        return self._join(
            "inner", other, joiner, options, name, with_key=with_key, foreign_key=foreign_key, foreign_key_with_key=foreign_key_with_key,
            partitioner=partitioner, other_partitioner=other_partitioner,
        )

    @logged
    def left_join(
        self,
        other: Self,
        joiner: Callable[..., Any],
        *,
        with_key: bool = False,
        foreign_key: Callable[..., Any] | None = None,
        foreign_key_with_key: bool = False,
        partitioner: Callable[..., Any] | None = None,
        other_partitioner: Callable[..., Any] | None = None,
        store: str | Materialized | None = None,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        caching: bool | None = None,
        logging: bool | None = None,
        history: Millis | None = None,
        persistent: bool | None = None,
        topic_config: Mapping[str, str] | None = None,
    ) -> Self:
        """Join as `join` does, with a row for each row of this table; the other value is None if there is no match.

        Args and errors as for `join`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> stock = builder.table("stock", key_serde="string", value_serde="long")
            >>> worth = prices.left_join(stock, lambda price, pieces: price * (pieces or 0))
        """
        options = materialized(
            store, key_serde=key_serde, value_serde=value_serde, caching=caching, logging=logging, history=history,
            persistent=persistent, topic_config=topic_config,
        )
        return self._join(
            "left", other, joiner, options, name, with_key=with_key, foreign_key=foreign_key, foreign_key_with_key=foreign_key_with_key,
            partitioner=partitioner, other_partitioner=other_partitioner,
        )

    @logged
    def outer_join(
        self,
        other: Self,
        joiner: Callable[..., Any],
        *,
        with_key: bool = False,
        store: str | Materialized | None = None,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        caching: bool | None = None,
        logging: bool | None = None,
        history: Millis | None = None,
        persistent: bool | None = None,
        topic_config: Mapping[str, str] | None = None,
    ) -> Self:
        """Join by key as `join` does, with a row for each key of either table; a missing value is None.

        Args and errors as for `join`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> prices = builder.table("prices", key_serde="string", value_serde="double")
            >>> stock = builder.table("stock", key_serde="string", value_serde="long")
            >>> both = prices.outer_join(stock, lambda price, pieces: (price, pieces))
        """
        options = materialized(
            store, key_serde=key_serde, value_serde=value_serde, caching=caching, logging=logging, history=history,
            persistent=persistent, topic_config=topic_config,
        )
        return self._join("outer", other, joiner, options, name, with_key=with_key)

    def _join(
        self,
        how: str,
        other: Self,
        joiner: Callable[..., Any],
        options: Materialized | None,
        name: str | None,
        *,
        with_key: bool,
        foreign_key: Callable[..., Any] | None = None,
        foreign_key_with_key: bool = False,
        partitioner: Callable[..., Any] | None = None,
        other_partitioner: Callable[..., Any] | None = None,
    ) -> Self:
        check_kind(other, type(self), f"{how} join of tables")
        check_callable(joiner, "joiner", "join", "key, value, other" if with_key else "value, other")
        if foreign_key is None:
            if foreign_key_with_key or partitioner is not None or other_partitioner is not None:
                raise TopologyError(
                    "foreign_key_with_key=, partitioner= and other_partitioner= need foreign_key=",
                    hint="foreign_key=lambda value: ... gives the other table's key",
                )
            return table_joins.join_tables(self, other, joiner, how, with_key, options, name)
        check_callable(foreign_key, "foreign_key", "join", "key, value" if foreign_key_with_key else "value")
        plan = foreign_key_joins.ForeignKeyPlan(
            foreign_key,
            joiner,
            left_join=how == "left",
            with_key=with_key,
            extractor_with_key=foreign_key_with_key,
            partitioner=partitioner,
            other_partitioner=other_partitioner,
            name=name,
        )
        return foreign_key_joins.join_by_foreign_key(self, other, plan, options or Materialized())
