"""Which records of a store's changelog are of one row: `RowKey`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Any, NamedTuple

from kstreams_repl.engine.stores.kinds.typed_store import LONG
from kstreams_repl.engine.topology.store_builder import StoreBuilder, StoreKind

_SESSION = struct.Struct(">qq")
_WINDOWS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.TIME_ORDERED_WINDOW})
_SEQUENCE_BYTES = 4


class RowKey(NamedTuple):
    """The key of one row as its changelog has it.

    Attributes:
        data: the bytes, without a window's sequence number.
        ends: how many bytes follow.
        any_window: whether a record of any window of the key matches.
        session: of a session with its start and end: a record of any earlier part of it matches, too; None: only the row itself.
    """

    data: bytes
    ends: int = 0
    session: tuple[int, int] | None = None
    any_window: bool = False

    @property
    def has_parts(self) -> bool:
        """Whether records of other rows match, from which the row was made."""
        return self.any_window or self.session is not None

    @property
    def match(self) -> Callable[[bytes | None], bool]:
        """The same as a call, and quicker where the key alone decides."""
        return self.__call__ if self.ends or self.session is not None else partial(eq, self.data)

    def __call__(self, key: bytes | None) -> bool:
        if key is None:
            return False
        if self.session is None:
            return len(key) == len(self.data) + self.ends and key.startswith(self.data)
        if len(key) != len(self.data) + _SESSION.size or not key.startswith(self.data):
            return False
        end, start = _SESSION.unpack_from(key, len(self.data))
        return bool(self.session[0] <= start <= end <= self.session[1])


def row_key(store: StoreBuilder, key: Any, *, parts: bool = False, any_window: bool = False) -> RowKey | None:
    """Return the key of a row; None for the private stores of operators.

    Args:
        store: with its serdes (`log_serdes.with_log_serdes`).
        key: of a window store ``(key, start)`` or a `Windowed`, of a session store a `Windowed`.
        parts: whether the sessions that a session was merged from match, too.
        any_window: of a window store, whether all windows of the key match.
    """
    to_bytes = store.key_serde.serialize
    if store.kind is StoreKind.SESSION:
        plain, start, end = key
        if parts:
            return RowKey(to_bytes(plain), session=(start, end))
        return RowKey(to_bytes(plain) + _SESSION.pack(end, start))
    if store.kind in _WINDOWS:
        if any_window:
            return RowKey(to_bytes(key[0]), LONG.size + _SEQUENCE_BYTES, any_window=True)
        return RowKey(to_bytes(key[0]) + LONG.pack(key[1]), _SEQUENCE_BYTES)
    if store.kind in (StoreKind.SUBSCRIPTION, StoreKind.OUTER_JOIN, StoreKind.JOIN_GRACE_BUFFER):
        return None
    data = to_bytes(key)
    return None if data is None else RowKey(data)
