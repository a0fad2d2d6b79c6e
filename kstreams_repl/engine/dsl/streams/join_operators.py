"""Joins of a stream: `join`, `left_join`, `outer_join`. The arguments of a join depend on the other side, as the overloads show.

`stream_joins` builds them.
"""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar, Unpack, overload

from kstreams_repl.engine.call_checks import spelled_out
from kstreams_repl.engine.dsl.graph.call_log import logged
from kstreams_repl.engine.dsl.groupings.windows import JoinWindows
from kstreams_repl.engine.dsl.options import StreamJoinOptions
from kstreams_repl.engine.dsl.streams import stream_joins
from kstreams_repl.engine.dsl.streams.stream_base import AbstractStream, check_kind
from kstreams_repl.engine.dsl.tables.global_ktable import GlobalKTable
from kstreams_repl.engine.dsl.tables.table_operators import TableOperators
from kstreams_repl.system.durations import Millis, as_millis
from kstreams_repl.system.types import Joiner, KeyValueMapper

StreamT = TypeVar("StreamT", bound="JoinOperators")


class JoinOperators(AbstractStream):
    """The joins of `KStream`."""

    @overload
    def join(
        self, other: Self, joiner: Joiner, windows: JoinWindows, *, with_key: bool = False, name: str | None = None,
        **store_options: Unpack[StreamJoinOptions],
    ) -> Self: ...
    @overload
    def join(
        self, other: TableOperators, joiner: Joiner, *, with_key: bool = False, name: str | None = None, grace: Millis | None = None,
        key_serde: object = None, value_serde: object = None,
    ) -> Self: ...
    @overload
    def join(
        self, other: GlobalKTable, joiner: Joiner, *, key: KeyValueMapper, with_key: bool = False, with_mapped_key: bool = False,
        name: str | None = None,
    ) -> Self: ...
    @logged
    def join(
        self,
        other: Self | TableOperators | GlobalKTable,
        joiner: Joiner,
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        key: KeyValueMapper | None = None,
        with_mapped_key: bool | None = None,
        grace: Millis | None = None,
        **store_options: Unpack[StreamJoinOptions],
    ) -> Self:
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
            with_mapped_key: global tables only: whether `joiner` is (key, mapped key, value, other value) -> value, where the mapped key
                is what `key` returned (KIP-1340); instead of `with_key`.
            grace: tables only: how long a record waits for the table to reach its time (ms, timedelta or "30 s"); the table must be
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
            self, other, joiner, windows, "inner", with_key=with_key, name=name, key=key, with_mapped_key=with_mapped_key,
            grace=grace, **store_options,
        )  # fmt: skip

    @overload
    def left_join(
        self, other: Self, joiner: Joiner, windows: JoinWindows, *, with_key: bool = False, name: str | None = None,
        **store_options: Unpack[StreamJoinOptions],
    ) -> Self: ...
    @overload
    def left_join(
        self, other: TableOperators, joiner: Joiner, *, with_key: bool = False, name: str | None = None, grace: Millis | None = None,
        key_serde: object = None, value_serde: object = None,
    ) -> Self: ...
    @overload
    def left_join(
        self, other: GlobalKTable, joiner: Joiner, *, key: KeyValueMapper, with_key: bool = False, with_mapped_key: bool = False,
        name: str | None = None,
    ) -> Self: ...
    @logged
    def left_join(
        self,
        other: Self | TableOperators | GlobalKTable,
        joiner: Joiner,
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        key: KeyValueMapper | None = None,
        with_mapped_key: bool | None = None,
        grace: Millis | None = None,
        **store_options: Unpack[StreamJoinOptions],
    ) -> Self:
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
            self, other, joiner, windows, "left", with_key=with_key, name=name, key=key, with_mapped_key=with_mapped_key,
            grace=grace, **store_options,
        )  # fmt: skip

    @logged
    def outer_join(
        self,
        other: Self,
        joiner: Joiner,
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **store_options: Unpack[StreamJoinOptions],
    ) -> Self:
        """Join with a stream as `join` does, and join unmatched records of either side with None once their window has closed.

        Args and errors as for `join`.

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> others = builder.stream("others", key_serde="string", value_serde="string")
            >>> pairs = words.outer_join(others, lambda word, other: (word, other), ks.JoinWindows.of_time_difference(5_000))
        """
        return stream_joins.join(self, other, joiner, windows, "outer", with_key=with_key, name=name, **store_options)

    @logged
    def _join_prior(self, other: Self, joiner: Joiner, windows: JoinWindows, **options: Any) -> Self:
        """Join with earlier records only (KIP-28); see `KStreamWindowed.join_prior`."""
        return stream_joins.join(self, other, joiner, windows, "inner", prior=True, **options)

    def with_(self, window: JoinWindows | Millis) -> KStreamWindowed[Self]:
        """Return KIP-28's windowed stream: `left.with_(window).join(right.with_(window), joiner)`.

        Args:
            window: how long its records can be joined: `JoinWindows`, ms, a timedelta or "30 s".

        Example:
            >>> import kstreams_repl as ks
            >>> builder = ks.StreamsBuilder()
            >>> words = builder.stream("words", key_serde="string", value_serde="string")
            >>> windowed = words.with_(ks.JoinWindows.of_time_difference(5_000))
        """
        return KStreamWindowed(self, window)


class KStreamWindowed(Generic[StreamT]):
    """A stream whose records can be joined within a window: `left.with_(60_000).join(right.with_(60_000), joiner)`.

    All other methods of a stream are available through it: `windowed.filter(...)`.
    """

    def __init__(self, stream: StreamT, window: JoinWindows | Millis) -> None:
        self.stream = stream
        if isinstance(window, JoinWindows):
            self._keep_ms, self._grace_ms = window.before_ms, window.grace_ms
        else:
            self._keep_ms, self._grace_ms = as_millis(window, "window"), 0

    @spelled_out
    def join(
        self,
        other: KStreamWindowed[StreamT],
        joiner: Joiner,
        *,
        with_key: bool = False,
        name: str | None = None,
        **store_options: Unpack[StreamJoinOptions],
    ) -> StreamT:
        """Join each record of either stream with the other's records of its key that are within their windows.

        Args:
            other: the other windowed stream.
            joiner: (value, other value) -> value.
            with_key, name, store, key_serde, value_serde, other_value_serde, logging, persistent: as for `KStream.join` with a stream.

        Example:
            >>> from kstreams_repl import kip28
            >>> builder = kip28.KStreamBuilder()
            >>> left = builder.from_("left", key_serde="string", value_serde="string").with_(60_000)
            >>> right = builder.from_("right", key_serde="string", value_serde="string").with_(60_000)
            >>> left.join(right, lambda one, other: one + other).to("both", value_serde="string")
        """
        return self.stream.join(other.stream, joiner, self._windows(other), with_key=with_key, name=name, **store_options)

    @spelled_out
    def join_prior(
        self,
        other: KStreamWindowed[StreamT],
        joiner: Joiner,
        *,
        with_key: bool = False,
        name: str | None = None,
        **store_options: Unpack[StreamJoinOptions],
    ) -> StreamT:
        """Join as `join` does, but only with records of the other stream that have an *older timestamp* than the record's own.

        A late record does not join newer records that arrived before it. Args as for `join`.

        Example:
            >>> from kstreams_repl import kip28
            >>> builder = kip28.KStreamBuilder()
            >>> left = builder.from_("left", key_serde="string", value_serde="string").with_(60_000)
            >>> right = builder.from_("right", key_serde="string", value_serde="string").with_(60_000)
            >>> left.join_prior(right, lambda one, other: one + other).to("later", value_serde="string")
        """
        return self.stream._join_prior(other.stream, joiner, self._windows(other), with_key=with_key, name=name, **store_options)

    def _windows(self, other: KStreamWindowed[StreamT]) -> JoinWindows:
        check_kind(other, KStreamWindowed, "join of windowed streams")
        return JoinWindows(other._keep_ms, self._keep_ms, max(self._grace_ms, other._grace_ms))

    def __getattr__(self, name: str) -> Any:
        if name == "stream":
            raise AttributeError(name)
        return getattr(self.stream, name)

    def __repr__(self) -> str:
        return f"KStreamWindowed({self.stream.name}, {self._keep_ms} ms)"
