"""Joins of a stream: `join`, `left_join`, `outer_join`. The arguments of a join depend on the other side, as the overloads show.

`stream_joins` builds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from kstreams_repl.dsl import stream_joins
from kstreams_repl.dsl.call_log import logged
from kstreams_repl.dsl.stream_base import AbstractStream
from kstreams_repl.dsl.windows import JoinWindows, Millis

if TYPE_CHECKING:
    from kstreams_repl.dsl.global_ktable import GlobalKTable
    from kstreams_repl.dsl.kip28 import KStreamWindowed
    from kstreams_repl.dsl.kstream import KStream
    from kstreams_repl.dsl.ktable import KTable

Joiner = Callable[..., Any]


class JoinableStream(AbstractStream):
    """The joins of `KStream`."""

    _repartition_required: bool

    @overload
    def join(
        self, other: KStream, joiner: Joiner, windows: JoinWindows, *, with_key: bool = False, name: str | None = None,
        store: str | None = None, key_serde: Any = None, value_serde: Any = None, other_value_serde: Any = None,
        logging: bool | None = None, persistent: bool | None = None,
    ) -> KStream: ...
    @overload
    def join(
        self, other: KTable, joiner: Joiner, *, with_key: bool = False, name: str | None = None, grace: Millis | None = None,
        key_serde: Any = None, value_serde: Any = None,
    ) -> KStream: ...
    @overload
    def join(
        self, other: GlobalKTable, joiner: Joiner, *, key: Callable[[Any, Any], Any], with_key: bool = False, name: str | None = None
    ) -> KStream: ...
    @logged
    def join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Joiner,
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        key: Callable[[Any, Any], Any] | None = None,
        grace: Millis | None = None,
        store: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        other_value_serde: Any = None,
        logging: bool | None = None,
        persistent: bool | None = None,
    ) -> KStream:
        """Inner join with a stream (give `windows`), a table, or a global table (give `key=`).

        A stream's record joins the other stream's records with its key that lie within `windows`; both need a key and a value. A
        table provides the current row of the record's key, or with `grace=` the row as of the record's time. A global table
        provides the row of `key(key, value)`.

        Args:
            other: a stream, a table or a global table.
            joiner: (value, other value) -> value, or (key, value, other value) -> value with `with_key=True`.
            windows: streams only: maximum time difference of joined records.
            with_key: whether `joiner` takes the key too.
            name: name of the node; None = generated.
            key: global tables only: (key, value) -> the global table's key.
            grace: tables only: how long a record waits for the table to reach its time (ms or timedelta); the table must be
                versioned. None = join at once.
            store: streams only: prefix of the names of the join's stores; None = generated.
            key_serde, value_serde: streams and tables: serdes of the stores and repartition topics; None = those of the streams.
            other_value_serde: streams only: serde of the other stream's values; None = its own.
            logging: streams only: whether the stores have changelogs; None = yes.
            persistent: streams only: True on disk, False in memory; None = the application's ``default.dsl.store`` decides.

        Raises:
            TopologyError: no windows between streams, or a keyword argument that this kind of join does not have.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> names = builder.table("names", key_serde="string", value_serde="string")
            >>> named = words.join(names, lambda word, name: f"{name}: {word}")
        """
        return stream_joins.join(
            self, other, joiner, windows, "inner", with_key=with_key, name=name, key=key, grace=grace, store=store, key_serde=key_serde,
            value_serde=value_serde, other_value_serde=other_value_serde, logging=logging, persistent=persistent,
        )

    @overload
    def left_join(
        self, other: KStream, joiner: Joiner, windows: JoinWindows, *, with_key: bool = False, name: str | None = None,
        store: str | None = None, key_serde: Any = None, value_serde: Any = None, other_value_serde: Any = None,
        logging: bool | None = None, persistent: bool | None = None,
    ) -> KStream: ...
    @overload
    def left_join(
        self, other: KTable, joiner: Joiner, *, with_key: bool = False, name: str | None = None, grace: Millis | None = None,
        key_serde: Any = None, value_serde: Any = None,
    ) -> KStream: ...
    @overload
    def left_join(
        self, other: GlobalKTable, joiner: Joiner, *, key: Callable[[Any, Any], Any], with_key: bool = False, name: str | None = None
    ) -> KStream: ...
    @logged
    def left_join(
        self,
        other: KStream | KTable | GlobalKTable,
        joiner: Joiner,
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        key: Callable[[Any, Any], Any] | None = None,
        grace: Millis | None = None,
        store: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        other_value_serde: Any = None,
        logging: bool | None = None,
        persistent: bool | None = None,
    ) -> KStream:
        """Join as `join` does, and join a record without a match with None; with a stream once the window has closed.

        Args and errors as for `join`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> others = builder.stream("others", key_serde="string", value_serde="string")
            >>> pairs = words.left_join(others, lambda word, other: (word, other), ks.JoinWindows.of_time_difference(5_000))
        """
        return stream_joins.join(
            self, other, joiner, windows, "left", with_key=with_key, name=name, key=key, grace=grace, store=store, key_serde=key_serde,
            value_serde=value_serde, other_value_serde=other_value_serde, logging=logging, persistent=persistent,
        )

    @logged
    def outer_join(
        self,
        other: KStream,
        joiner: Joiner,
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        store: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        other_value_serde: Any = None,
        logging: bool | None = None,
        persistent: bool | None = None,
    ) -> KStream:
        """Join with a stream as `join` does, and join unmatched records of either side with None once their window has closed.

        Args and errors as for `join`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> others = builder.stream("others", key_serde="string", value_serde="string")
            >>> pairs = words.outer_join(others, lambda word, other: (word, other), ks.JoinWindows.of_time_difference(5_000))
        """
        return stream_joins.join(
            self, other, joiner, windows, "outer", with_key=with_key, name=name, store=store, key_serde=key_serde,
            value_serde=value_serde, other_value_serde=other_value_serde, logging=logging, persistent=persistent,
        )

    @logged
    def _join_prior(self, other: KStream, joiner: Joiner, windows: JoinWindows, **options: Any) -> KStream:
        """Join with earlier records only (KIP-28); see `KStreamWindowed.join_prior`."""
        return stream_joins.join(self, other, joiner, windows, "inner", prior=True, **options)

    def with_(self, window: JoinWindows | Millis) -> KStreamWindowed:
        """Return KIP-28's windowed stream: `left.with_(window).join(right.with_(window), joiner)`.

        Args:
            window: how long its records can be joined: `JoinWindows`, ms or a timedelta.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> windowed = words.with_(ks.JoinWindows.of_time_difference(5_000))
        """
        from kstreams_repl.dsl.kip28 import KStreamWindowed
        from kstreams_repl.dsl.kstream import KStream

        assert isinstance(self, KStream)
        return KStreamWindowed(self, window)
