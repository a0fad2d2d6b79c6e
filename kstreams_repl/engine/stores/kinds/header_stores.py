"""The stores with headers as a processor uses them (KIP-1271): they take and return `ValueTimestampHeaders`, session stores
`AggregationWithHeaders`.

Each has a second form, `plain`, over the same rows: the store as operators of the DSL use it, without headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kstreams_repl.engine.stores.kinds.key_value import KeyValue, TimestampedKeyValue
from kstreams_repl.engine.stores.kinds.session import SessionStore
from kstreams_repl.engine.stores.kinds.time_ordered_window import TimeOrderedWindow
from kstreams_repl.engine.stores.kinds.window import WindowStore
from kstreams_repl.engine.stores.kinds.window_reads import WindowReads
from kstreams_repl.system.errors import SerializationError
from kstreams_repl.system.types import AggregationWithHeaders, Windowed


def checked_row(store: str, item: object) -> Any:
    """Return what is put into a store with headers; None deletes.

    Raises:
        SerializationError: it is neither (value, timestamp, headers) nor (value, timestamp).
    """
    if item is None or (isinstance(item, tuple) and len(item) in (2, 3)):
        return None if item is None or item[0] is None else item
    raise SerializationError(
        f"store {store} expected ValueTimestampHeaders, got {item!r}",
        hint="put ValueTimestampHeaders(value, timestamp, headers)",
        store=store,
    )


def _same(item: object) -> object:
    return item


class KeyValueWithHeaders(KeyValue):
    """A key-value store of `ValueTimestampHeaders`."""

    plain: TimestampedKeyValue

    def _make_access(self) -> tuple[Callable[[object], object], Callable[[object, object], None]]:
        get, put = super()._make_access()
        return get, lambda key, item: put(key, checked_row(self.name, item))


class _WindowWithHeaders(WindowReads):
    present = staticmethod(_same)
    plain: WindowReads

    def put(self, key: object, value: object, window_start: int) -> None:
        self.put_raw(self._bytes(key), checked_row(self.name, value), window_start)


class WindowWithHeaders(_WindowWithHeaders, WindowStore):
    """A window store of `ValueTimestampHeaders`."""


class TimeOrderedWindowWithHeaders(_WindowWithHeaders, TimeOrderedWindow):
    """A window store in time order, of `ValueTimestampHeaders`."""


class SessionWithHeaders(SessionStore):
    """A session store of `AggregationWithHeaders`."""

    plain: SessionStore

    def put(self, session_key: Windowed, aggregate: object) -> None:
        if aggregate is not None and not isinstance(aggregate, AggregationWithHeaders):
            raise SerializationError(
                f"store {self.name} expected AggregationWithHeaders, got {aggregate!r}",
                hint="put AggregationWithHeaders(aggregation, headers)",
                store=self.name,
            )
        super().put(session_key, None if aggregate is None or aggregate.aggregation is None else aggregate)
